"""The comparison of Hessian records: which checkpoint is flatter.

Built from Hessian records, like the table.
"""

import math
from collections.abc import Sequence

from fedscope.errors import UserError
from fedscope.figures.numbers import format_estimate
from fedscope.figures.text.labels import label, method_name
from fedscope.figures.text.tables import ABSENT, Table
from fedscope.records.differences import COMPARISONS, Difference, differences_to_first, is_sharpness
from fedscope.records.hessian import HessianRecord
from fedscope.statistics.resolution import UNRESOLVED

FLATTENING = frozenset({"man", "fedsam", "fedasam"})  # whose papers report flatter minima


def comparison_table(records: Sequence[HessianRecord]) -> Table:
    """Tabulate each record's differences to the first one, with errors and verdicts."""
    if len(records) < 2:
        raise UserError("a comparison needs two or more records")
    reference, *others = records
    found = differences_to_first(records)
    names = list(dict.fromkeys(one.quantity for row in found for one in row))
    rows = [(label(other.checkpoint), *_cells(row, names)) for other, row in zip(others, found, strict=True)]
    meanings = [
        f"{one.quantity}: {one.meaning}"
        for one in COMPARISONS
        if one.quantity in names and one.meaning and one.quantity not in _untold(found)
    ]
    explanation = (
        "± standard error over probes and samples together, which the checkpoints share; "
        f"{_judged(found)}{_undecided(found, len(reference.batch_sizes))}"
    )
    return Table(
        f"Difference to {label(reference.checkpoint)}",
        ("checkpoint", *names),
        tuple(rows),
        ("; ".join([explanation, *meanings]), *surprises(records)),
    )


def surprises(records: Sequence[HessianRecord]) -> list[str]:
    """Return a remark for each record that is sharper though its method's paper finds it flatter."""
    pairs = zip(records[1:], differences_to_first(records), strict=True)
    found = (_surprise(records[0], other, row) for other, row in pairs)
    return [surprise for surprise in found if surprise]


def _judged(found: Sequence[Sequence[Difference]]) -> str:
    family = sum(one.verdict is not None and not math.isnan(one.p) for row in found for one in row)
    if family <= 1:
        return "lower or higher: the 95 % interval leaves out zero"
    return f"lower or higher: so sure that all {family} verdicts are right with 95 % (Holm)"


def _undecided(found: Sequence[Sequence[Difference]], batches: int) -> str:
    """Return advice for differences of twice their error that are undecided: by few batches or a bound."""
    wide = [
        one
        for row in found
        for one in row
        if is_sharpness(one) and one.verdict == "undecided" and abs(one.value) > 2 * one.stderr
    ]
    untold = [name for name in _untold(found) if name in {one.quantity for one in wide}]
    bounds = [
        f"{one.bound:.2g} of {one.quantity}" for one in wide if abs(one.value) - one.bound <= 2 * one.stderr
    ]
    advice = ""
    if len(bounds) < sum(not math.isnan(one.bound) for one in wide):
        advice = f", but is wide where {batches} batches tell the error; a smaller --batch-size makes more"
    if bounds:
        advice += (
            f"; beyond the errors, up to {', '.join(bounds)} may be bias of few samples, or a residual, and "
            "leaves it undecided: more --samples, or a smaller --tol, narrow that"
        )
    if untold:
        advice += f"; the bias of few samples is not known of {', '.join(untold)}: a smaller --batch-size "
        advice += "tells it"
    return advice


def _untold(found: Sequence[Sequence[Difference]]) -> list[str]:
    return list(dict.fromkeys(one.quantity for row in found for one in row if math.isnan(one.bound)))


def _surprise(reference: HessianRecord, other: HessianRecord, found: Sequence[Difference]) -> str | None:
    """Return a remark if a method is sharper than the one it adds to, though its paper finds it flatter."""
    mine, yours = (record.problem.method or "" for record in (reference, other))
    added = set(yours.split("+")) - set(mine.split("+"))
    sharper = [one for one in found if is_sharpness(one) and one.verdict == "higher"]
    if not sharper or not added & FLATTENING or mine.split("+")[0] != yours.split("+")[0]:
        return None
    numbers = ", ".join(f"{one.quantity} by {format_estimate(one.value, one.stderr)}" for one in sharper)
    return (
        f"{method_name(yours)} is sharper here than {method_name(mine)}, {numbers}, though its paper finds "
        "it flatter. The curvature of cross-entropy falls as the training samples are fitted, so that on "
        "small data, or after few rounds, the method that fits more slowly is sharper: compare accuracies, "
        "and later rounds"
    )


def _cells(row: Sequence[Difference], names: Sequence[str]) -> list[str]:
    by_name = {one.quantity: one for one in row}
    return [_cell(by_name[name]) if name in by_name else ABSENT for name in names]


def _cell(difference: Difference) -> str:
    if math.isnan(difference.value):
        return UNRESOLVED
    shown = format_estimate(difference.value, difference.stderr, within=difference.bound)
    return f"{shown}: {difference.verdict}" if difference.verdict else shown
