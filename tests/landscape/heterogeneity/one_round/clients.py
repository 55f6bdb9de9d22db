"""Small clients in float64: models around a global one, rows of their own, and dense oracles of all."""

import copy
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedscope.landscape import Batches, Hessian
from fedscope.landscape.loss.flat_loss import FlatLoss
from tests.landscape.cases import Case

SHARES = (0.5, 0.3, 0.2)
SIZE = 16  # samples of a batch


@dataclass(frozen=True)
class Clients:
    """K models, the global one, and the samples of each and of all."""

    models: list[nn.Module]
    center: nn.Module
    own: list[tuple[Tensor, Tensor]]
    every: tuple[Tensor, Tensor]

    def case(self, model: nn.Module, data: tuple[Tensor, Tensor]) -> Case:
        return Case("", model, cross_entropy, *data, batch_size=SIZE)

    def operator(self, model: nn.Module, data: tuple[Tensor, Tensor]) -> Hessian:
        return Hessian(model, cross_entropy, Batches(*data, SIZE))

    def loss(self, model: nn.Module, data: tuple[Tensor, Tensor]) -> FlatLoss:
        return FlatLoss(model, cross_entropy, Batches(*data, SIZE))


def flat(model: nn.Module) -> Tensor:
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def moved(model: nn.Module, by: float, seed: int) -> nn.Module:
    other = copy.deepcopy(model)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in other.parameters():
            p.add_(torch.randn(p.shape, generator=generator, dtype=p.dtype), alpha=by)
    return other


def clients(count: int = 3, *, norm: bool = False) -> Clients:
    torch.manual_seed(4)
    layers = [nn.Linear(4, 5), nn.BatchNorm1d(5)] if norm else [nn.Linear(4, 5)]
    center = nn.Sequential(*layers, nn.Tanh(), nn.Linear(5, 3)).double()
    own = [
        (torch.randn(32 + 16 * k, 4).double() + k / 2, torch.randint(3, (32 + 16 * k,))) for k in range(count)
    ]
    if norm:
        center(own[1][0])
    center.eval()
    models = [moved(center, 0.2, seed=k) for k in range(count)]
    every = torch.cat([x for x, _ in own]), torch.cat([y for _, y in own])
    return Clients(models, center, own, every)
