"""`fedscope report`: runs and all that was measured of them, as one interactive HTML file."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fedscope.cli.options import shared
from fedscope.cli.options.analysis import GROUPS as analysis_groups
from fedscope.cli.options.analysis import analysis
from fedscope.cli.options.command import Command, OptionRule
from fedscope.cli.terminal import console
from fedscope.errors import UserError
from fedscope.storage import write_text
from fedscope.workflows.option_fields import Rule
from fedscope.workflows.sources.targets import Targets

if TYPE_CHECKING:
    from fedscope.workflows.report_page import ReportRequest

GROUPS = {
    "Most used": ("--out", "--samples", "--grid", "--top-k", "--no-clients", "--no-compute", "--dry-run"),
    "What is shown": ("--rounds", "--span", "--record"),
    "How precisely": ("--probes", "--client-probes"),
    **analysis_groups,
}
EXAMPLES = {
    "fedscope report a b": "two runs beside each other: measures what is missing",
    "fedscope report a --no-compute --out quick.html": "what has been measured already, at once",
}
RULES: Sequence[OptionRule] = (Rule("no_compute files", lambda v: not v["dry_run"], "with --dry-run"),)


@click.command("report", cls=Command, groups=GROUPS, examples=EXAMPLES, rules=RULES)
@analysis
@shared.out("report.html", "The .html file; an earlier one is replaced.", numbered=False)
@click.option("--grid", type=click.IntRange(3, 1001), default=21, show_default=True,
              help="Points along each axis of the landscapes.")  # fmt: skip
@click.option("--span", type=click.FloatRange(0, min_open=True), default=1.0, show_default=True,
              help="The landscapes' axes run from -SPAN to SPAN.")  # fmt: skip
@click.option("--top-k", type=click.IntRange(1),
              help="Largest eigenvalues. [default: up to 5 that were measured already, else 5]")  # fmt: skip
@click.option("--probes", type=click.IntRange(2), help="Fixed number of trace probes, instead of to 5 %.")
@click.option("--client-probes", type=click.IntRange(3), default=16, show_default=True,
              help="Probes per client for H_N and H_D, where a run kept its clients.")  # fmt: skip
@click.option("--no-clients", is_flag=True, help="Leave H_N and H_D out.")
@click.option("--rounds", metavar="FIRST:LAST:STEP",
              help="Also landscapes of these kept rounds along the same directions.")  # fmt: skip
@click.option("--no-compute", is_flag=True, help="Show only what the registry and --record have.")
@click.option("--dry-run", is_flag=True, help="Make nothing; say what measuring all of it would take.")
@click.option("--record", "files", multiple=True, metavar="FILE", type=click.Path(path_type=Path),
              help="A saved record of `hessian`, `plot-landscape` or `clients --json`; may be "
              "repeated.")  # fmt: skip
def command(
    targets: Targets,
    json_target: str | None,
    out: str,
    grid: int,
    span: float,
    top_k: int | None,
    probes: int | None,
    client_probes: int,
    no_clients: bool,
    rounds: str | None,
    no_compute: bool,
    dry_run: bool,
    files: tuple[Path, ...],
) -> None:
    """Make one HTML file of runs side by side, for any browser: measures what is missing, reuses the rest.

    CKPT is a run of the registry, or one of its checkpoints as RUN@25, RUN@best, RUN@client3; left out (and
    without --record), the newest run.
    """
    if Path(out).suffix.lower() != ".html":
        raise UserError(f"cannot write a report to '{out}': name it with the suffix .html")
    from fedscope.figures.embedded_record import read_record
    from fedscope.records.saved_records import read
    from fedscope.workflows.report_page import ReportRequest, report  # torch: not for --help

    request = ReportRequest(
        targets,
        grid=grid,
        span=span,
        top_k=top_k,
        probes=probes,
        client_probes=client_probes,
        clients=not no_clients,
        rounds=rounds,
        bn=targets.bn,
        compute=not no_compute,
        given=tuple(record for file in files for record in read(read_record(file), str(file))),
    )
    if dry_run:
        _show_outlook(request, json_target)
        return
    page, records = report(request, console.REPORTER)
    only_json = console.in_json(json_target, [record.to_json() for record in records])
    write_text(Path(out), page, below=None)
    if not only_json:
        print(out)


def _show_outlook(request: "ReportRequest", target: str | None) -> None:
    from fedscope.workflows.curvature.hessian_command import plans
    from fedscope.workflows.curvature.measurement_plan import described
    from fedscope.workflows.landscape.landscape_command import outlooks
    from fedscope.workflows.landscape.landscape_request import Plane

    curvature = plans(request.targets, replace(request.curvature, clients=False), console.REPORTER)
    plane = Plane(grid=request.grid, span=request.span, bn=request.bn)
    planes = outlooks(request.targets, plane, console.REPORTER, request.rounds)
    if console.in_json(target, [*(one.to_json() for one in curvature), *map(asdict, planes)]):
        return
    lines = [line for plan in curvature for line in described(plan)] + [one.described() for one in planes]
    if request.clients:
        probes = request.curvature.cross_client.probes
        lines.append(
            f"H_N and H_D besides: {probes} products of each client's own rows, where clients were kept"
        )
    console.show(("line", line) for line in lines)
