"""How often the intervals of H_N and H_D cover the truth: clients of a small net, their dense Hessians known.

A BatchNorm net is trained on the digits, then by each client from there on rows of its own, unevenly over the
classes. The truth is of the clients' dense Hessians at their weights, on all their rows. Either only the
probes repeat, or each client is measured on independent draws from its rows.

Symbols: K clients, R rows of one, n parameters.
"""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedscope.choices import Reading
from fedscope.landscape import CrossClient, LambdaOperator, cross_client
from fedscope.landscape.operators.algebra.exports import Blocks
from fedscope.landscape.operators.base import Operator

from .coverage import DRAWS, BatchMatrices, Interval, sample_hessians

CLIENTS, ROWS = 6, 128
Key = tuple[str, Reading]


@dataclass(frozen=True)
class Population:
    """K clients' Hessians of each row, (R, n, n) float64, and the lengths of the net's tensors."""

    samples: tuple[Tensor, ...]
    lengths: tuple[int, ...]

    @cached_property
    def hessians(self) -> Tensor:
        """(K, n, n)."""
        return torch.stack([one.mean(0) for one in self.samples])

    @property
    def blocks(self) -> Blocks:
        """The tensors' numbers and lengths."""
        return tuple((str(i), length) for i, length in enumerate(self.lengths))

    def whole(self, _: int) -> list[LambdaOperator]:
        """One operator per client, of all its rows."""
        return [
            LambdaOperator(lambda v, m=matrix: m @ v, len(matrix), blocks=self.blocks)  # type: ignore[misc]
            for matrix in self.hessians
        ]

    def draw(self, seed: int, batches: int = 16, samples: int = 16) -> list[BatchMatrices]:
        """One operator per client, of independent draws from its rows."""
        generator, found = torch.Generator().manual_seed(seed), []
        for one in self.samples:
            rows = torch.randint(len(one), (batches, samples), generator=generator)
            shares = torch.zeros(batches, len(one), dtype=one.dtype)
            shares.scatter_add_(1, rows, torch.full(rows.shape, 1 / samples, dtype=one.dtype))
            means = shares @ one.flatten(1)
            found.append(BatchMatrices(means.view(batches, *one.shape[1:]), samples, blocks=self.blocks))
        return found

    def truth(self) -> dict[Key, float]:
        """Return H_N and H_D over distinct pairs."""
        diagonals = self.hessians.diagonal(dim1=1, dim2=2)
        sums = torch.stack([part.sum(1) for part in diagonals.split(self.lengths, dim=1)], dim=1)
        readings: dict[Reading, Tensor] = {"parameter": diagonals, "tensor": sums}
        off = ~torch.eye(len(diagonals), dtype=torch.bool)
        found: dict[Key, float] = {}
        for reading, rows in readings.items():
            norms = rows.norm(dim=1)
            found["H_N", reading] = float(((norms[:, None] - norms) ** 2)[off].mean())
            found["H_D", reading] = float((rows @ rows.T / torch.outer(norms, norms))[off].mean())
        return found


def coverage(
    population: Population,
    operators: Callable[[int], Sequence[Operator]],
    intervals: Callable[[CrossClient, Key], Interval],
    draws: int = DRAWS,
    **options: Any,
) -> dict[Key, float]:
    """Return the share of seeded comparisons whose 95 % interval holds the truth."""
    truth = population.truth()
    hits = dict.fromkeys(truth, 0)
    for seed in range(draws):
        found = cross_client(operators(seed), seed=seed, **options)
        for key, value in truth.items():
            low, high = intervals(found, key)
            hits[key] += low <= value <= high
    return {key: count / draws for key, count in hits.items()}


def of_samples(found: CrossClient, key: Key) -> Interval:
    """The interval of a quantity of the samples as they are."""
    return (found.H_N if key[0] == "H_N" else found.H_D)[key[1]].interval()


def of_population(found: CrossClient, key: Key) -> Interval:
    """The interval of a quantity of the clients' populations."""
    return (found.H_N_population if key[0] == "H_N" else found.H_D_population)[key[1]].interval()


def trained_clients(steps: int = 200, local: int = 60) -> Population:
    """Return six clients of a convolutional BatchNorm net with 218 parameters."""
    torch.manual_seed(0)
    data = load_digits()
    inputs, targets = (torch.tensor(data.images)[:, None] / 16 - 0.3) / 0.37, torch.tensor(data.target)
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.Softplus(), nn.AvgPool2d(4), nn.Flatten(),
        nn.Linear(16, 10),
    ).double()  # fmt: skip
    _train(model, inputs, targets, steps, momentum=0.9)
    samples = []
    for _ in range(CLIENTS):
        shares = torch.distributions.Dirichlet(torch.full((10,), 0.5)).sample()
        rows = torch.multinomial(shares[targets], ROWS)
        client = copy.deepcopy(model)
        _train(client, inputs[rows], targets[rows], local, momentum=0.0)
        samples.append(sample_hessians(client.eval(), inputs[rows], targets[rows]).contiguous())
    return Population(tuple(samples), tuple(p.numel() for p in model.parameters()))


def _train(model: nn.Module, inputs: Tensor, targets: Tensor, steps: int, momentum: float) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3, momentum=momentum)
    for _ in range(steps):
        rows = torch.randint(len(targets), (64,))
        optimizer.zero_grad()
        cross_entropy(model(inputs[rows]), targets[rows]).backward()
        optimizer.step()
