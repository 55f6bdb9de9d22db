"""From a checkpoint, or a user's own model and data, to what the analysis takes: a model, a loss and batches.

With participants.py the one module here that knows checkpoints, models and data. The samples are a fixed
draw without replacement, in a fixed order and without augmentation, the same for every checkpoint of a data
set at a given seed.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedscope.checkpoints.files import Checkpoint, content_hash, load_checkpoint
from fedscope.checkpoints.fitting import fit
from fedscope.checkpoints.foreign import read
from fedscope.checkpoints.owned import data_note, names, network_note
from fedscope.checkpoints.schema import UNKNOWN, CheckpointInfo
from fedscope.data import catalogue as data_catalogue
from fedscope.data.datasets import Split, part
from fedscope.data.shift import run_maps
from fedscope.errors import UserError
from fedscope.factories import called, imported, reason
from fedscope.landscape.batches import Batches
from fedscope.landscape.flatloss import LossFunction
from fedscope.landscape.meanloss import NoMeanError, check_mean
from fedscope.landscape.trees import Tree, joined, some
from fedscope.models import catalogue as model_catalogue
from fedscope.models import own
from fedscope.own import is_own
from fedscope.streams import torch_stream

MOST = 128  # samples of a batch, unless another number is asked for
LEAST_BATCHES = 16
SplitName = Literal["train", "test"]


@dataclass(frozen=True)
class Source:
    """Which samples to analyse on, and how."""

    samples: int | None = None  # None: all
    split: SplitName = "train"
    data_dir: Path | None = None
    model: str | None = None  # MODULE:FACTORY of the user's own network
    data: str | None = None  # MODULE:FACTORY of the user's own (inputs, targets) batches
    loss: str | None = None  # MODULE:FUNCTION of (output, targets); None: cross-entropy
    named: tuple[str | None, ...] = ()  # what the checkpoint names too, and may be run on the user's word
    entry: str = ""  # which of several networks in the file
    dtype: torch.dtype = torch.float32
    device: torch.device = torch.device("cpu")  # noqa: RUF009 (immutable)
    batch_size: int | None = None  # None: 128, of one's own data fewer where that makes 16 batches
    seed: int = 0

    def batch_of(self, samples: int) -> int:
        """Return how many of so many samples make a batch.

        The data's error bars come from the spread between batches, so that small data of one's own is cut
        into 16 at least; a run's checkpoints are measured alike whatever their number of samples.
        """
        most = max(1, samples // LEAST_BATCHES) if self.data else MOST
        return self.batch_size or min(MOST, most)


@dataclass(frozen=True)
class Problem:
    """A network with its weights, the loss, and the samples; and what the results say about them."""

    model: nn.Module
    loss_fn: LossFunction
    batches: Batches
    source: Source
    path: Path
    sha256: str
    info: CheckpointInfo | None  # None for a plain state_dict
    notes: tuple[str, ...] = ()  # what was renamed or left out of another program's file

    @property
    def title(self) -> str:
        """What progress calls it: RUN@ROUND, with its client or average; else the file's name."""
        if self.info is None:
            return self.path.stem
        which = f" client {self.info.client}" if self.info.client is not None else ""
        return f"{self.info.run}@{self.info.round}{which}"

    @property
    def method(self) -> str | None:
        """The method that trained a registered run, if it is known."""
        return self.info.settings.method if self.info and self.info.settings.method != UNKNOWN else None

    @cached_property
    def checkpoint(self) -> dict[str, object]:
        """Which weights these are, for a result's ``checkpoint`` entry."""
        return checkpoint_entry(self.path, self.sha256, self.info)

    @cached_property
    def description(self) -> dict[str, object]:
        """Network, data and precision, for a result's ``problem`` entry."""
        own = self.source
        return {
            "model": self.info.model.name if self.info else own.model,
            "method": self.method,
            "dataset": self.info.data.name if self.info else own.data,
            **({"loss": own.loss} if own.loss else {}),
            "split": own.split if self.info else None,
            "samples": self.batches.samples,
            "batch_size": max(self.batches.sizes),
            "dtype": str(own.dtype).removeprefix("torch."),
            "seed": own.seed,
            "device": str(own.device),
            "threads": torch.get_num_threads(),
        }


def checkpoint_entry(path: Path, sha256: str, info: CheckpointInfo | None) -> dict[str, object]:
    """Return which weights a file holds; without ``info`` those of a plain state_dict."""
    named = ("run", "round", "client", "average")
    about = {name: getattr(info, name) if info else None for name in named}
    return {"path": str(path), "sha256": sha256, **about}


