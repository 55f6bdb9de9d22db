"""Small float64 networks on which one thing about a fast product is easy to get wrong."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from .cases import Case


class PreActivation(nn.Module):
    """A pre-activation residual block: its first BatchNorm may not be folded, its second may."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 3, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(3)
        self.conv1 = nn.Conv2d(3, 3, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(3)
        self.conv2 = nn.Conv2d(3, 3, 3, padding=1)
        self.fc = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        z = self.conv1(nn.functional.softplus(self.bn1(x)))
        x = x + self.conv2(nn.functional.softplus(self.bn2(z)))
        logits: Tensor = self.fc(x.mean((2, 3)))
        return logits


class SharedNorm(nn.Module):
    """One BatchNorm after two convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Conv2d(1, 2, 3, bias=False), nn.Conv2d(2, 2, 3, bias=False)
        self.bn = nn.BatchNorm2d(2)
        self.fc = nn.Linear(2, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.bn(self.one(x)))
        x = torch.tanh(self.bn(self.two(x)))
        logits: Tensor = self.fc(x.mean((2, 3)))
        return logits


class UsedTwice(nn.Module):
    """A convolution whose output goes to its BatchNorm and past it."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.bn, self.fc = nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Linear(2, 3)

    def forward(self, x: Tensor) -> Tensor:
        z = self.conv(x)
        logits: Tensor = self.fc((torch.tanh(self.bn(z)) + 0.1 * z**2).mean((2, 3)))
        return logits


class Tied(nn.Module):
    """Two convolutions with one weight, each before its own BatchNorm; a tied linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Conv2d(2, 2, 3, padding=1), nn.Conv2d(2, 2, 3, padding=1)
        self.two.weight = self.one.weight
        self.bn1, self.bn2 = nn.BatchNorm2d(2), nn.BatchNorm2d(2)
        self.inner, self.outer = nn.Linear(2, 2), nn.Linear(2, 2)
        self.outer.weight = self.inner.weight
        self.bn3, self.last = nn.BatchNorm1d(2), nn.Linear(2, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.cat([x, x.flip(3)], 1)
        x = torch.tanh(self.bn2(self.two(torch.tanh(self.bn1(self.one(x))))))
        x = self.outer(torch.tanh(self.bn3(self.inner(x.mean((2, 3))))))
        logits: Tensor = self.last(torch.tanh(x))
        return logits


class Strided(nn.Module):
    """Every option of a convolution; BatchNorm without γ and β."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 4, 3, stride=2, padding=1),
            nn.BatchNorm2d(4, affine=False),
            nn.Softplus(),
            nn.Conv2d(4, 4, 3, padding=2, dilation=2, groups=2, bias=False),
            nn.BatchNorm2d(4),
            nn.Softplus(),
            nn.Conv2d(4, 2, 3, padding="same", bias=False),
            nn.Softplus(),
            nn.Conv2d(2, 2, 3, padding=1, padding_mode="circular"),
            nn.BatchNorm2d(2),
            nn.Flatten(2),
            nn.Conv1d(2, 2, 2, stride=2),
            nn.BatchNorm1d(2),
            nn.Tanh(),
            nn.Flatten(),
            nn.LazyLinear(3),
        )

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.body(x)
        return logits


class Sequences(nn.Module):
    """BatchNorm over the places of a sequence, after a linear layer with as many features as places."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.bn, self.fc = nn.Linear(5, 5), nn.BatchNorm1d(5), nn.Linear(25, 3)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.fc(torch.tanh(self.bn(self.linear(x[:, 0]))).flatten(1))
        return logits


# How many of a network's BatchNorms can be folded.
NETS: dict[str, tuple[Callable[[], nn.Module], int]] = {
    "pre-activation": (PreActivation, 1),
    "norm used twice": (SharedNorm, 0),
    "output used twice": (UsedTwice, 0),
    "tied": (Tied, 3),
    "strided": (Strided, 4),
    "sequences": (Sequences, 0),
}


def net_case(name: str, samples: int = 13, batch_size: int = 5) -> Case:
    torch.manual_seed(5)
    inputs = torch.randn(samples, 1, 5, 5, dtype=torch.float64)
    model = NETS[name][0]()
    model.double()(inputs)  # lazy layers; statistics that are neither the initial ones nor the data's
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and module.affine:
            nn.init.normal_(module.weight, 1, 0.3)
            nn.init.normal_(module.bias, 0, 0.3)
    return Case(name, model, nn.functional.cross_entropy, inputs, torch.randint(3, (samples,)), batch_size)
