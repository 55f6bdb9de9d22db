"""Small float64 problems whose sharpness has a closed form, and a ReLU network that can be rescaled."""

import torch
from torch import Tensor, nn

from fedscope.landscape import Batches


class Quadratic(nn.Module):
    """w ↦ ½ wᵀA_i w + b_iᵀw of each sample i, whose inputs are A_i and b_i."""

    def __init__(self, weights: Tensor) -> None:
        super().__init__()
        self.w = nn.Parameter(weights.clone())

    def forward(self, matrices: Tensor, slopes: Tensor) -> Tensor:
        return torch.einsum("i,nij,j->n", self.w, matrices, self.w) / 2 + slopes @ self.w


def mean_of(outputs: Tensor, _: Tensor) -> Tensor:
    return outputs.mean()


def quadratic(
    n: int = 6, samples: int = 12, batch_size: int = 4, sloped: bool = False
) -> tuple[Quadratic, Batches]:
    """Return a network at random weights, with positive semi-definite A_i."""
    g = torch.Generator().manual_seed(3)
    roots = torch.randn(samples, n, n, generator=g, dtype=torch.float64)
    slopes = torch.randn(samples, n, generator=g, dtype=torch.float64) * float(sloped)
    weights = torch.randn(n, generator=g, dtype=torch.float64)
    inputs = (roots @ roots.mT / n, slopes)
    return Quadratic(weights), Batches(inputs, torch.zeros(samples), batch_size)


def matrix_of(batches: Batches) -> Tensor:
    """Return A, the mean over samples."""
    return torch.cat([inputs[0] for inputs, _ in batches]).mean(0)


def relu_net(*, norm: bool = False) -> nn.Sequential:
    """Return a ReLU network without biases in its linear layers, of 3 classes."""
    torch.manual_seed(5)
    layers: list[nn.Module] = [nn.Linear(4, 6, bias=False)]
    if norm:
        layers.append(nn.BatchNorm1d(6))
    layers += [nn.ReLU(), nn.Linear(6, 5, bias=False), nn.ReLU(), nn.Linear(5, 3, bias=False)]
    return nn.Sequential(*layers).double().eval()


def labelled(samples: int = 24, batch_size: int = 8) -> Batches:
    """Return samples of 4 numbers with one of 3 labels."""
    g = torch.Generator().manual_seed(7)
    inputs = torch.randn(samples, 4, generator=g, dtype=torch.float64)
    return Batches(inputs, torch.randint(3, (samples,), generator=g), batch_size)


def whole(batches: Batches) -> tuple[Tensor, Tensor]:
    """Return all inputs and targets."""
    return torch.cat([x for x, _ in batches]), torch.cat([y for _, y in batches])
