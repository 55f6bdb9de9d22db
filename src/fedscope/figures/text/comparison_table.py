"""The comparison of Hessian records: which checkpoint is flatter."""

import math
from collections.abc import Iterator, Sequence

from fedscope.errors import UserError
from fedscope.figures.digits import ABSENT, format_estimate
from fedscope.figures.text.hessian_table import Table
from fedscope.figures.text.labels import label, method_name
from fedscope.records.differences import Difference, differences, differences_to_first, is_sharpness
from fedscope.records.hessian_record import Compared, HessianRecord
from fedscope.records.quantities import QUANTITIES
from fedscope.statistics.resolution import UNRESOLVED

UNDECIDED = (
    "in brackets why a difference of more than two standard errors is undecided: dof degrees of freedom of "
    "its error, p of no difference, alone and adjusted for all verdicts"
)
FLATTENING = frozenset({"man", "fedsam", "fedasam"})  # whose papers report flatter minima


def comparison_table(records: Sequence[HessianRecord]) -> Table:
    if len(records) < 2:
        raise UserError("a comparison needs two or more records")
    reference, *others = records
    found = differences_to_first(records)
    names = list(dict.fromkeys(one.quantity for row in found for one in row))
    rows = [(label(other.checkpoint), *_cells(row, names)) for other, row in zip(others, found, strict=True)]
    meanings = [
        f"{one.symbol}: {one.meaning}"
        for one in QUANTITIES
        if one.symbol in names and one.meaning and one.symbol not in _untold(found)
    ]
    explanation = (
        f"± standard error over probes and samples together, which the checkpoints share; {_judged(found)}"
    )
    return Table(
        f"Difference to {label(reference.checkpoint)}",
        ("checkpoint", *names),
        tuple(rows),
        (
            "; ".join([explanation, *meanings]),
            *_advice(found, len(reference.batch_sizes)),
            *surprises(records),
        ),
    )


def comparable(records: Sequence[HessianRecord]) -> list[HessianRecord]:
    """Return the first record and those with the same samples and quantities."""
    found = list(records[:1])
    for other in records[1:]:
        try:
            differences(records[0], other)
        except UserError:
            continue
        found.append(other)
    return found


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


def _advice(found: Sequence[Sequence[Difference]], batches: int) -> Iterator[str]:
    wide = [one for row in found for one in row if one.reason]
    bounds = [one for one in wide if abs(one.value) - one.bound <= 2 * one.stderr]
    if chance := [one for one in wide if abs(one.value) - one.bound > 2 * one.stderr]:
        few = f"; {batches} batches tell the error over the samples, a smaller --batch-size makes more"
        yield UNDECIDED + few * any(map(is_sharpness, chance))
    if bounds:
        yield "bias of few samples, or a residual: more --samples, or a smaller --tol, narrow that"
    if untold := [name for name in _untold(found) if name in {one.quantity for one in wide}]:
        yield f"the bias of few samples is not known of {', '.join(untold)}: a smaller --batch-size tells it"


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
        "small data, or after few rounds, the method that fits more slowly may be sharper for that alone: "
        "compare accuracies, and later rounds"
    )


def _cells(row: Sequence[Difference], names: Sequence[str]) -> list[str]:
    by_name = {one.quantity: one for one in row}
    return [_cell(by_name[name]) if name in by_name else ABSENT for name in names]


def _cell(difference: Difference) -> str:
    if math.isnan(difference.value):
        return UNRESOLVED
    shown = format_estimate(difference.value, difference.stderr, within=difference.bound)
    return f"{shown}{stated(difference)}"


def stated(one: Difference | Compared) -> str:
    """Return a verdict as it stands behind its difference, with why it is undecided; "" for a distance."""
    reason = f" ({one.reason})" if one.reason else ""
    return f": {one.verdict}{reason}" if one.verdict else ""
