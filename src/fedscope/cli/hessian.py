"""`fedscope hessian`: λ_max, trace, density and cross-client metrics of checkpoints."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import torch.distributed as dist
from torch.distributed import ProcessGroup

from fedscope.checkpoints.files import versions
from fedscope.cli import console
from fedscope.cli.analysis import SHARED, analysis, problems
from fedscope.cli.reading import by_reading, reading_options
from fedscope.errors import UserError
from fedscope.federated import workers
from fedscope.figures.labels import label
from fedscope.figures.rounding import format_estimate
from fedscope.figures.tables import hessian_table
from fedscope.figures.verdicts import advice, comparison_table
from fedscope.landscape.measure import Request, measure
from fedscope.landscape.records import Record

ANALYSIS = ".analysis"  # in the registry: results, and the products of interrupted runs


@click.command("hessian")
@analysis(samples=2048)
@click.option("--top-k", type=click.IntRange(1), default=1, show_default=True, help="Largest eigenvalues.")
@click.option(
    "--tol", type=click.FloatRange(0, 1, min_open=True), default=1e-3, show_default=True,
    help="Residual of each eigenpair, relative to λ_max; of several, at most 0.5 % of its own.",
)  # fmt: skip
@click.option(
    "--probes", type=click.IntRange(2), help="Fixed number of trace probes, instead of --trace-rtol."
)
@click.option("--trace-rtol", type=click.FloatRange(0, min_open=True), default=0.05, show_default=True,
              help="Standard error of the trace, relative to its value.")  # fmt: skip
@click.option("--density", is_flag=True, help="Also estimate the eigenvalue density.")
@reading_options
@click.option("--operator", type=click.Choice(["hessian", "ggn", "fisher"]), default="hessian",
              show_default=True, help="Hessian, generalised Gauss–Newton, or empirical Fisher.")  # fmt: skip
@click.option(
    "--parameters",
    multiple=True,
    metavar="PATTERN",
    help="Only the block of parameters with such names, such as 'layer3.*'; may be repeated. [default: all]",
)
@click.option("--engine", type=click.Choice(["fedscope", "pyhessian"]), default="fedscope", show_default=True)
@click.option("--both-ends", is_flag=True, help="Also the --top-k smallest eigenvalues.")
@click.option("--layers", is_flag=True, help="Also λ_max of each layer's own diagonal block.")
@click.option("--recompute", is_flag=True, help="Measure again what the registry has a result of.")
@click.option("--figure", metavar="FILE", help="Also draw to a .png, .pdf or .svg file.")
@click.option("--kind", type=click.Choice(["density", "eigenvalues", "clients", "bars"]),
              default="density", show_default=True,
              help="What --figure draws: the density, the --top-k eigenvalues, H_N and H_D of the pairs of "
              "clients, or bars of λ_max and trace.")  # fmt: skip
def command(
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
    """Measure the curvature of the training loss at checkpoints.

    CKPT is a file, or RUN, RUN@25, RUN@best, RUN@final, RUN@client3 of the registry; left out, the newest
    run. Several are compared in one table.
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
    for target in (figure, json_target):
        console.check_target(target)
    keep = Path(source["registry"]) / ANALYSIS
    with joined_group() as group:
        stage = console.silent if group is not None and group.rank() else console.progress
        records = [
            measure(problem, request, stage, keep=keep, again=recompute, group=group)
            for problem in problems(**source)
        ]
        if group is not None and group.rank():
            return
    if json_target:
        console.write_json(json_target, records[0] if len(records) == 1 else records)
    if json_target != "-":
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
        for line in advice(record):
            console.note(f"{label(record['checkpoint'])}: {line}")
    if len(records) > 1:
        compare(records)
    for record in records:
        name = label(record["checkpoint"])
        if len(record["eigenvalues"]) > 1:
            values = ", ".join(
                "not finite" if e["value"] is None else f"{e['value']:.5g}" for e in record["eigenvalues"]
            )
            click.echo(f"{name}: eigenvalues {values}")
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
    click.echo()
    console.print_table(table.title, table.columns, table.rows, table.notes)
