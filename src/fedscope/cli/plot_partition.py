"""`fedscope data plot-partition`: which classes each client holds, before or after a run."""

from pathlib import Path
from typing import TYPE_CHECKING, get_args

import click

from fedscope.cli.options import completion, shared
from fedscope.cli.options.command import Command
from fedscope.cli.options.settings_options import settings
from fedscope.cli.options.shared import flags_given
from fedscope.cli.terminal import console
from fedscope.figures.figure_kinds import PartitionKind

if TYPE_CHECKING:
    from fedscope.records.partition_record import PartitionRecord

MADE_OF = ("run", "dataset", "fingerprint", "train_samples", "partition", "seed")  # kept in the figure


@click.command(
    "plot-partition",
    cls=Command,
    examples={
        "fedscope data plot-partition --alpha 0.1 --clients 16": "how a division looks before training"
    },
)
@click.argument("run", required=False, shell_complete=completion.runs)
@settings("dataset", "loss", helps={"dataset": "A data set; `fedscope data list` has them."})
@shared.data_dir
@settings(
    "partition", "alpha", "clients", "exhausted", "phi", "rho", "shards", "classes_per_client", "seed",
    "train_samples",
    helps={
        "seed": "Of the training part and the division, as in `fedscope train`.",
        "train_samples": "Divide a random part of this many samples. [default: all]",
    },
)  # fmt: skip
@shared.registry
@click.option("--kind", type=click.Choice(get_args(PartitionKind)), default="bubbles", show_default=True,
              help="A bubble per client and class, or a stacked bar per client.")  # fmt: skip
@shared.picture("partition.png")
@shared.json_target
def command(
    run: str | None,
    data_dir: Path | None,
    registry: Path,
    kind: PartitionKind,
    out: str,
    json_target: str | None,
    **given: object,
) -> None:
    """Draw how many samples of each class each client holds, and say how different the clients are.

    Of a RUN of the registry, or of the division that the options describe; `fedscope train` with the same
    options and seed trains on it. Where every round has new clients, those of the first round are drawn.
    """
    import numpy as np

    from fedscope.figures.runs.partition_figure import partition_figure
    from fedscope.figures.style import check_format, save
    from fedscope.workflows.divided_data import partition  # torch: not for --help

    check_format(Path(out))
    record = partition(
        registry,
        run,
        {name: value for name, value in given.items() if value is not None},
        data_dir=data_dir,
        named=flags_given(click.get_current_context()),
        reporter=console.REPORTER,
    )
    content = record.to_json()
    only_json = console.in_json(json_target, content)
    figure = partition_figure(np.array(record.counts), record.classes, kind=kind, title=_title(record))
    save(figure, Path(out), record={key: content[key] for key in MADE_OF})
    if not only_json:
        print(out)


def _title(record: "PartitionRecord") -> str:
    from fedscope.figures.text.labels import data_name

    division = record.partition
    signs = {"α": division.alpha, "φ": division.phi, "ρ": division.rho}
    signs |= {"shards": division.shards, "classes per client": division.classes_per_client}
    values = [f"{sign} = {value:g}" for sign, value in signs.items() if value is not None]
    values += ["with refill"] * (division.exhausted == "refill")
    return ", ".join([data_name(record.dataset), division.kind, *values])
