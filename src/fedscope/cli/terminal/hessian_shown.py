"""What `fedscope hessian` prints of its records: their table, their differences, and each one's own."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from fedscope.cli.terminal import console
from fedscope.errors import UserError
from fedscope.figures.digits import format_estimate
from fedscope.figures.text.advice import advice, holders_unknown, plain_form, redrawn, who_is_who
from fedscope.figures.text.hessian_table import all_rows, hessian_table
from fedscope.figures.text.influence_tables import influence_tables
from fedscope.figures.text.labels import label
from fedscope.records.hessian_record import HessianRecord

SMALL = 0.3  # ηaλ_max, up to which local steps are linear in the gradient within some 15 %


def shown(found: Sequence[HessianRecord]) -> Iterator[console.Piece]:
    """Return what is printed of the records: their table, their differences, and each one's own."""
    table, said = hessian_table(found), {note for record in found for note in record.problem.notes}
    # said before the measurement, of each checkpoint
    yield console.piece(replace(table, notes=tuple(note for note in table.notes if note not in said)))
    for record in found:
        notes = [
            plain_form(record),
            *advice(record),
            all_rows(record),
            redrawn(record),
            holders_unknown(record),
            *who_is_who(record),
        ]
        if record.reused:
            notes.insert(0, "as measured before; --recompute measures again")
        yield from (("note", f"{label(record.checkpoint)}: {line}") for line in notes if line)
    warm = [r for r in found if r.converged is True and r.lambda_max.certified is False]
    if warm:
        steps = all(record.checkpoint.step is not None for record in warm)
        before, name = ("step", "RUN@ROUND:clientK:stepS") if steps else ("round", "RUN@ROUND")
        yield (
            "note",
            f"λ_max of {len(warm)} of {len(found)} began at the eigenvectors of the {before} before: its "
            f"residual is known, that it is the largest is not certified; name {name} for that",
        )
    if len(found) > 1:
        yield from _compared(found)
    for record in found:
        yield from _of_one(record)


def _of_one(record: HessianRecord) -> Iterator[console.Piece]:
    name = label(record.checkpoint)
    if len(record.eigenvalues) > 1:
        values = (
            format_estimate(one.value, one.stderr_data, within=one.residual) for one in record.eigenvalues
        )
        yield "line", f"{name}: eigenvalues ± data {', '.join(values)}"
    for kind, parts in (("layer", record.layers), ("block", record.blocks)):
        rows = [(one.name, format_estimate(one.value, one.stderr_data, within=one.residual)) for one in parts]
        if rows:
            yield "table", f"{name}: by {kind}", (kind, "λ_max ± data"), rows
    if found := record.preconditioned:
        top = found.lambda_max
        value = format_estimate(top.value, top.stderr_data, within=top.residual)
        yield (
            "line",
            f"{name}: λ_max(P⁻¹H) ± data {value}, "
            f"{format_estimate(found.ratio)} of the largest stable {format_estimate(found.stable)} "
            f"(P of {found.optimizer})",
        )
        if (size := found.nonlinearity(record.lambda_max.value)) > SMALL:
            yield (
                "note",
                f"{name}: the largest stable one is to first order in the local rate η, for ηaλ_max far "
                f"below 1, and here it is {format_estimate(size)} (a: the local steps at unit rate)",
            )
    yield from map(console.piece, influence_tables(record))
    for line in _short_of(record):
        yield "note", f"{name}: {line}"


def _short_of(record: HessianRecord) -> Iterator[str]:
    cross = record.cross_client
    if record.converged is False:
        yield _unconverged(record)
    if record.trace and record.trace.converged is False:
        yield f"the trace did not reach --trace-rtol in {record.trace.probes} probes"
    if cross and cross.converged is False:
        yield (
            f"H_N and H_D did not reach --client-rtol in {cross.probes} probes per client; "
            "raise --client-max-probes"
        )


def _unconverged(record: HessianRecord) -> str:
    if record.problem.products:
        worst = max(one.residual for one in record.eigenvalues) / abs(record.lambda_max.value or math.nan)
        return (
            "not every eigenpair reached its tolerance (--tol of λ_max) or is certified: its residual, which "
            f"has the measured error of finite differences in it, is {worst:.1e} of λ_max; raise "
            "--tol above that, or take --products exact"
        )
    several = len(record.eigenvalues) > (2 if record.both_ends else 1)
    return (
        "not every eigenpair reached its tolerance (--tol of λ_max; of several, each 0.5 % of its own size) "
        "or is certified to be the i-th: the residuals are in --json, and "
        + ("a smaller --top-k converges sooner" if several else "a larger --tol is reached sooner")
    )


def _compared(records: Sequence[HessianRecord]) -> Iterator[console.Piece]:
    from fedscope.figures.text.comparison_table import comparison_table

    try:
        table = comparison_table(records)
    except UserError as reason:
        yield "note", f"no comparison: {reason}"
        return
    yield "line", ""
    yield console.piece(table)
