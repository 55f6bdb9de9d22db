"""From a checkpoint, or a user's own model and data, to what the analysis takes: a model, a loss and batches.

The one module here that knows checkpoints, models and data. The samples are a fixed draw without
replacement, in a fixed order and without augmentation, the same for every checkpoint of a data set at a
given seed.
"""

import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedscope.checkpoints.files import content_hash, load_checkpoint, load_state_dict
from fedscope.checkpoints.registry import Run
from fedscope.checkpoints.schema import CheckpointInfo
from fedscope.data import catalogue as data_catalogue
from fedscope.errors import UserError
from fedscope.landscape.batches import Batches
from fedscope.models import catalogue as model_catalogue
from fedscope.streams import torch_stream

SplitName = Literal["train", "test"]


@dataclass(frozen=True)
class Source:
    """Which samples to analyse on, and how."""

    samples: int | None = 2048  # None: all
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
        return {"path": str(self.path), "sha256": self.sha256, "run": run, "round": round, "client": client}

    @cached_property
    def description(self) -> dict[str, object]:
        """Network, data and precision, for a result's ``problem`` entry."""
        own = self.source
        return {
            "model": self.info.model.name if self.info and not own.model else own.model,
            "method": self.info.settings.method if self.info else None,
            "dataset": own.data or (self.info.data.name if self.info else None),
            "split": None if own.data else own.split,
            "samples": self.batches.samples,
            "batch_size": max(self.batches.sizes),
            "dtype": str(own.dtype).removeprefix("torch."),
            "seed": own.seed,
        }


def load(path: Path, source: Source) -> Problem:
    """Build the problem of one checkpoint.

    Raises:
        UserError: the file, its network or its data cannot be had; the message says how to mend it.
    """
    if source.model or source.data:
        return _own(path, source)
    checkpoint = load_checkpoint(path)
    model = _network(checkpoint.info, checkpoint.state, source, path)
    batches = _samples(checkpoint.info, source)
    return Problem(model, cross_entropy, batches, source, path, checkpoint.sha256, checkpoint.info)


def clients(problem: Problem) -> Iterator[nn.Module]:
    """Yield the networks with each client's last upload, in client order, one at a time.

    Raises:
        UserError: the checkpoint belongs to no run with client checkpoints.
    """
    for path in client_files(problem):
        checkpoint = load_checkpoint(path)
        yield _network(checkpoint.info, checkpoint.state, problem.source, path)


def client_files(problem: Problem) -> list[Path]:
    """Return the client checkpoints of the problem's run, at least two.

    Raises:
        UserError: there are fewer.
    """
    folder = problem.path.parent
    files = Run(folder.parent if folder.name == "clients" else folder).clients()
    if len(files) < 2:
        raise UserError(
            f"cross-client metrics need two or more client checkpoints beside {problem.path}, found "
            f"{len(files)}; train with --save-clients last"
        )
    return files


def _network(info: CheckpointInfo, state: dict[str, Tensor], source: Source, path: Path) -> nn.Module:
    model = model_catalogue.build(**info.model.model_dump(), generator=torch.Generator())
    return _filled(model, state, source, path)


def _filled(model: nn.Module, state: dict[str, Tensor], source: Source, path: Path) -> nn.Module:
    try:
        model.load_state_dict(state)
    except RuntimeError as error:
        reason = " ".join(str(error).split("\n", 2)[1].split())[:200]
        raise UserError(f"{path} does not fit {type(model).__name__}: {reason}") from error
    return model.to(source.device, source.dtype).eval()


def _samples(info: CheckpointInfo, source: Source) -> Batches:
    dataset = data_catalogue.load(info.data.name, source.data_dir)
    split = dataset.train if source.split == "train" else dataset.test
    if dataset.fingerprint != info.data.fingerprint:
        raise UserError(
            f"{info.data.name} here is not the data the checkpoint was trained on ({len(dataset.train)} "
            f"training samples, {info.data.train_samples} then); point --data-dir at the same files"
        )
    images, labels = split.images, split.labels
    if source.samples is not None and source.samples < len(split):
        rows = torch.randperm(len(split), generator=torch_stream(source.seed, "analysis samples"))
        rows = rows[: source.samples].sort().values
        images, labels = images[rows], labels[rows]
    inputs = data_catalogue.pipeline(info.data.name, info.data.augmentation)[1].test(images)
    return Batches(inputs, labels, source.batch_size).to(source.device, source.dtype)


def _own(path: Path, source: Source) -> Problem:
    if not (source.model and source.data):
        raise UserError("--model and --data go together: MODULE:FACTORY for the network and for its batches")
    model, data = _call(source.model, "--model"), _call(source.data, "--data")
    if not isinstance(model, nn.Module):
        raise UserError(f"--model {source.model} returned {type(model).__name__}, not a torch.nn.Module")
    state = load_state_dict(path)
    model = _filled(model, state, source, path)
    batches = Batches.from_iterable(_first(data, source.samples)).to(source.device, source.dtype)
    return Problem(model, cross_entropy, batches, source, path, content_hash(state), None)


def _first(loader: Iterable[Any], samples: int | None) -> Iterator[Any]:
    """Yield whole batches until ``samples`` are reached; the last one is cut."""
    if samples is None:
        yield from loader
        return
    for batch in loader:
        yield tuple(part[:samples] for part in batch)
        samples -= len(batch[1])
        if samples <= 0:
            return


def _call(reference: str, flag: str) -> Any:
    """Call the factory at ``MODULE:FACTORY``; modules of the working directory are found too."""
    module, colon, name = reference.partition(":")
    if not colon:
        raise UserError(f"{flag} takes MODULE:FACTORY, such as mymodels:resnet, not {reference!r}")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        factory = getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise UserError(f"{flag} {reference}: {error}") from error
    return factory()
