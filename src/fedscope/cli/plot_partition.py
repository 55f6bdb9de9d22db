"""`fedscope data plot-partition`: which classes each client holds, before or after a run."""

from pathlib import Path
from typing import Any

import click

from fedscope.cli import completion, options
from fedscope.cli.command import Command
from fedscope.cli.settings import settings


@click.command(
    "plot-partition",
    cls=Command,
    examples={
        "fedscope data plot-partition --alpha 0.1 --clients 16": "how a division looks before training"
    },
)
@click.argument("run", required=False, shell_complete=completion.runs)
@settings("dataset", helps={"dataset": "A data set; `fedscope data list` has them."})
@options.data_dir
@settings(
    "partition", "alpha", "clients", "exhausted", "phi", "rho", "seed", "train_samples",
    helps={
        "seed": "Of the training part and the division, as in `fedscope train`.",
        "train_samples": "Divide a random part of this many samples. [default: all]",
    },
)  # fmt: skip
@options.registry
@click.option("--kind", type=click.Choice(["bubbles", "bars"]), default="bubbles", show_default=True,
              help="A bubble per client and class, or a stacked bar per client.")  # fmt: skip
@click.option(
    "--out",
    default="partition.png",
    show_default=True,
    metavar="FILE",
    callback=options.writable,
    help="A .png, .pdf or .svg file.",
)
@options.json_target
def command(
    run: str | None,
    data_dir: Path | None,
    registry: Path,
    kind: Any,
    out: str,
    json_target: str | None,
    **given: object,
) -> None:
    """Draw how many samples of each class each client holds, and say how different the clients are.

    Of a RUN of the registry, or of the division that the options describe; `fedscope train` with the same
    options and seed trains on it. Where every round has new clients, those of the first round are drawn.
    """
    from fedscope.cli import partitioning  # torch: not for --help

    given = {name: value for name, value in given.items() if value is not None}
    partitioning.draw(run, given, registry, data_dir=data_dir, kind=kind, out=out, json_target=json_target)
