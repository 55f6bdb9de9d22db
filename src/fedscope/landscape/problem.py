"""From a checkpoint, or a user's own model and data, to what the analysis takes: a model, a loss and batches.

With participants.py the one module here that knows checkpoints, models and data. The samples are a fixed
draw without replacement, in a fixed order and without augmentation, the same for every checkpoint of a data
set at a given seed.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedscope.checkpoints.files import Checkpoint, content_hash, load_checkpoint, load_state_dict
from fedscope.checkpoints.schema import CheckpointInfo
from fedscope.data import catalogue as data_catalogue
from fedscope.data.datasets import Split, part
from fedscope.data.shift import run_maps
from fedscope.errors import UserError
from fedscope.landscape.batches import Batches
from fedscope.models import catalogue as model_catalogue
from fedscope.streams import torch_stream

SplitName = Literal["train", "test"]


@dataclass(frozen=True)
class Source:
    """Which samples to analyse on, and how."""

    samples: int | None = None  # None: all
    split: SplitName = "train"
    data_dir: Path | None = None
    model: str | None = None  # MODULE:FACTORY of the user's own network
    data: str | None = None  # MODULE:FACTORY of the user's own (inputs, targets) batches
    dtype: torch.dtype = torch.float32
    device: torch.device = torch.device("cpu")  # noqa: RUF009 (immutable)
    batch_size: int = 128
    seed: int = 0


@dataclass(frozen=True)
class Problem:
    """A network with its weights, the loss, and the samples; and what the results say about them."""

    model: nn.Module
    loss_fn: Callable[[Any, Any], Tensor]
    batches: Batches
    source: Source
    path: Path
    sha256: str
    info: CheckpointInfo | None  # None for a plain state_dict

    @property
    def title(self) -> str:
        """The method of a registered run, else the file's name."""
        return self.info.settings.method if self.info else self.path.stem

    @cached_property
    def checkpoint(self) -> dict[str, object]:
        """Which weights these are, for a result's ``checkpoint`` entry."""
        run, round = (self.info.run, self.info.round) if self.info else (None, None)
        client = self.info.client if self.info else None
        average = self.info.average if self.info else None
        return {
            "path": str(self.path), "sha256": self.sha256, "run": run, "round": round, "client": client,
            "average": average,
        }  # fmt: skip

    @cached_property
    def description(self) -> dict[str, object]:
        """Network, data and precision, for a result's ``problem`` entry."""
        own = self.source
        return {
            "model": self.info.model.name if self.info else own.model,
            "method": self.info.settings.method if self.info else None,
            "dataset": self.info.data.name if self.info else own.data,
            "split": own.split if self.info else None,
            "samples": self.batches.samples,
            "batch_size": max(self.batches.sizes),
            "dtype": str(own.dtype).removeprefix("torch."),
            "seed": own.seed,
            "device": str(own.device),
            "threads": torch.get_num_threads(),
        }


def load(paths: Sequence[Path], source: Source) -> list[Problem]:
    """Build the problems of several checkpoints, all on the same samples.

    Raises:
        UserError: a file, its network or its data cannot be had; the message says how to mend it.
    """
    if not (source.model or source.data):
        return [_registered(path, source) for path in paths]
    if not (source.model and source.data):
        raise UserError("--model and --data go together: MODULE:FACTORY for the network and for its batches")
    batches = _own_batches(source)
    return [_own(path, source, batches) for path in paths]


def _registered(path: Path, source: Source) -> Problem:
    checkpoint = load_checkpoint(path)
    data = data_of(checkpoint.info, source)
    batches = data.batches(checkpoint.info, source, data.used[draw(len(data.used), source)])
    model = network(checkpoint, source)
    return Problem(model, cross_entropy, batches, source, path, checkpoint.sha256, checkpoint.info)


def network(checkpoint: Checkpoint, source: Source) -> nn.Module:
    """Return the checkpoint's network with its weights, in eval mode.

    Raises:
        UserError: the weights do not fit it.
    """
    model = model_catalogue.build(**checkpoint.info.model.model_dump(), generator=torch.Generator())
    return _filled(model, checkpoint.state, source, checkpoint.path)


def _filled(model: nn.Module, state: dict[str, Tensor], source: Source, path: Path) -> nn.Module:
    try:
        model.load_state_dict(state)
    except RuntimeError as error:
        reason = " ".join(str(error).split("\n", 2)[1].split())[:200]
        raise UserError(f"{path} does not fit {type(model).__name__}: {reason}") from error
    return model.to(source.device, source.dtype).eval()


