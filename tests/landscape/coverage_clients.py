"""How often the intervals of H_N and H_D cover the truth: clients of a small net, their dense Hessians known.

A BatchNorm net is trained on the digits, then by each client from there on rows of its own, unevenly over the
classes. The truth is of the clients' dense Hessians at their weights on their rows; only the probes repeat.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.func import functional_call, grad, jacrev
from torch.nn.functional import cross_entropy

from fedscope.choices import Reading
from fedscope.landscape import LambdaOperator, cross_client

CLIENTS, ROWS = 6, 128
Key = tuple[str, Reading]


@dataclass(frozen=True)
class Population:
    """K clients' Hessians (K, n, n) float64, and the lengths of the net's tensors."""

    hessians: Tensor
    lengths: tuple[int, ...]

    @property
    def operators(self) -> list[LambdaOperator]:
        """One operator per client."""
        blocks = tuple((str(i), length) for i, length in enumerate(self.lengths))
        return [
            LambdaOperator(lambda v, m=matrix: m @ v, len(matrix), blocks=blocks)  # type: ignore[misc]
            for matrix in self.hessians
        ]

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


def coverage(population: Population, seeds: Sequence[int], **options: Any) -> dict[Key, float]:
    """Return the share of seeded comparisons whose 95 % interval holds the truth."""
    truth, operators = population.truth(), population.operators
    hits = dict.fromkeys(truth, 0)
    for seed in seeds:
        found = cross_client(operators, seed=seed, **options)
        for (quantity, reading), value in truth.items():
            low, high = (found.H_N if quantity == "H_N" else found.H_D)[reading].interval()
            hits[quantity, reading] += low <= value <= high
    return {key: count / len(seeds) for key, count in hits.items()}


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
    hessians = []
    for _ in range(CLIENTS):
        shares = torch.distributions.Dirichlet(torch.full((10,), 0.5)).sample()
        rows = torch.multinomial(shares[targets], ROWS)
        client = copy.deepcopy(model)
        _train(client, inputs[rows], targets[rows], local, momentum=0.0)
        hessians.append(_dense(client, inputs[rows], targets[rows]))
    return Population(torch.stack(hessians), tuple(p.numel() for p in model.parameters()))


def _train(model: nn.Module, inputs: Tensor, targets: Tensor, steps: int, momentum: float) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3, momentum=momentum)
    for _ in range(steps):
        rows = torch.randint(len(targets), (64,))
        optimizer.zero_grad()
        cross_entropy(model(inputs[rows]), targets[rows]).backward()
        optimizer.step()


def _dense(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    named = {name: p.detach() for name, p in model.eval().named_parameters()}
    lengths = [p.numel() for p in named.values()]

    def loss(flat: Tensor) -> Tensor:
        pieces = zip(named.items(), flat.split(lengths), strict=True)
        parameters = {name: piece.view(p.shape) for (name, p), piece in pieces}
        return cross_entropy(functional_call(model, parameters, (inputs,)), targets)

    matrix: Tensor = jacrev(grad(loss))(torch.cat([p.flatten() for p in named.values()]))
    return matrix
