"""Who a report shows: every run, and every checkpoint from elsewhere, with one name, colour and line."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from matplotlib.colors import to_hex

from fedscope.figures import style
from fedscope.figures.text.labels import method_name
from fedscope.records.clients_record import ClientsRecord
from fedscope.records.hessian_record import CheckpointEntry, HessianRecord
from fedscope.records.run_record import RunRecord
from fedscope.records.saved_records import Analysis

Key = tuple[str, object, object]
LINE_WIDTH = 2  # pixels
MOST_LUMINANCE = 0.295  # of a line or point on white, whose contrast then is (1 + 0.05) / (0.295 + 0.05)
DARK_LUMINANCE = 0.15  # of the palette's palest colours, which would be like others at the above
PALE = 0.5  # their luminance, or more
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "triangle-down", "cross", "x", "star")


@dataclass(frozen=True)
class Subject:
    """One run or checkpoint."""

    index: int
    name: str
    color: str  # as CSS has it
    dash: str  # as plotly has it: solid, or lengths in pixels
    symbol: str  # of a point


Shown = Sequence[tuple[Subject, HessianRecord]]
Subjects = Mapping[Key, Subject]


def run_key(run: RunRecord) -> Key:
    return (run.name, None, None)


def key_of(checkpoint: CheckpointEntry) -> Key:
    """Return what tells checkpoints of different subjects apart; rounds of one run are the same subject."""
    if checkpoint.run is None:
        return (checkpoint.sha256, None, None)
    return (checkpoint.run, checkpoint.client, checkpoint.step or checkpoint.other_average)


def subjects(runs: Sequence[RunRecord], records: Sequence[Analysis | ClientsRecord]) -> dict[Key, Subject]:
    """Return the subjects in the order given: by method where each has its own, else by name."""
    methods: dict[Key, object] = {run_key(run): run.stated.method for run in runs}
    labels = {key: key[0] for key in methods}
    for record in records:
        key = key_of(record.checkpoint)
        if key not in methods:
            methods[key], labels[key] = record.problem.method, _label(key, record.checkpoint)
    known = [method for method in methods.values() if method not in (None, "unknown")]
    if len(set(known)) == len(methods):
        names = {key: method_name(str(method)) for key, method in methods.items()}
    else:
        names = dict(zip(labels, _apart(labels), strict=True))
    colors = style.method_colors(len(names))
    return {
        key: Subject(i, name, to_hex(legible(colors[i])), _dash(i), SYMBOLS[i % len(SYMBOLS)])
        for i, (key, name) in enumerate(names.items())
    }


def row_names(records: Sequence[Analysis], who: Mapping[Key, Subject]) -> list[str]:
    keys = [key_of(record.checkpoint) for record in records]
    times = Counter(keys)
    return [
        who[key].name if times[key] == 1 else f"{who[key].name}, round {record.checkpoint.round}"
        for key, record in zip(keys, records, strict=True)
    ]


def legible(color: style.Color) -> style.Color:
    """Return the colour, darkened until it stands out from white by a contrast of 3 (WCAG 1.4.11).

    All are light enough to stand out as much from the page's dark background.
    """
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in color]
    luminance = sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
    wanted = DARK_LUMINANCE if luminance > PALE else min(luminance, MOST_LUMINANCE)
    share = wanted / luminance if luminance else 1.0
    red, green, blue = (
        12.92 * part if part <= 0.0031308 else 1.055 * part ** (1 / 2.4) - 0.055
        for part in (share * part for part in linear)
    )
    return red, green, blue


def _label(key: Key, checkpoint: CheckpointEntry) -> str:
    name, client, average = key
    if checkpoint.run is None:
        return PurePath(checkpoint.path).name
    step = f", round {checkpoint.round}, step {checkpoint.step}" if checkpoint.step else ""
    if client is not None:
        return f"{name}, client {client}{step}"
    return f"{name}, {average}" if average else name


def _apart(labels: Mapping[Key, str]) -> Iterable[str]:
    times = Counter(labels.values())
    return [f"{label} ({key[0][:8]})" if times[label] > 1 else label for key, label in labels.items()]


def _dash(index: int) -> str:
    pattern = style.LINESTYLES[index % len(style.LINESTYLES)]
    return "solid" if pattern == "-" else ",".join(f"{LINE_WIDTH * length:g}px" for length in pattern[1])