@dataclass(frozen=True)
class Data:
    """A split of a run's data set."""

    split: Split
    classes: int
    used: Tensor  # rows that the run uses, ascending

    def batches(self, info: CheckpointInfo, source: Source, rows: Tensor) -> Batches:
        """Return ``rows`` of the split without augmentation, labelled as in the checkpoint's round."""
        inputs = data_catalogue.pipeline(info.data.name, info.data.augmentation)[1].test(
            self.split.images, rows
        )
        labels = self.labels(info)[rows]
        return Batches(inputs, labels, source.batch_size).to(source.device, source.dtype)

    def labels(self, info: CheckpointInfo) -> Tensor:
        """Return what all labels of the split were called in the checkpoint's round, under concept shift."""
        settings = info.settings
        if settings.shift == "none":
            return self.split.labels
        maps = run_maps(
            self.classes, settings.rounds, settings.seed, settings.shift_sequence, settings.shift,
            settings.shift_probability,
        )  # fmt: skip
        return torch.from_numpy(maps)[info.round - 1][self.split.labels]


def data_of(info: CheckpointInfo, source: Source) -> Data:
    """Return the split to analyse on, and the part of it that the checkpoint's run uses.

    Raises:
        UserError: the data cannot be had, or is not what the checkpoint was trained on.
    """
    dataset = data_catalogue.load(info.data.name, source.data_dir)
    split = dataset.train if source.split == "train" else dataset.test
    if dataset.fingerprint != info.data.fingerprint:
        raise UserError(
            f"{info.data.name} here is not the data the checkpoint was trained on ({len(dataset.train)} "
            f"training samples, {info.data.train_samples} then); point --data-dir at the same files"
        )
    settings = info.settings  # a run on a part of the data is analysed on that part
    count = settings.train_samples
    if source.split == "test":
        count = settings.test_samples if settings.evaluate_on == "test" else None
    return Data(split, len(dataset.classes), part(split, count, settings.seed, source.split))


def draw(available: int, source: Source, client: int = 0) -> Tensor:
    """Return which samples to analyse on, ascending: all, or a draw without replacement by the seed."""
    if source.samples is None or source.samples >= available:
        return torch.arange(available)
    order = torch.randperm(available, generator=torch_stream(source.seed, "analysis samples", 0, client))
    return order[: source.samples].sort().values


def _own(path: Path, source: Source, batches: Batches) -> Problem:
    state = load_state_dict(path)
    model = own_network(path, state, source)
    inputs, targets = next(iter(batches))
    try:
        with torch.no_grad():
            cross_entropy(model(inputs), targets)
    except Exception as error:  # whatever the user's network, or its loss, raises
        raise UserError(
            f"the first batch of {source.data} fails in {source.model}: {_reason(error)}"
        ) from error
    return Problem(model, cross_entropy, batches, source, path, content_hash(state), None)


def own_network(path: Path, state: dict[str, Tensor], source: Source) -> nn.Module:
    """Return the user's own network with the weights of a plain state_dict, in eval mode.

    Raises:
        UserError: there is no such network, or the weights do not fit it.
    """
    model = _call(str(source.model), "--model")
    if not isinstance(model, nn.Module):
        raise UserError(f"--model {source.model} returned {type(model).__name__}, not a torch.nn.Module")
    return _filled(model, state, source, path)


def _own_batches(source: Source) -> Batches:
    try:
        batches = Batches.from_iterable(_call(str(source.data), "--data"))
    except UserError:
        raise
    except Exception as error:  # whatever the user's loader raises
        raise UserError(f"--data {source.data}: {_reason(error)}") from error
    inputs, targets = (torch.cat(parts) for parts in zip(*batches, strict=True))
    rows = draw(len(targets), source)
    return Batches(inputs[rows], targets[rows], source.batch_size).to(source.device, source.dtype)


def _call(reference: str, flag: str) -> Any:
    """Call the factory at ``MODULE:FACTORY``; modules of the working directory are found too."""
    module, _, name = reference.partition(":")
    if not (module and name):
        raise UserError(f"{flag} takes MODULE:FACTORY, such as mymodels:resnet, not {reference!r}")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        return getattr(import_module(module), name)()
    except Exception as error:  # whatever the user's module raises
        raise UserError(f"{flag} {reference}: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
