"""`fedscope plot-runs`: curves and points of whole runs, from their metrics and what was measured of them."""

from pathlib import Path
from typing import get_args

import click

from fedscope.cli.options import completion, shared
from fedscope.cli.options.command import Command
from fedscope.figures.figure_kinds import RunsKind


@click.command(
    "plot-runs",
    cls=Command,
    examples={
        "fedscope plot-runs a b --kind sharpness": "λ_max and trace against accuracy",
        "fedscope plot-runs a b --kind drift": "how far the clients part, by round",
    },
)
@click.argument("runs", nargs=-1, metavar="[RUN]...", shell_complete=completion.checkpoints)
@click.option("--kind", type=click.Choice(get_args(RunsKind)), default="accuracy", show_default=True,
              help="Accuracy by round or by bytes sent; accuracy, λ_max and trace by round; λ_max by round "
              "beside the edge of stability of the local steps, and of an adaptive server's where measured; "
              "λ_max and trace against accuracy or against "
              "the loss' generalisation gap; λ_max by layer; and by round, how far the clients part, the "
              "server's steps, local training, or --probe-curvature.")  # fmt: skip
@shared.registry
@click.option("--from", "saved", multiple=True, type=click.Path(path_type=Path), metavar="FILE.json",
              help="Draw what --json wrote, without the registry; may be repeated.")  # fmt: skip
@click.option("--title", default="", help="Written above the figure.")
@shared.json_target
@shared.picture("runs.png")
def command(
    runs: tuple[str, ...],
    kind: RunsKind,
    registry: Path,
    saved: tuple[Path, ...],
    title: str,
    json_target: str | None,
    out: str,
) -> None:
    """Draw RUNs of the registry: RUN, RUN@25, RUN@all, or several by a pattern such as 'mine-*'.

    Runs that differ in their seed alone become one line with a band. Nothing is trained or measured:
    curvature is what `fedscope hessian` left in the registry.
    """
    from fedscope.checkpoints.registry.run_registry import RunRegistry
    from fedscope.cli.terminal import console
    from fedscope.errors import UserError
    from fedscope.figures.embedded_record import read_records
    from fedscope.figures.runs.drawings import draw
    from fedscope.figures.style import check_format, save
    from fedscope.records.run_curves import provenance, run_curves
    from fedscope.workflows.run_records import run_records

    check_format(Path(out))
    if runs and saved:
        raise UserError("RUNs and --from do not go together: give one of them")
    store = RunRegistry(registry)
    names = runs or (() if saved else (store.newest().name,))
    records = run_curves(read_records(saved)) if saved else run_records(store, names)
    only_json = console.in_json(json_target, [record.to_json() for record in records])
    save(draw(records, kind, title=title), Path(out), record={"kind": kind, **provenance(records)})
    if not only_json:
        print(out)
