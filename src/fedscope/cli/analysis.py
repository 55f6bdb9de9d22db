"""What the analysis commands share: which samples, which checkpoint, which precision."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import torch

from fedscope.checkpoints.registry import Registry
from fedscope.cli import console, options
from fedscope.errors import UserError
from fedscope.landscape.problem import Problem, Source, load

_OPTIONS = (
    click.argument("checkpoints", nargs=-1, metavar="[CKPT]..."),
    click.option("--split", type=click.Choice(["train", "test"]), default="train", show_default=True),
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
    click.option("--batch-size", type=click.IntRange(1), default=128, show_default=True,
                 help="Samples at a time; the data's error bars come from the batches' spread."),
    click.option("--seed", type=click.IntRange(0), default=0, show_default=True,
                 help="Of the sample and the probes."),
    options.device,
    options.threads,
    options.registry,
    click.option("--json", "json_target", metavar="FILE|-", help="Write the record; - is standard output."),
)  # fmt: skip

SHARED = (
    "checkpoints", "samples", "split", "data_dir", "model", "data", "loss", "entry", "dtype", "batch_size",
    "seed", "device", "threads", "registry",
)  # fmt: skip


def analysis(samples: int) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that adds the shared options, with a default number of samples."""
    amount = click.option(
        "--samples",
        metavar="N|all",
        callback=lambda _context, _option, text: text or f"default {samples}",
        help=f"Samples to analyse on, a fixed draw. [default: {samples}; all of your own --data]",
    )

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        for option in (amount, *reversed(_OPTIONS)):
            function = option(function)
        return function

    return decorate


def problems(
    checkpoints: tuple[str, ...],
    samples: str,
    split: Any,
    data_dir: Path | None,
    model: str | None,
    data: str | None,
    loss: str | None,
    entry: str,
    dtype: str,
    batch_size: int,
    seed: int,
    device: str,
    threads: int | None,
    registry: Path,
) -> list[Problem]:
    """Return one problem per checkpoint; without any, the registry's newest run.

    Raises:
        UserError: a checkpoint, its data, or the device cannot be had.
    """
    source = Source(
        samples=_count(samples, own=bool(data)),
        split=split,
        data_dir=data_dir,
        model=model,
        data=data,
        loss=loss,
        entry=entry,
        dtype=getattr(torch, dtype),
        device=options.use_device(device, threads),
        batch_size=batch_size,
        seed=seed,
    )
    store = Registry(registry)
    paths = [checkpoint_path(store, reference, own=bool(model)) for reference in checkpoints or (None,)]
    found = load(paths, source)
    for problem in found:
        for note in problem.notes:
            console.note(f"{problem.path}: {note}")
    return found


def checkpoint_path(store: Registry, reference: str | None, *, own: bool) -> Path:
    """Return the checkpoint; with a network of one's own it may be a folder too."""
    if own and reference is not None and Path(reference).exists():
        return Path(reference)
    return store.resolve(reference)


def _count(samples: str, *, own: bool) -> int | None:
    default = samples.startswith("default ")
    if samples == "all" or (default and own):
        return None
    samples = samples.removeprefix("default ")
    if not re.fullmatch("[0-9]{1,12}", samples) or int(samples) < 1:
        raise UserError(f"--samples takes a number from 1 up, or all, not {samples!r}")
    return int(samples)
