"""Networks for the zoo that do something unusual in forward or with their weights."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrizations, spectral_norm, weight_norm
from torch.utils.checkpoint import checkpoint

CLASSES = 4


class Counting(nn.Module):
    """Buffers written in every forward: a counter and a running mean that normalises the input."""

    seen: Tensor
    mean: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros((), dtype=torch.long))
        self.register_buffer("mean", torch.zeros(7))
        self.body = nn.Sequential(nn.Linear(7, 6), nn.BatchNorm1d(6), nn.SiLU(), nn.Linear(6, CLASSES))

    def forward(self, x: Tensor) -> Tensor:
        normed = x - self.mean
        self.seen += 1
        self.mean.mul_(0.9).add_(x.detach().mean(0), alpha=0.1)
        logits: Tensor = self.body(normed)
        return logits


class Cube(torch.autograd.Function):
    """x³, whose backward is made of differentiable operations."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        cube: Tensor = 3 * x**2 * gradient
        return cube


class OnceCube(Cube):
    """The same, forbidden to be differentiated twice."""

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        cube: Tensor = 3 * x**2 * gradient
        return cube


class Custom(nn.Module):
    """An autograd function of the user's own between two layers."""

    def __init__(self, function: type[torch.autograd.Function]) -> None:
        super().__init__()
        self.hidden, self.out, self.function = nn.Linear(7, 6), nn.Linear(6, CLASSES), function

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.out(self.function.apply(self.hidden(x)))
        return logits


class Checkpointed(nn.Module):
    """Convolutions whose activations are computed again in the backward pass."""

    def __init__(self, *, reentrant: bool) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3, padding=1)
        self.block = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4), nn.Softplus())
        self.fc, self.reentrant = nn.Linear(4, CLASSES), reentrant

    def forward(self, x: Tensor) -> Tensor:
        x = checkpoint(self.block, self.stem(x), use_reentrant=self.reentrant)
        logits: Tensor = self.fc(x.mean((2, 3)))
        return logits


class FixedBatch(nn.Module):
    """A state that was made for so many samples, as in stateful recurrent networks."""

    state: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("state", 0.1 * torch.randn(1, 16, 5))
        self.rnn, self.fc = nn.GRU(7, 5, batch_first=True), nn.Linear(5, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        out, _ = self.rnn(x[:, None], self.state)
        logits: Tensor = self.fc(out[:, -1])
        return logits


class Normalising(nn.Module):
    """Images that are normalised in place, in the batch that was given."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.ReLU(inplace=True), nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(144, CLASSES)
        )

    def forward(self, x: Tensor) -> Tensor:
        x -= 0.3
        x /= 0.5
        logits: Tensor = self.body(x)
        return logits


class Listed(nn.Module):
    """Weights that forward takes from a list of its own, not from the attributes they are known by."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, CLASSES))
        self.decayed = [p for p in self.parameters() if p.ndim > 1]

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.body(x) * (1 + sum(p.square().mean() for p in self.decayed))
        return logits


class Derivative(nn.Module):
    """A potential whose gradient is among the outputs, as in physics-informed networks."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Softplus(), nn.Flatten(), nn.Linear(144, 1))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = x.detach().requires_grad_(True)
        energy = self.features(x)
        (force,) = torch.autograd.grad(energy.sum(), x, create_graph=True)
        return energy, force


class Hooked(nn.Module):
    """A forward hook of the user's between a convolution and its BatchNorm keeps the features."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)
        self.fc = nn.Linear(4, CLASSES)
        self.kept: list[Tensor] = []
        self.conv.register_forward_hook(self._keep)

    def _keep(self, _module: nn.Module, _inputs: Any, output: Tensor) -> None:
        self.kept[:] = [output]

    def forward(self, x: Tensor) -> Tensor:
        x = F.softplus(self.norm(self.conv(x)))
        logits: Tensor = self.fc(x.mean((2, 3)) + 0.1 * self.kept[0].square().mean((2, 3)))
        return logits


def normed(kind: str, how: str) -> nn.Module:
    """A small network whose layers' weights are computed from others, by hooks or by parametrizations."""
    hooks, modern = {"weight": weight_norm, "spectral": spectral_norm}, parametrizations
    wrap: Any = hooks[kind] if how == "hook" else getattr(modern, f"{kind}_norm")
    layers = wrap(nn.Conv2d(3, 4, 3)), nn.BatchNorm2d(4), nn.LeakyReLU(0.1), nn.Flatten()
    return nn.Sequential(*layers, wrap(nn.Linear(4 * 36, CLASSES)))


def frozen() -> nn.Module:
    """A pretrained body whose parameters need no gradient, with a new head."""
    body = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True)).requires_grad_(False)
    return nn.Sequential(
        body, nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4), nn.ELU(), nn.Flatten(), nn.Linear(64, CLASSES)
    )


def channels_last() -> nn.Module:
    """A network whose weights are arranged with the channels last, as PyTorch's tuning guide has it."""
    net = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, CLASSES)
    )
    return net.to(memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]
