"""The inference of an artefact's readings as texts: the likely ones beside the print, and what is left."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import geometric_mean

from fedscope.figures.digits import format_estimate
from fedscope.figures.text.labels import family
from studies.readings.likely_readings import TITLES
from studies.readings.readings_record import ReadingCell, ReadingResult, ReadingsResult

BESIDE = 3  # readings whose numbers stand beside the printed ones
ENOUGH = 0.95
_AXES = {
    "split": "samples of", "model": "weights", "samples": "number of samples", "estimator": "estimator",
    "augment": "augmented", "term": "MAN's term in the loss", "weight_decay": "weight decay in the loss",
}  # fmt: skip


def inference(readings: ReadingsResult) -> Mapping[str, object]:
    """Return what the template of the readings is filled with."""
    if not readings.results:
        return {"readings": readings}
    best = readings.results[0]
    worst = max(best.entries, key=lambda entry: abs(_left(best, entry) - 1))
    return {
        "readings": readings,
        "axes": _AXES,
        "titles": TITLES,
        "settled": [f"{_AXES[axis]}: {value}" for axis, value in settled(readings).items()],
        "unsettled": unsettled(readings),
        "likely": [one.name for one in likely(readings.results)],
        "shape": max(readings.results, key=lambda one: one.ratios_only),
        "worst": worst,
        "worst_ratio": _left(best, worst),
        "effects": _effects(best),
        "beside": _beside(readings.results[:BESIDE]),
    }


def likely(results: Sequence[ReadingResult]) -> list[ReadingResult]:
    """Return the most likely readings that share 95 % together."""
    found, total = [], 0.0
    for one in results:
        if total >= ENOUGH:
            break
        found.append(one)
        total += one.share
    return found


def settled(readings: ReadingsResult) -> dict[str, str]:
    """Return the setting of each axis that has 95 % of the share, where it was put to the test.

    It was if readings differ in this setting alone, and each such pair gives it 95 % too: what was tried
    seldom, or only together with another unlikely setting, may owe its small share to that.
    """
    found, every = {one.axis: one.value for one in readings.axes if one.share >= ENOUGH}, readings.results

    def tested(axis: str) -> bool:
        pairs = [
            1 / (1 + math.exp(other.log_likelihood - one.log_likelihood))
            for one in every if one.settings[axis] == found[axis]
            for other in every
            if other.settings[axis] != one.settings[axis]
            and other.settings == {**one.settings, axis: other.settings[axis]}
        ]  # fmt: skip
        return min(pairs, default=0.0) >= ENOUGH

    return {axis: value for axis, value in found.items() if tested(axis)}


def unsettled(readings: ReadingsResult) -> list[str]:
    """Return the names of the axes that are not :func:`settled`."""
    known = settled(readings)
    return [_AXES[axis] for axis in dict.fromkeys(one.axis for one in readings.axes) if axis not in known]


def _left(reading: ReadingResult, entry: ReadingCell) -> float:
    return entry.ratio * reading.factors[entry.quantity]


@dataclass(frozen=True)
class _Effect:
    """What adding to a method does to a quantity, in the print and here."""

    what: str
    quantity: str
    printed: float
    expected: float
    pairs: int


def _effects(best: ReadingResult) -> list[_Effect]:
    rows = list(dict.fromkeys(entry.row for entry in best.entries))
    pairs = [(base, row) for row in rows if (base := family(row, rows)) not in ("", row)]
    found = []
    for added in dict.fromkeys(row[len(base) :] for base, row in pairs):
        own = [(base, row) for base, row in pairs if row[len(base) :] == added]
        for quantity, title in TITLES.items():
            entries = {entry.row: entry for entry in best.entries if entry.quantity == quantity}
            printed = [entries[row].printed / entries[base].printed for base, row in own]
            expected = [entries[row].expected / entries[base].expected for base, row in own]
            what = f"Effect of {added.removeprefix('+')}"
            found.append(_Effect(what, title, geometric_mean(printed), geometric_mean(expected), len(own)))
    return found


def _beside(results: Sequence[ReadingResult]) -> Mapping[str, Sequence[object]]:
    headings = list[str]()
    rows: dict[str, tuple[str, ...]] = {entry.row: () for entry in results[0].entries}
    for quantity, title in TITLES.items():
        headings += [f"{title}, printed", *(f"{title}: {one.name}" for one in results)]
        for row in rows:
            entries = [e for one in results for e in one.entries if (e.row, e.quantity) == (row, quantity)]
            texts = [f"{_short(e.expected)} ({e.ratio:.2f})" for e in entries]
            rows[row] = (*rows[row], _short(entries[0].printed), *texts)
    return {"headings": headings, "rows": [[row, *texts] for row, texts in rows.items()]}


def _short(value: float) -> str:
    return format_estimate(value) if value < 1000 else f"{value:.0f}"
