"""`fedscope plot-landscape`: the loss surface around checkpoints, side by side."""

from pathlib import Path
from typing import Any

import click

from fedscope.checkpoints.files import versions
from fedscope.cli import console
from fedscope.cli.analysis import analysis
from fedscope.cli.evaluation import evaluation, taken
from fedscope.cli.hessian import ANALYSIS, joined_group
from fedscope.cli.slices import geometry, grid_sizes, slices
from fedscope.errors import UserError
from fedscope.figures.labels import titles
from fedscope.figures.record import made_from
from fedscope.figures.style import check_format, save
from fedscope.figures.surfaces import MOST_CHECKPOINTS, landscape_figure
from fedscope.landscape.records import Record
from fedscope.landscape.results import Surface
from fedscope.landscape.scan import Plane, scan

DIRECTIONS = ("eigen", "ggn", "random", "pca", "points", "line", "clients")


@click.command("plot-landscape")
@analysis(samples=512)
@click.option("--directions", type=click.Choice(DIRECTIONS), default="eigen", show_default=True,
              help="Top two eigenvectors of the Hessian or of the Gauss-Newton matrix, or random "
              "filter-normalised; or through networks: a trajectory, 3 points, the line between 2, a round's "
              "clients.")  # fmt: skip
@click.option("--grid", default="41", show_default=True, metavar="N|NxM", help="Points along the axes.")
@click.option("--span", type=click.FloatRange(0, min_open=True), default=1.0, show_default=True,
              help="The axes run from -SPAN to SPAN; through networks, SPAN times as far as these "
              "reach.")  # fmt: skip
@evaluation
@click.option(
    "--out", default="landscape.png", show_default=True, metavar="FILE", help="A .png, .pdf or .svg file."
)
def command(
    json_target: str | None, bn: Any, directions: Any, grid: str, span: float, out: str, **source: Any
) -> None:
    """Draw the loss on a plane through each checkpoint, on shared axes, camera and colours.

    CKPT is a file, or RUN, RUN@25, RUN@best, RUN@final, RUN@client3 of the registry; left out, the newest
    run. Points takes three of them and line two; pca takes runs that kept their rounds (--keep-every), or
    several checkpoints in order; clients takes global models whose clients were saved (--save-clients).
    """
    check_format(Path(out))
    for target in (out, json_target):
        console.check_target(target)
    own, recompute = taken(source), source.pop("recompute")
    plane = Plane(directions=directions, grid=grid_sizes(grid), span=span, bn=bn, versions=versions(), **own)
    chosen = slices(directions, source)
    if len(chosen) > MOST_CHECKPOINTS:
        raise UserError(f"one figure shows up to {MOST_CHECKPOINTS} checkpoints; make several figures")
    keep = Path(source["registry"]) / ANALYSIS
    with joined_group() as group:
        stage = console.silent if group is not None and group.rank() else console.progress
        results = [
            scan(problem, plane, stage, waypoints, keep=keep, again=recompute, group=group)
            for problem, waypoints in chosen
        ]
        if group is not None and group.rank():
            return
    records = [record for record, _ in results]
    for title, record in zip(titles(records), records, strict=True):
        for line in geometry(record):
            console.note(f"{title}: {line}")
    if json_target:
        console.write_json(json_target, records[0] if len(records) == 1 else records)
    draw(results, Path(out))
    if json_target != "-":
        click.echo(out)


def draw(results: list[tuple[Record, Surface]], path: Path) -> None:
    """Draw surfaces with their records' titles to ``path``."""
    records = [record for record, _ in results]
    captions = [_caption(record) for record in records]
    figure = landscape_figure([surface for _, surface in results], titles(records), captions=captions)
    save(figure, path, record=made_from(records))


def _caption(record: Record) -> str:
    round, values = record["checkpoint"]["round"], record["curvature"]
    parts = [f"round {round}"] if round is not None else []
    parts += [f"λ₁ {values[0]:.3g}, λ₂ {values[1]:.3g}"] if values and None not in values else []
    return f"{', '.join(parts)} ({record['problem']['samples']} samples)".strip()
