"""A data set as the trainer and the analysis use it: splits of images and labels, and their fingerprint."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from fedscope.data.reading.anew import Anew
from fedscope.errors import UserError
from fedscope.factories import imported
from fedscope.streams import torch_stream
from fedscope.task_loss import IGNORED, Loss, TaskLoss

if TYPE_CHECKING:
    from fedscope.data.augment import Pipeline
    from fedscope.data.reading.encoded_images import Files

SPLITS = ("train", "test", "validation")
TRIED = 2  # samples: enough for a BatchNorm without positions


@dataclass(frozen=True)
class Split:
    """Images and labels of one split, and for a data set of several domains where each image is from.

    Data of the user's own have inputs of any shape, float32 or int64, as ``images``. Of text they are
    sequences of tokens, (N, T), with the tokens that follow as ``targets``; a label is then the topic.
    """

    images: "Tensor | Files | Anew"  # (N, C, H, W) uint8, decoded or to be decoded when a batch is fetched
    labels: Tensor  # (N,) int64
    domains: Tensor | None = None  # (N,) int64, index into the data set's domains
    clients: Tensor | None = None  # (N,) int64, the client of each, where the data come divided
    targets: Tensor | None = None  # (N, …): what is predicted where that is no class; None: the label
    loss: Loss | None = None  # the user's own; None: cross-entropy

    @property
    def wanted(self) -> Tensor:
        """What the loss compares the outputs with, (N,) or (N, …)."""
        return self.labels if self.targets is None else self.targets

    @property
    def task_loss(self) -> TaskLoss:
        """The loss whose mean over the split is that over its samples, or over all of its tokens."""
        if self.targets is None or self.loss is not None:
            return TaskLoss(own=self.loss)
        return TaskLoss(int((self.targets != IGNORED).sum()) / len(self))

    def __len__(self) -> int:
        return len(self.labels)

    def to(self, device: torch.device | str) -> "Split":
        """Return the split on ``device``; images in files stay there until they are fetched."""
        return self._with_each(lambda part: part.to(device) if isinstance(part, Tensor) else part)

    def take(self, rows: Tensor) -> "Split":
        return self._with_each(lambda part: part[rows])

    def _with_each(self, function: Callable[[Any], Any]) -> "Split":
        names = ("images", "labels", "domains", "clients", "targets")
        parts = {name: part for name in names if (part := getattr(self, name)) is not None}
        return replace(self, **{name: function(part) for name, part in parts.items()})

    def batch(self, pipeline: "Pipeline", rows: Tensor, draws: Tensor) -> tuple[Tensor, Tensor]:
        """Return the inputs of ``rows`` (K, B), augmented by ``draws`` (D, K, B), and what is wanted of them.

        Inputs are (K·B, …), and what is wanted (K, B, …).
        """
        if isinstance(self.images, Anew) and len(draws):
            inputs, targets = self.images.fetch(rows.flatten(), draws.flatten())
            return inputs, targets.unflatten(0, rows.shape)
        return pipeline.train(self.images, rows.flatten(), draws.flatten(1)), self.wanted[rows]


@dataclass(frozen=True)
class Dataset:
    """A data set: its splits, class names, domains if it has any, and the SHA-256 of everything in it."""

    name: str
    classes: tuple[str, ...]
    train: Split
    test: Split
    fingerprint: str
    note: str = ""  # such as shards that are missing
    domains: tuple[str, ...] = ()
    validation: Split | None = None

    @property
    def least_outputs(self) -> int:
        """How many outputs a network needs: the classes; where something else is predicted, one."""
        return len(self.classes) if self.train.targets is None else 1

    def with_loss(self, reference: str | None) -> "Dataset":
        if reference is None:
            return self
        loss = imported(reference, "--loss")
        train, test = (replace(split, loss=loss) for split in (self.train, self.test))
        validation = self.validation and replace(self.validation, loss=loss)
        return replace(self, train=train, test=test, validation=validation)

    def tried(self, pipeline: "Pipeline") -> tuple[Tensor, Tensor, TaskLoss]:
        """Return the first inputs and what is wanted of them, on which a network is tried, and the loss."""
        rows = torch.arange(min(TRIED, len(self.train)))
        return pipeline.test(self.train.images, rows), self.train.wanted[rows], self.train.task_loss


def part(split: Split, count: int | None, seed: int, purpose: str) -> Tensor:
    """Return the rows of ``split`` that a run with ``seed`` uses, ascending: all, or a draw of ``count``."""
    if count is None:
        return torch.arange(len(split))
    if count > len(split):
        raise UserError(f"--{purpose}-samples {count} is more than the {len(split)} there are; lower it")
    order = torch.randperm(len(split), generator=torch_stream(seed, f"{purpose} part"))
    return order[:count].sort().values


def fingerprint(*splits: Split, domains: tuple[str, ...] = ()) -> str:
    """Return the SHA-256 of the splits' shapes, images, labels, domains, clients and targets."""
    digest = hashlib.sha256("".join(f"{name}\0" for name in domains).encode())
    for split in splits:
        digest.update(str(tuple(split.images.shape)).encode())
        if isinstance(split.images, Tensor | Anew):
            images = split.images if isinstance(split.images, Tensor) else split.images.kept
            digest.update(images.contiguous().numpy().data)
        else:
            digest.update(split.images.digest.encode())
        digest.update(split.labels.contiguous().numpy().data)
        for part in (split.domains, split.clients, split.targets):
            if part is not None:
                digest.update(part.contiguous().numpy().data)
    return digest.hexdigest()
