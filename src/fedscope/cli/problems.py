"""What the options that the analysis commands share amount to: one problem per checkpoint."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from fedscope.checkpoints.file import layout
from fedscope.checkpoints.registry.best import chosen_on
from fedscope.checkpoints.registry.registry import Registry
from fedscope.cli import console
from fedscope.cli.unused import check_source
from fedscope.data.sets.catalogue import DATASETS
from fedscope.errors import UserError
from fedscope.models.catalogue import NETWORKS
from fedscope.process import use_device
from fedscope.workflows.sources.problem import Problem, load
from fedscope.workflows.sources.samples import Source


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
    batch_size: int | None,
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
        device=use_device(device, threads),
        batch_size=batch_size,
        seed=seed,
    )
    store = Registry(registry)
    paths = [checkpoint_path(store, reference, own=bool(model)) for reference in checkpoints or (None,)]
    _check_own(paths, model, data)
    found = load(paths, source)
    check_source(own=all(problem.info is None for problem in found))
    console.show(remarks(found, samples))
    return found


def remarks(found: Sequence[Problem], samples: str) -> list[console.Piece]:
    """Return what is to be said of the problems before they are measured."""
    lines = []
    for problem in found:
        if samples.isdecimal() and problem.batches.samples < int(samples):
            there = f"{problem.batches.samples:,} samples"
            lines.append(f"{problem.title}: on all {there}, fewer than --samples {int(samples):,}")
        if problem.info and problem.path.name == "best.pt":
            lines.append(f"{problem.title}: best (chosen on {chosen_on(problem.info.settings.model_dump())})")
        lines += [f"{problem.path}: {note}" for note in problem.notes]
    return [("note", line) for line in lines]


def _check_own(paths: Sequence[Path], model: str | None, data: str | None) -> None:
    """Refuse names of the catalogue for another program's file, whose network and data are functions."""
    foreign = [path for path in paths if not layout.is_ours(path)]
    for flag, name, known in (("--model", model, NETWORKS), ("--data", data, DATASETS)):
        if foreign and name in known:
            raise UserError(
                f"{flag} takes MODULE:FACTORY, a function of your own; for {name} of the catalogue register "
                f"the file: `fedscope runs add {foreign[0]} --model NAME --dataset NAME`, and name the run"
            )


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
