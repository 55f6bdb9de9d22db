"""What `fedscope hessian` does: measure each checkpoint, and show the records together."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch.distributed import ProcessGroup

from fedscope.checkpoints.files import versions
from fedscope.checkpoints.registry import Registry
from fedscope.cli import answers, console
from fedscope.cli.analysis import SHARED
from fedscope.cli.problems import problems, remarks
from fedscope.cli.reading import by_reading
from fedscope.errors import UserError
from fedscope.federated import workers
from fedscope.figures.labels import label
from fedscope.figures.rounding import format_estimate
from fedscope.figures.tables import Table, hessian_table
from fedscope.figures.verdicts import advice, comparison_table
from fedscope.landscape.keeping import Keeper
from fedscope.landscape.measure import measure
from fedscope.landscape.records import Record, plain_form
from fedscope.landscape.request import Request


def run(
    place: answers.Place | None,
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
    """Measure the checkpoints, print and write their records, and draw them if asked to.

    What the same command says the next time is kept at ``place``.
    """
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
    rests = None
    if place:
        rests = answers.rests_on(place.checkpoints, source["data_dir"], clients=request.clients)
    with joined_group() as group:
        stage = console.silent if group is not None and group.rank() else console.progress
        found = problems(**source)
        keepers = [Keeper(keep if group is None else None) for _ in found]
        records = [
            measure(problem, request, stage, keep=keeper, again=recompute, group=group)
            for problem, keeper in zip(found, keepers, strict=True)
        ]
        if group is not None and group.rank():
            return
    if place and rests and place.checkpoints == tuple(problem.path for problem in found):
        _keep(place.file, rests, remarks(found, source["samples"]), records, keepers)
    if not console.in_json(json_target, console.one_or_all(records)):
        show(records)
    if figure:
        _draw(records, kind, Path(figure))


def _keep(
    file: Path,
    rests: answers.Rests,
    said: Sequence[console.Piece],
    records: Sequence[Record],
    keepers: Sequence[Keeper],
) -> None:
    """Keep what the same command will say the next time, where every result has a file of its own."""
    files = [keeper.file for keeper in keepers if keeper.file]
    results = answers.stamps(files)  # before they are read again: as they will be found
    if results is None or len(files) < len(records):
        return
    kept = [keeper.result(path.stem) for keeper, path in zip(keepers, files, strict=True)]
    again = [
        {**result, "checkpoint": record["checkpoint"], "reused": True}
        for record, result in zip(records, kept, strict=True)
        if result
    ]
    if len(again) == len(records):
        answers.keep(file, {**rests, **results}, remarks=said, records=again, shown=list(shown(again)))


def _draw(records: list[Record], kind: Any, path: Path) -> None:
    from fedscope.figures.hessian_records import draw
    from fedscope.figures.record import made_from
    from fedscope.figures.style import save

    save(draw(records, kind), path, record=made_from(records))


def show(records: list[Record]) -> None:
    """Print the comparison table, and each record's further eigenvalues and warnings."""
    console.show(shown(records))


def shown(records: list[Record]) -> Iterator[console.Piece]:
    """Return what is printed of the records: their table, their differences, and each one's own."""
    yield _piece(hessian_table(records))
    for record in records:
        notes = [plain_form(record), *advice(record)]
        if record.get("reused"):
            notes.insert(0, "as measured before; --recompute measures again")
        yield from (("note", f"{label(record['checkpoint'])}: {line}") for line in notes if line)
    if len(records) > 1:
        yield from _compared(records)
    for record in records:
        yield from _of_one(record)


def _of_one(record: Record) -> Iterator[console.Piece]:
    name = label(record["checkpoint"])
    if len(record["eigenvalues"]) > 1:
        values = (format_estimate(e["value"], e["stderr_data"]) for e in record["eigenvalues"])
        yield "line", f"{name}: eigenvalues ± data {', '.join(values)}"
    if record["layers"]:
        rows = [
            (layer["name"], format_estimate(layer["value"], layer["stderr_data"]))
            for layer in record["layers"]
        ]
        yield "table", f"{name}: by layer", ("layer", "λ_max ± data"), rows
    for line in _short_of(record):
        yield "note", f"{name}: {line}"


def _short_of(record: Record) -> Iterator[str]:
    """Say what did not become as sure as was asked."""
    cross = record["cross_client"]
    if record["converged"] is False:
        yield (
            "not every eigenpair is as sure as asked (--tol of λ_max, each of several 0.5 % of its own); "
            "their residuals are in --json; fewer --top-k are surer"
        )
    if record["trace"]["converged"] is False:
        yield f"the trace did not reach --trace-rtol in {record['trace']['probes']} probes"
    if cross and cross["converged"] is False:
        yield (
            f"H_N and H_D did not reach --client-rtol in {cross['probes']} probes per client; "
            "raise --client-max-probes"
        )


def _compared(records: list[Record]) -> Iterator[console.Piece]:
    """Return each record's differences to the first, where they were made on the same samples."""
    try:
        table = comparison_table(records)
    except UserError as reason:
        yield "note", f"no comparison: {reason}"
        return
    yield "line", ""
    yield _piece(table)


def _piece(table: Table) -> console.Piece:
    return "table", table.title, table.columns, table.rows, table.notes


@contextmanager
def joined_group() -> Iterator[ProcessGroup | None]:
    """Join the processes that torchrun started, which share every product's batches; None without it."""
    if not workers.under_torchrun():
        yield None
        return
    with workers.joined():
        yield dist.group.WORLD
