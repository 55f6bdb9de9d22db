"""`fedscope plot-landscape`: the loss surface around checkpoints, side by side or along rounds."""

from pathlib import Path
from typing import Any

import click

from fedscope.cli import options
from fedscope.cli.analysis import GROUPS as analysis_groups
from fedscope.cli.analysis import analysis, check_references
from fedscope.cli.command import Command
from fedscope.cli.evaluation import evaluation

DIRECTIONS = ("eigen", "ggn", "random", "pca", "points", "line", "clients")


GROUPS = {
    "Most used": ("--directions", "--grid", "--span", "--samples", "--rounds", "--out"),
    "What is drawn": ("--kind", "--show", "--seconds", "--from"),
    "How points are evaluated": ("--metric", "--adaptive", "--precision", "--recompute"),
    **analysis_groups,
}
EXAMPLES = {
    "fedscope plot-landscape a b": "the minima of two runs, on shared axes",
    "fedscope plot-landscape --directions line a@client0 a@client1": "the loss between two clients",
    "fedscope plot-landscape a --rounds 1:20:1 --out film.gif": "a film of the rounds that were kept",
    "fedscope plot-landscape --from plane.json --kind contour": "a saved record, drawn otherwise",
}


@click.command("plot-landscape", cls=Command, groups=GROUPS, examples=EXAMPLES)
@analysis
@click.option("--directions", type=click.Choice(DIRECTIONS), default="eigen", show_default=True,
              help="Top two eigenvectors of the Hessian or of the Gauss-Newton matrix, or random "
              "filter-normalised; or through networks: a trajectory, 3 points, the line between 2, a round's "
              "clients.")  # fmt: skip
@click.option("--grid", default="41", show_default=True, metavar="N|NxM", help="Points along the axes.")
@click.option("--span", type=click.FloatRange(0, min_open=True), default=1.0, show_default=True,
              help="The axes run from -SPAN to SPAN; through networks, SPAN times as far as these "
              "reach.")  # fmt: skip
@evaluation
@click.option("--rounds", "round_range", metavar="A:B:C",
              help="Rounds A, A+C, … B of each RUN, along the directions of the last one: a film or a "
              "strip.")  # fmt: skip
@click.option("--kind", type=click.Choice(["both", "surface", "contour", "heat"]),
              help="Surfaces in space, contours, a heat map of the points, or surfaces above contours. "
              "[default: both; contour for a strip of rounds]")  # fmt: skip
@click.option("--show", "metric", default="loss", show_default=True, metavar="METRIC",
              help="What is drawn: the loss or another metric, such as accuracy.")  # fmt: skip
@click.option("--seconds", type=click.FloatRange(0.04, 60), default=0.5, show_default=True,
              help="How long each frame of a film is seen.")  # fmt: skip
@click.option("--from", "saved", multiple=True, type=click.Path(path_type=Path), metavar="FILE.json",
              help="Draw what --json wrote, without computing; may be repeated.")  # fmt: skip
@click.option("--out", default="landscape.png", show_default=True, metavar="FILE",
              callback=options.writable,
              help="A .png, .pdf or .svg file, an interactive .html one; of rounds or a trajectory also .gif "
              "or .mp4 (with ffmpeg).")  # fmt: skip
def command(**given: Any) -> None:
    """Draw the loss on a plane through each checkpoint, on shared axes, camera and colours.

    CKPT is a file, or RUN, RUN@25, RUN@25:all, RUN@best, RUN@0, RUN@client3 of the registry; left out, the
    newest run. Points takes three of them and line two; pca takes runs that kept their rounds
    (--keep-every), or several checkpoints in order; clients takes global models whose clients were saved
    (--save-clients). With --rounds it is the name of a run.
    """
    check_references(given)
    from fedscope.cli import landscapes  # torch: not for --help

    landscapes.run(**given)