def load(paths: Sequence[Path], source: Source) -> list[Problem]:
    """Build the problems of several checkpoints, all on the same samples.

    Raises:
        UserError: a file, its network or its data cannot be had; the message says how to mend it.
    """
    if not source.loss and all(names(path, source.model, source.data) for path in paths):
        named = replace(source, model=None, data=None, named=(source.model, source.data))
        return [_registered(path, named) for path in paths]
    if not (source.model and source.data):
        raise UserError(
            "--model and --data go together, with --loss if it is not cross-entropy: MODULE:FACTORY for the "
            "network and for its batches"
        )
    batches = _own_batches(source)
    return [_own(path, source, batches) for path in paths]


def _registered(path: Path, source: Source) -> Problem:
    checkpoint = load_checkpoint(path)
    _check_known(checkpoint)
    data = data_of(checkpoint.info, source)
    batches = data.batches(checkpoint.info, source, data.used[draw(len(data.used), source)])
    model = network(checkpoint, source)
    info = checkpoint.info
    notes = tuple(filter(None, (network_note(info, source.named), data_note(info, source.named))))
    return Problem(model, cross_entropy, batches, source, path, checkpoint.sha256, info, notes)


def _check_known(checkpoint: Checkpoint) -> None:
    spec, data = checkpoint.info.model, checkpoint.info.data
    if spec.classes is None or not data.fingerprint:
        raise UserError(
            f"{checkpoint.path} is of the network {spec.name} on {data.name}, which fedscope lacks; add "
            "--model MODULE:FACTORY and --data MODULE:FACTORY"
        )


def network(checkpoint: Checkpoint, source: Source) -> nn.Module:
    """Return the checkpoint's network with its weights, in eval mode.

    Raises:
        UserError: the weights do not fit it.
    """
    network_note(checkpoint.info, source.named)  # before any of its code is run
    spec = checkpoint.info.model.model_dump(exclude={"source"})
    model = model_catalogue.build(**spec, generator=torch.Generator())
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
        batch_size = source.batch_of(len(labels))
        return Batches(inputs, labels, batch_size).to(source.device, source.dtype)

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
    data_note(info, source.named)  # before any of its code is run
    dataset = data_catalogue.load(info.data.name, source.data_dir, info.settings.test_data)
    split = dataset.train if source.split == "train" else dataset.test
    if dataset.fingerprint != info.data.fingerprint:
        mend = "let it make the same" if is_own(info.data.name) else "point --data-dir at the same files"
        raise UserError(
            f"{info.data.name} here is not the data the checkpoint was trained on ({len(dataset.train)} "
            f"training samples, {info.data.train_samples} then); {mend}"
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
    model, notes, sha256 = own_network(path, source)
    loss_fn = imported(source.loss, "--loss") if source.loss else cross_entropy

    def named(output: Any, targets: Tree) -> Tensor:
        try:
            return loss_fn(output, targets)
        except Exception as error:  # whatever the user's loss raises
            name = source.loss or "cross-entropy (give another with --loss)"
            raise UserError(f"the first batch of {source.data} fails in {name}: {reason(error)}") from error

    try:
        check_mean(model, named, batches)
    except NoMeanError:
        if source.batch_size or batches.samples > MOST:
            raise
        whole = [tuple(joined(list(parts)) for parts in zip(*batches, strict=True))]
        batches = Batches.from_iterable(whole)
        notes = (*notes, f"the loss is no mean over samples: all {batches.samples} are one batch")
    except UserError:
        raise
    except Exception as error:  # whatever the user's network raises
        raise UserError(
            f"the first batch of {source.data} fails in {source.model}: {reason(error)}"
        ) from error
    return Problem(model, loss_fn, batches, source, path, sha256, None, notes)


def own_network(path: Path, source: Source) -> tuple[nn.Module, tuple[str, ...], str]:
    """Return the user's network with the weights of ``path``, what was renamed, and their content hash.

    Raises:
        UserError: there is no such network, or the weights do not fit it.
    """
    model = own.network(str(source.model))
    fitted = fit(read(path), model.state_dict(keep_vars=True), str(path), entry=source.entry)
    return _filled(model, fitted.state, source, path), fitted.notes, content_hash(fitted.state)


def _own_batches(source: Source) -> Batches:
    loader = called(str(source.data), "--data")
    try:
        batches = Batches.from_iterable(loader)
    except UserError:
        raise
    except Exception as error:  # whatever the user's loader raises
        raise UserError(f"--data {source.data}: {reason(error)}") from error
    try:
        inputs, targets = joined(list(batches))
    except UserError:  # padded to a length of their own, say: they can be taken as they are
        if source.samples or source.batch_size:
            raise
        return batches.to(source.device, source.dtype)
    rows = draw(batches.samples, source)
    inputs, targets = (some(part, rows) for part in (inputs, targets))
    return Batches(inputs, targets, source.batch_of(len(rows))).to(source.device, source.dtype)
