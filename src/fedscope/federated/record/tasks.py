"""A client's task in a round, and what it sends back."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import Literal

import torch
from torch import Tensor

from fedscope.choices import Precision
from fedscope.federated.record.options import Weights


@dataclass(frozen=True)
class LocalSettings:
    """How a client optimises."""

    epochs: int
    batch_size: int
    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0
    clip: float | None = None
    precision: Precision = "fp32"
    compile: bool = False
    drop_last: bool = False
    weights: Weights = "n_k"
    optimizer_state: Literal["round", "client"] = "round"
    limit: int | None = None  # of an epoch's steps: a truncated run
    local_steps: int | None = None  # of a round, instead of the steps of its epochs
    optimizer: Literal["sgd", "adam", "adamw"] = "sgd"
    beta1: float = 0.9  # of Adam: decay of the mean of the gradients
    beta2: float = 0.999  # of Adam: decay of the mean of their squares
    eps: float = 1e-8  # of Adam: beside the root of that

    def steps(self, samples: float) -> int:
        """Return the local steps of one epoch over ``samples``; fewer than a batch make one step."""
        whole = int(samples // self.batch_size)
        steps = max(1, whole) if self.drop_last else -int(-samples // self.batch_size)
        return min(steps, self.limit or steps)

    def round_steps(self, samples: float, work: int | None = None) -> int:
        if self.local_steps:
            return work or self.local_steps
        return (work or self.epochs) * self.steps(samples)

    def weight(self, samples: int) -> int:
        """Return p_k of a client of ``samples`` before it is divided by the sum over the participants."""
        return {"n_k": samples, "n_used": self.used(samples), "uniform": 1}[self.weights]

    def used(self, samples: int) -> int:
        """Return how many of ``samples`` an epoch uses: whole batches under ``drop_last``, or all."""
        return min(samples, self.steps(samples) * self.batch_size)


def _no_stream(name: str) -> torch.Generator:
    raise ValueError(f"the method draws from {name!r}: give the task its random streams")


@dataclass(frozen=True)
class Task:
    """One client's part in a round: its rows, random streams, share n_k·N/n, and what it remembers."""

    rows: Tensor  # (n_k,) int64
    order: torch.Generator
    augmentation: torch.Generator
    relative_size: float = 1.0
    memory: Tensor | None = None  # (M,), the row of its vectors; None: never sampled before
    took_part_last_round: bool = False  # whether it also took part in the round before
    random: Callable[[str], torch.Generator] = _no_stream  # the method's own streams
    # (P+Q,): the model at which its own memory begins; None: the run's first
    initial: Callable[[], Tensor | None] = lambda: None
    work: int | None = None  # its epochs, or under ``local_steps`` its steps; None: those of the settings
    keep: range = range(0)  # local steps, counted from 1, after which its model is kept


@dataclass(frozen=True)
class Client:
    """A client's data as it is, without augmentation, and its random streams."""

    labels: Tensor  # (n_k,)
    inputs: Callable[[slice], Tensor]  # of some of its samples, (b, C, H, W), normalised
    random: Callable[[str], torch.Generator] = _no_stream

    def batches(self, size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield inputs (b, C, H, W) and labels (b,) of up to ``size`` samples, in order."""
        for start in range(0, len(self.labels), size):
            part = slice(start, start + size)
            yield self.inputs(part), self.labels[part]


@dataclass(frozen=True)
class Trained:
    """What K clients of a stack send back."""

    values: Tensor  # (K, P+Q): w_k and the floating buffers
    memory: Tensor  # (K, M)
    uploads: Tensor  # (K, U)
    counters: Tensor  # (n,) int64: the integer buffers
    loss: Tensor  # (K,) float64: cross-entropy alone, mean over the last local epoch
    accuracy: Tensor  # (K,) float64: on the client's own data, where it recalibrates; else NaN
    gradients: Tensor  # (K,) int64: of the task loss on a mini-batch, computed in the local steps
    observed: Tensor  # (K, T) float64: what the steps showed, see ``client.observations``
    inside: Tensor  # (S, P+Q): models after local steps that are kept, step by step and client by client
    inside_counters: Tensor  # (S, n) int64: the integer buffers of these

    @classmethod
    def empty(
        cls,
        counts: tuple[int, int],
        widths: tuple[int, int, int],
        observed: int,
        counters: Tensor,
        dtype: torch.dtype,
    ) -> "Trained":
        """Return the place for what clients send, on the CPU: ``counts``: K and S; ``widths``: P+Q, M, U."""
        count, kept = counts
        values, memory, uploads = (torch.empty(count, width, dtype=dtype) for width in widths)
        loss, accuracy = torch.empty(2, count, dtype=torch.float64)
        gradients, seen = (
            torch.empty(count, dtype=torch.int64),
            torch.empty(count, observed, dtype=torch.float64),
        )
        counted = torch.empty_like(counters, device="cpu")
        inside, counted_inside = torch.empty(kept, widths[0], dtype=dtype), counted.expand(kept, -1).clone()
        return cls(values, memory, uploads, counted, loss, accuracy, gradients, seen, inside, counted_inside)

    @property
    def parts(self) -> tuple[Tensor, ...]:
        return tuple(getattr(self, place.name) for place in fields(self))

    def on_cpu(self) -> "Trained":
        return Trained(*(part.cpu() for part in self.parts))
