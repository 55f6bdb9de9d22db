"""How often nominal intervals cover the truth: repeated draws from a population whose Hessian is known.

A small BatchNorm net is trained on the digits; a finite population of samples is then all there is, so the
mean of their Hessians is the truth, and a draw with replacement from it is an independent sample. A row of
the table is a quantity with its estimate from an operator (intervals) and its values on the population.

Symbols: P samples in the population, n parameters, B batches in a draw.
"""

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.func import functional_call, hessian, vmap
from torch.nn.functional import cross_entropy, embedding_bag

from fedscope.landscape.operators.adapters import LambdaOperator
from fedscope.landscape.operators.algebra.exports import Blocks
from fedscope.landscape.operators.base import Operator, Product, runs
from tests import tiers
from tests.tiers import NOMINAL as NOMINAL

DRAWS = tiers.draws(most=100)  # repetitions; the documented shares are of 300
SLACK = tiers.slack(DRAWS)
TENSORS = (27, 3, 3, 135, 5, 5, 5, 50, 10)  # lengths of the net's parameters
Interval = tuple[float, float]


class BatchMatrices(Operator):
    """The mean of B dense symmetric matrices of equal weight, each that of a batch of ``samples``."""

    def __init__(self, matrices: Tensor, samples: int, *, blocks: Blocks | None = None) -> None:
        super().__init__(
            matrices.shape[-1],
            blocks=blocks,
            dtype=matrices.dtype,
            device="cpu",
            weights=(samples,) * len(matrices),
        )
        self._matrices = matrices

    def trace(self) -> float:
        """The exact trace."""
        return float(self._matrices.mean(0).trace())

    def diagonal_parts(self, probes: Tensor, most: int) -> Tensor:
        """Those of runs of batches."""
        parts = probes[:, None] * (self._matrices @ probes.T).permute(2, 0, 1)  # (m, B, n)
        return torch.stack([parts[:, list(run)].mean(1) for run in runs(len(self._matrices), most)], 1)

    def _apply(self, rows: Tensor, onto: Tensor | None) -> list[Product]:
        images = (self._matrices @ rows.T).mT  # (B, m, n)
        forms = (images * rows).sum(2)
        projections = None if onto is None else images @ onto.T  # (B, m, r)
        return [
            Product(vector, forms[:, i], None if projections is None else projections[:, i])
            for i, vector in enumerate(images.mean(0))
        ]


@dataclass(frozen=True)
class Population:
    """The Hessians of P samples at the weights of a trained net: (P, n, n) float64."""

    hessians: Tensor

    @property
    def mean(self) -> Tensor:
        """The truth: (n, n)."""
        return self.hessians.mean(0)

    def draw(self, seed: int, batches: int = 16, samples: int = 32) -> BatchMatrices:
        """Return the operator of ``batches``·``samples`` independent draws."""
        generator = torch.Generator().manual_seed(seed)
        rows = torch.randint(len(self.hessians), (batches, samples), generator=generator)
        means = embedding_bag(rows, self.hessians.flatten(1), mode="mean")  # without a copy of the samples
        return BatchMatrices(means.view(batches, *self.hessians.shape[1:]), samples)

    def whole(self) -> LambdaOperator:
        """Return the operator of all, in which only an estimate's probes are random."""
        mean = self.mean
        blocks = tuple((str(i), length) for i, length in enumerate(TENSORS))
        return LambdaOperator(lambda v: mean @ v, len(mean), blocks=blocks)


@dataclass(frozen=True)
class Row:
    """A quantity: its intervals from an operator and a seed, and its values for the population's matrix."""

    name: str
    estimate: Callable[[Operator, int], Sequence[Interval]]
    truth: Callable[[Tensor], Sequence[float]]


def shares(
    rows: Iterable[Row], mean: Tensor, operator: Callable[[int], Operator], repetitions: int = DRAWS
) -> dict[str, float]:
    """Return for each row the share of its intervals, over all seeds, that hold the truth.

    Args:
        rows: what is estimated, all of it from the same operator.
        mean: the population's matrix.
        operator: of a seed.
        repetitions: seeds.
    """
    truths = {row.name: (row, row.truth(mean)) for row in rows}
    hits = dict.fromkeys(truths, 0)
    for seed in range(repetitions):
        op = operator(seed)
        for name, (row, truth) in truths.items():
            found = row.estimate(op, seed)
            hits[name] += sum(low <= value <= high for (low, high), value in zip(found, truth, strict=True))
    return {name: hits[name] / repetitions / len(truth) for name, (_, truth) in truths.items()}


def trained_population(size: int = 800, steps: int = 300) -> Population:
    """Return the population of a convolutional BatchNorm net, 243 parameters, trained on part of it."""
    torch.manual_seed(0)
    images, labels = load_digits(return_X_y=True)
    order = torch.randperm(len(labels))
    inputs = torch.tensor(images)[order].reshape(-1, 1, 8, 8) / 16
    targets = torch.tensor(labels)[order]
    model = nn.Sequential(
        nn.Conv2d(1, 3, 3, stride=2, bias=False), nn.BatchNorm2d(3), nn.GELU(), nn.Flatten(),
        nn.Linear(27, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, 10),
    ).double()  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(steps):
        rows = torch.randint(size, (64,))
        optimizer.zero_grad()
        cross_entropy(model(inputs[rows]), targets[rows]).backward()
        optimizer.step()
    model.eval()
    return Population(sample_hessians(model, inputs[:size], targets[:size]))


def sample_hessians(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    """Return the Hessian of cross-entropy of each sample, (R, n, n) float64."""
    named = {name: p.detach() for name, p in model.named_parameters()}
    lengths = [p.numel() for p in named.values()]
    weights = torch.cat([p.flatten() for p in named.values()])

    def loss(flat: Tensor, image: Tensor, target: Tensor) -> Tensor:
        pieces = zip(named.items(), flat.split(lengths), strict=True)
        parameters = {name: piece.view(p.shape) for (name, p), piece in pieces}
        return cross_entropy(functional_call(model, parameters, (image[None],)), target[None])

    of_sample = vmap(hessian(loss), in_dims=(None, 0, 0), chunk_size=4)
    with warnings.catch_warnings():
        # PyTorch's own forward-mode rules still go through its deprecated jit.
        warnings.filterwarnings("ignore", "`torch.jit.script` is deprecated", DeprecationWarning)
        matrices: Tensor = of_sample(weights, inputs, targets)
    return matrices
