"""What `fedscope hessian` does: measure each checkpoint, and show the records together."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch.distributed import ProcessGroup

from fedscope.checkpoints.files import versions
from fedscope.checkpoints.registry import Registry
from fedscope.cli import console
from fedscope.cli.analysis import SHARED
from fedscope.cli.problems import problems
from fedscope.cli.reading import by_reading
from fedscope.errors import UserError
from fedscope.federated import workers
from fedscope.figures.labels import label
from fedscope.figures.rounding import format_estimate
from fedscope.figures.tables import hessian_table
from fedscope.figures.verdicts import advice, comparison_table
from fedscope.landscape.measure import measure
from fedscope.landscape.records import Record, plain_form
from fedscope.landscape.request import Request


def run(
    json_target: str | None,
    bn: Any,
    top_k: int,
    tol: float,
    probes: int | None,
    trace_rtol: float,
    density: bool,
    clients: bool,
    operator: Any,
    parameters: tuple[str, ...],
    engine: Any,
    both_ends: bool,
    layers: bool,
    recompute: bool,
    figure: str | None,
    kind: Any,
    **others: Any,
) -> None:
    """Measure the checkpoints, print and write their records, and draw them if asked to."""
    source = {name: others.pop(name) for name in SHARED}
    request = Request(
        top_k=top_k,
        both_ends=both_ends,
        layers=layers,
        tol=tol,
        probes=probes,
        trace_rtol=trace_rtol,
        density=density or (figure is not None and kind == "density"),
        clients=clients or (figure is not None and kind == "clients"),
        engine=engine,
        operator=operator,
        parameters=parameters,
        bn=bn,
        versions=versions(),
        **by_reading(source, **others),
    )
    if figure:
        from fedscope.figures.style import check_format  # matplotlib: not for a table

        check_format(Path(figure))
    console.check_target(figure)
    keep = Registry(source["registry"]).analysis
    with joined_group() as group:
        stage = console.silent if group is not None and group.rank() else console.progress
        records = [
            measure(problem, request, stage, keep=keep, again=recompute, group=group)
            for problem in problems(**source)
        ]
        if group is not None and group.rank():
            return
    if not console.in_json(json_target, console.one_or_all(records)):
        show(records)
    if figure:
        _draw(records, kind, Path(figure))


def _draw(records: list[Record], kind: Any, path: Path) -> None:
    from fedscope.figures.hessian_records import draw
    from fedscope.figures.record import made_from
    from fedscope.figures.style import save

    save(draw(records, kind), path, record=made_from(records))


def show(records: list[Record]) -> None:
    """Print the comparison table, and each record's further eigenvalues and warnings."""
    table = hessian_table(records)
    console.print_table(table.title, table.columns, table.rows, table.notes)
    for record in records:
        if record.get("reused"):
            console.note(f"{label(record['checkpoint'])}: as measured before; --recompute measures again")
        if slow := plain_form(record):
            console.note(f"{label(record['checkpoint'])}: {slow}")
        for line in advice(record):
            console.note(f"{label(record['checkpoint'])}: {line}")
    if len(records) > 1:
        compare(records)
    for record in records:
        name = label(record["checkpoint"])
        if len(record["eigenvalues"]) > 1:
            values = (format_estimate(e["value"], e["stderr_data"]) for e in record["eigenvalues"])
            print(f"{name}: eigenvalues ± data {', '.join(values)}")
        if record["layers"]:
            rows = [
                (layer["name"], format_estimate(layer["value"], layer["stderr_data"]))
                for layer in record["layers"]
            ]
            console.print_table(f"{name}: by layer", ("layer", "λ_max ± data"), rows)
        if record["converged"] is False:
            console.note(
                f"{name}: not every eigenpair is as sure as asked (--tol of λ_max, each of several 0.5 % of "
                "its own); their residuals are in --json; fewer --top-k are surer"
            )
        if record["trace"]["converged"] is False:
            console.note(
                f"{name}: the trace did not reach --trace-rtol in {record['trace']['probes']} probes"
            )
        cross = record["cross_client"]
        if cross and cross["converged"] is False:
            console.note(
                f"{name}: H_N and H_D did not reach --client-rtol in {cross['probes']} probes per client; "
                "raise --client-max-probes"
            )


@contextmanager
def joined_group() -> Iterator[ProcessGroup | None]:
    """Join the processes that torchrun started, which share every product's batches; None without it."""
    if not workers.under_torchrun():
        yield None
        return
    with workers.joined():
        yield dist.group.WORLD


def compare(records: list[Record]) -> None:
    """Print each record's differences to the first, where they were made on the same samples."""
    try:
        table = comparison_table(records)
    except UserError as reason:
        console.note(f"no comparison: {reason}")
        return
    print()
    console.print_table(table.title, table.columns, table.rows, table.notes)
