"""The samples of a checkpoint's run: which to analyse on, and which rows each client held.

The samples are a fixed draw without replacement, in a fixed order and without augmentation unless it is asked
for, the same for every checkpoint of a data set at a given seed. Rows are those that the run stored; of a run
that stored none they are drawn again from its settings.
"""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from fedscope.checkpoints.file import layout
from fedscope.checkpoints.file.schema import CheckpointInfo
from fedscope.checkpoints.registry.client_rows import ClientRows, rows_trained_on
from fedscope.checkpoints.registry.owned import data_note, is_data_place, is_place, others
from fedscope.checkpoints.registry.run_registry import RunFolder
from fedscope.choices import BatchNormMode, SplitName
from fedscope.data.loading.datasets import Split, part
from fedscope.data.partition.division import divided
from fedscope.data.partition.shift import run_maps
from fedscope.data.reading.anew import Anew
from fedscope.data.sets import dataset_catalogue as data_catalogue
from fedscope.errors import UserError
from fedscope.landscape.loss.batches import Batches
from fedscope.own import digest, is_own
from fedscope.own_rows import DRAWN
from fedscope.streams import torch_stream

MOST = 128  # samples of a batch, unless another number is asked for
LEAST_BATCHES = 16


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
    batch_size: int | None = None  # None: 128, of the user's own data fewer where that makes 16 batches
    seed: int = 0
    augment: bool = False  # once, by the run's own pipeline; the samples stay fixed
    normalisation: str | None = None  # the pipeline whose constants images get; None: the run's own
    bn: BatchNormMode = "eval"  # whether the statistics of the weights are read

    def batch_of(self, samples: int) -> int:
        """Return how many of so many samples make a batch.

        The data's error bars come from the spread between batches, so that small data of the user's own is
        cut into 16 at least; a run's checkpoints are measured alike whatever their number of samples.
        """
        most = max(1, samples // LEAST_BATCHES) if self.data else MOST
        return self.batch_size or min(MOST, most)

    def placed(self, info: CheckpointInfo) -> CheckpointInfo:
        """Return the description with the places that the user has named of pretrained network and data."""
        named = tuple(filter(None, self.named))
        model = next((name for name in named if is_place(name, info.model)), info.model.name)
        spec = info.model.model_copy(update={"name": model})
        data = next((name for name in named if is_data_place(name, info)), info.data.name)
        if data == info.data.name:
            return info.model_copy(update={"model": spec})
        there = {"name": data, "source": digest(data, *others(info))}  # a hash has the file's name in it
        return info.model_copy(update={"model": spec, "data": info.data.model_copy(update=there)})


@dataclass(frozen=True)
class Data:
    """A split of a run's data set."""

    split: Split
    classes: tuple[str, ...]
    used: Tensor  # rows that the run uses, ascending

    def batches(self, info: CheckpointInfo, source: Source, rows: Tensor, *, population: int) -> Batches:
        """Return ``rows``, a draw from ``population`` rows, labelled as in the checkpoint's round.

        Where the source says so, each is augmented once, as in training.
        """
        named = source.normalisation or info.data.augmentation
        pipeline = data_catalogue.pipeline(info.data.name, named)[1]
        if source.augment:
            draws = pipeline.draw(len(rows), torch_stream(source.seed, "analysis augmentation"))
            inputs = pipeline.train(self.split.images, rows, draws)
        else:
            inputs = pipeline.test(self.split.images, rows)
        wanted = self.labels(info) if self.split.targets is None else self.split.targets
        batch_size = source.batch_of(len(rows))
        batches = Batches(inputs, wanted[rows], batch_size, population=population)
        if isinstance(self.split.images, Anew):
            batches.notes = (DRAWN,)
        return batches.to(source.device, source.dtype)

    def labels(self, info: CheckpointInfo) -> Tensor:
        """Return what all labels of the split were called in the checkpoint's round, under concept shift."""
        settings = info.settings
        if settings.shift == "none":
            return self.split.labels
        if not info.labels:  # of a run that stored none
            maps = run_maps(
                len(self.classes), settings.rounds, settings.seed, settings.shift_sequence, settings.shift,
                settings.shift_probability,
            )  # fmt: skip
            return torch.from_numpy(maps)[max(1, info.round) - 1][self.split.labels]
        classes = len(self.classes)
        if len(info.labels) != classes or not set(info.labels) <= set(range(classes)):
            raise UserError(f"{info.run} relabels other classes than the {classes} there are")
        return torch.tensor(info.labels)[self.split.labels]


def data_of(path: Path, info: CheckpointInfo, source: Source) -> Data:
    """Return the split to analyse on, and the part of it that the checkpoint's run uses.

    A run that held rows out of training is analysed on the others, or with split ``validation`` on these.
    """
    data_note(info, source.named)  # before any of its code is run
    test, loss = info.settings.test_data, info.settings.loss
    dataset = data_catalogue.load(info.data.name, source.data_dir, test, info.model.name, loss)
    if dataset.fingerprint != info.data.fingerprint:
        mend = "let it make the same" if is_own(info.data.name) else "point --data-dir at the same files"
        raise UserError(
            f"{info.data.name} here is not the data the checkpoint was trained on ({len(dataset.train)} "
            f"training samples, {info.data.train_samples} then); {mend}"
        )
    settings, seed = info.settings, info.settings.seed  # a run on a part of the data is analysed on that part
    if source.split == "test":
        count = settings.test_samples if settings.evaluate_on == "test" else None
        return Data(dataset.test, dataset.classes, part(dataset.test, count, seed, "test"))
    if source.split == "validation" and not settings.validation:
        if dataset.validation is None:
            raise UserError(f"{info.run} held out no validation split; use --split test")
        count = settings.test_samples if settings.evaluate_on == "validation" else None
        return Data(dataset.validation, dataset.classes, part(dataset.validation, count, seed, "test"))
    used = part(dataset.train, settings.train_samples, seed, "train")
    if settings.validation:
        held_out = torch.from_numpy(rows_of(path, info, dataset.train).validation)
        used = held_out if source.split == "validation" else used[~torch.isin(used, held_out)]
    return Data(dataset.train, dataset.classes, used)


def rows_of(path: Path, info: CheckpointInfo, split: Split) -> ClientRows:
    """Return the rows of the training split that the clients held in the round that ``info`` is of."""
    folder, round = layout.run_of(path), max(1, info.round)
    return rows_trained_on(
        RunFolder(folder) if folder else None,
        info.rows,
        lambda: ClientRows.from_tensors(*divided(split, info.settings, round)),
        round=round,
        size=len(split),
        versions=info.versions,
    )


def draw(available: int, source: Source, client: int = 0) -> Tensor:
    """Return which samples to analyse on, ascending: all, or a draw without replacement by the seed."""
    if source.samples is None or source.samples >= available:
        return torch.arange(available)
    order = torch.randperm(available, generator=torch_stream(source.seed, "analysis samples", 0, client))
    return order[: source.samples].sort().values
