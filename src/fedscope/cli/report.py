"""`fedscope report`: runs and all that was measured of them, as one interactive HTML file."""

from pathlib import Path
from typing import Any

import click

from fedscope.checkpoints.files import versions
from fedscope.checkpoints.registry import Registry
from fedscope.cli import console
from fedscope.cli.analysis import analysis
from fedscope.cli.reporting import as_record, kept, kept_rounds, measured, page_of, runs_of
from fedscope.errors import UserError
from fedscope.figures.record import read_record
from fedscope.figures.report.checked import checked
from fedscope.landscape.crossing import Crossing
from fedscope.landscape.measure import Request
from fedscope.landscape.scan import Plane
from fedscope.storage import write_text


@click.command("report")
@analysis(samples=512)
@click.option("--out", default="report.html", show_default=True, metavar="FILE", help="The .html file.")
@click.option("--grid", type=click.IntRange(3), default=21, show_default=True,
              help="Points along each axis of the landscapes.")  # fmt: skip
@click.option("--span", type=click.FloatRange(0, min_open=True), default=1.0, show_default=True,
              help="The landscapes' axes run from -SPAN to SPAN.")  # fmt: skip
@click.option(
    "--top-k", type=click.IntRange(2), default=5, show_default=True, help="Largest eigenvalues to compute."
)
@click.option("--probes", type=click.IntRange(2), help="Fixed number of trace probes, instead of to 5 %.")
@click.option("--client-probes", type=click.IntRange(3), default=16, show_default=True,
              help="Probes per client for H_N and H_D, where a run kept its clients.")  # fmt: skip
@click.option("--no-clients", is_flag=True, help="Leave H_N and H_D out.")
@click.option("--rounds", metavar="A:B:C",
              help="Also landscapes of the kept rounds A, A+C, … B along the same directions.")  # fmt: skip
@click.option("--no-compute", is_flag=True, help="Show only what the registry and --record have.")
@click.option("--record", "files", multiple=True, metavar="FILE", type=click.Path(path_type=Path),
              help="A saved record of `hessian` or `plot-landscape --json`; may be repeated.")  # fmt: skip
def command(
    json_target: str | None,
    bn: Any,
    out: str,
    grid: int,
    span: float,
    top_k: int,
    probes: int | None,
    client_probes: int,
    no_clients: bool,
    rounds: str | None,
    no_compute: bool,
    files: tuple[Path, ...],
    **source: Any,
) -> None:
    """Make one HTML file of runs side by side, for any browser: measures what is missing, reuses the rest.

    CKPT is a run of the registry, or one of its checkpoints as RUN@25, RUN@best, RUN@client3; left out (and
    without --record), the newest run.
    """
    if Path(out).suffix.lower() != ".html":
        raise UserError(f"cannot write a report to '{out}': name it with the suffix .html")
    for target in (out, json_target):
        console.check_target(target)
    given = [record for file in files for record in checked(read_record(file), str(file))]
    store = Registry(source["registry"])
    references = source.pop("checkpoints") or (() if given else (store.newest().name,))
    request = Request(
        top_k=top_k,
        probes=probes,
        density=True,
        clients=not no_clients,
        crossing=Crossing(probes=client_probes),
        bn=bn,
        versions=versions(),
    )
    plane = Plane(grid=grid, span=span, bn=bn, versions=versions())
    paths = [store.resolve(reference) for reference in references]
    wanted = {
        path: kept_rounds(store, reference, rounds) for path, reference in zip(paths, references, strict=True)
    }
    records = kept(store, wanted, given) if no_compute else measured(wanted, given, request, plane, source)
    if json_target:
        console.write_json(json_target, records)
    write_text(Path(out), page_of([as_record(run) for run in runs_of(paths)], records))
    if json_target != "-":
        click.echo(out)
