"""`fedscope plot-landscape`: the loss surface around checkpoints, side by side."""

from pathlib import Path
from typing import Any

import click

from fedscope.checkpoints.files import versions
from fedscope.cli import console
from fedscope.cli.analysis import analysis, problems
from fedscope.errors import UserError
from fedscope.figures.labels import titles
from fedscope.figures.record import made_from
from fedscope.figures.report import landscape_page
from fedscope.figures.style import check_format, save
from fedscope.figures.surfaces import MOST_CHECKPOINTS, landscape_figure
from fedscope.landscape.records import Record
from fedscope.landscape.results import Surface
from fedscope.landscape.scan import Plane, scan
from fedscope.storage import write_text


@click.command("plot-landscape")
@analysis(samples=512)
@click.option("--directions", type=click.Choice(["eigen", "random"]), default="eigen", show_default=True,
              help="Top two eigenvectors at unit norm, or random filter-normalised ones.")  # fmt: skip
@click.option("--grid", type=click.IntRange(3), default=41, show_default=True, help="Points along each axis.")
@click.option("--span", type=click.FloatRange(0, min_open=True), default=1.0, show_default=True,
              help="The axes run from -SPAN to SPAN.")  # fmt: skip
@click.option(
    "--out",
    default="landscape.png",
    show_default=True,
    metavar="FILE",
    help="A .png, .pdf or .svg file, or an interactive .html one.",
)
def command(
    json_target: str | None, bn: Any, directions: Any, grid: int, span: float, out: str, **source: Any
) -> None:
    """Draw the loss on a plane through each checkpoint, on shared axes, camera and colours.

    CKPT is a file, or RUN, RUN@25, RUN@best, RUN@final, RUN@client3 of the registry; left out, the newest
    run.
    """
    interactive = is_page(Path(out))
    if not interactive:
        check_format(Path(out))
    for target in (out, json_target):
        console.check_target(target)
    if len(source["checkpoints"]) > MOST_CHECKPOINTS and not interactive:
        raise UserError(f"one figure shows up to {MOST_CHECKPOINTS} checkpoints; make several figures")
    plane = Plane(directions=directions, grid=grid, span=span, bn=bn, versions=versions())
    results = [scan(problem, plane, console.progress) for problem in problems(**source)]
    records = [record for record, _ in results]
    if json_target:
        console.write_json(json_target, records[0] if len(records) == 1 else records)
    draw(results, Path(out))
    if json_target != "-":
        click.echo(out)


def draw(results: list[tuple[Record, Surface]], path: Path) -> None:
    """Draw surfaces with their records' titles to ``path``."""
    records = [record for record, _ in results]
    if is_page(path):
        write_text(path, landscape_page(records))
        return
    captions = [_caption(record) for record in records]
    figure = landscape_figure([surface for _, surface in results], titles(records), captions=captions)
    save(figure, path, record=made_from(records))


def is_page(path: Path) -> bool:
    """Say whether this is to be an interactive page."""
    return path.suffix.lower() == ".html"


def _caption(record: Record) -> str:
    round, values = record["checkpoint"]["round"], record["curvature"]
    parts = [f"round {round}"] if round is not None else []
    parts += [f"λ₁ {values[0]:.3g}, λ₂ {values[1]:.3g}"] if values and None not in values else []
    return f"{', '.join(parts)} ({record['problem']['samples']} samples)".strip()
