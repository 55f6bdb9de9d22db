"""The inference of an artefact's readings as texts: the likely ones beside the print, and what is left."""

from collections.abc import Mapping, Sequence

from fedscope.figures.numbers import format_estimate
from fedscope.records.artefact import ReadingCell, ReadingResult, ReadingsResult
from fedscope.reproduce.artefacts.readings import TITLES

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
        "likely": [one.name for one in likely(readings.results)],
        "shape": max(readings.results, key=lambda one: one.ratios_only),
        "worst": worst,
        "worst_ratio": _left(best, worst),
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


def _left(reading: ReadingResult, entry: ReadingCell) -> float:
    """Return what is expected relative to what is printed, after the common factor."""
    return entry.ratio * reading.factors[entry.quantity]


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
