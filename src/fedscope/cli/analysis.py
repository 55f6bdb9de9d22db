"""What the analysis commands share: which samples, which checkpoint, which precision."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from fedscope.cli import completion, options

_OPTIONS = (
    click.argument("checkpoints", nargs=-1, metavar="[CKPT]...", shell_complete=completion.checkpoints),
    click.option("--split", type=click.Choice(["train", "validation", "test"]), default="train",
                 show_default=True),
    options.data_dir,
    click.option("--model", metavar="MODULE:FACTORY", help="Your own network; CKPT is then its state_dict."),
    click.option("--data", metavar="MODULE:FACTORY", help="Your own batches of (inputs, targets), or dicts."),
    click.option("--loss", metavar="MODULE:FUNCTION",
                 help="Your own loss of (output, targets), a mean over samples. [default: cross-entropy]"),
    click.option("--entry", default="", metavar="KEY",
                 help="Which of several networks in your file, such as model_ema."),
    click.option("--bn", type=click.Choice(["eval", "recalibrate", "batch"]), default="eval",
                 show_default=True, help="BatchNorm statistics: stored, re-estimated, or the batch's own."),
    click.option("--dtype", type=click.Choice(["float32", "float64"]), default="float32", show_default=True),
    click.option("--batch-size", type=click.IntRange(1),
                 help="Samples at a time; the data's error bars come from the batches' spread. "
                 "[default: 128; of your own --data fewer, where that makes 16 batches]"),
    click.option("--seed", type=click.IntRange(0), default=0, show_default=True,
                 help="Of the sample and the probes."),
    options.device,
    options.threads,
    options.registry,
    options.json_target,
)  # fmt: skip

GROUPS = {
    "Your own network and data": ("--model", "--data", "--loss", "--entry"),
    "Samples and numbers": ("--split", "--data-dir", "--batch-size", "--bn", "--dtype", "--seed"),
    "Machine and registry": ("--device", "--threads", "--registry", "--json"),
}
"""The shared options in groups for the help, but for those that a command has in its first group."""
SHARED = (
    "checkpoints", "samples", "split", "data_dir", "model", "data", "loss", "entry", "dtype", "batch_size",
    "seed", "device", "threads", "registry",
)  # fmt: skip


SAMPLES = 1024  # of every command, so that they share results


def analysis(function: Callable[..., None]) -> Callable[..., None]:
    """Add the shared options to a command."""
    amount = click.option(
        "--samples",
        metavar="N|all",
        callback=lambda _context, _option, text: text or f"default {SAMPLES}",
        help=f"Samples to analyse on, a fixed draw. [default: {SAMPLES}; all of your own --data]",
    )
    for option in (amount, *reversed(_OPTIONS)):
        function = option(function)
    return function


def check_references(given: dict[str, Any]) -> None:
    """Find the checkpoints before anything that takes time is imported: a name may be mistyped.

    Raises:
        UserError: there is no such run or checkpoint.
    """
    from fedscope.checkpoints.registry.registry import Registry

    store = Registry(given["registry"])
    for reference in given["checkpoints"]:
        if not Path(reference).exists():
            store.resolve(reference)
