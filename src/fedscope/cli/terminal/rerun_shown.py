"""What `fedscope figures check` prints of a rerun compared with a gallery."""

from collections import Counter
from collections.abc import Iterator

from fedscope.cli.terminal import console
from fedscope.figures.digits import format_estimate
from fedscope.reproduce.artefacts.rerun import Change, Check, Outcome

_COLUMNS = ("method", "column", "quantity", "rerun", "gallery", "difference", "")
_MEANING: dict[Outcome, str] = {
    "within": "within: by no more than chance, with the spread between seeds where it is known",
    "beyond": "beyond: by more than the spread between seeds",
    "beyond the measurement": "beyond the measurement: how far seeds spread is not known; train two or more",
    "not comparable": "not comparable: no error is known",
    "missing": "missing: one of the two has no number",
}


def checked(found: Check) -> Iterator[console.Piece]:
    """Return what is printed: the cells that differ, the statements whose verdicts do, and the counts."""
    outcomes = Counter(change.outcome for change in found.changes)
    if rows := [_row(change) for change in found.changes if change.outcome != "equal"]:
        notes = [text for outcome, text in _MEANING.items() if outcomes[outcome]]
        notes.append("judged together: one or another is wrongly beyond with a probability of 5 % (Holm)")
        yield "table", found.recipe, _COLUMNS, rows, notes, {"text_columns": 3, "drop": ("column",)}
    for here, there in found.claims:
        before = there.verdict if there else "not judged"
        yield "line", f"{found.recipe}: {here.statement}: {here.verdict}, in the gallery {before}"
    counts = ", ".join(f"{count} {outcome}" for outcome, count in outcomes.items())
    yield "line", f"{found.recipe}: {counts or 'no numbers'}"


def _row(change: Change) -> tuple[str, ...]:
    values = [change.value, change.other]
    here, there = ("–" if value is None else format_estimate(value) for value in values)
    difference = "–"
    if change.value is not None and change.other is not None:
        difference = format_estimate(change.value - change.other, change.error)
    return change.row, change.column, change.quantity, here, there, difference, change.outcome
