"""A network that looks at a convolution's outputs where images are large, and data that have some."""

import torch
from torch import Tensor, nn

from fedscope.landscape import Batches


class Skipping(nn.Module):
    """Small images go through convolution and BatchNorm; for large ones the convolution is added again."""

    def __init__(self, conv: type[nn.Conv2d] = nn.Conv2d) -> None:
        super().__init__()
        self.conv, self.bn, self.fc = conv(1, 3, 3), nn.BatchNorm2d(3), nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        z = self.conv(x)
        y = torch.tanh(self.bn(z))
        if x.mean() > 5:
            y = y + 0.3 * z
        logits: Tensor = self.fc(y.mean((2, 3)))
        return logits


class Own(nn.Conv2d):
    """A convolution of the user's own class, which is never folded."""


def skipping(conv: type[nn.Conv2d] = nn.Conv2d) -> nn.Module:
    """Return the network, float64, its statistics neither the initial ones nor the data's."""
    torch.manual_seed(7)
    model = Skipping(conv).double()
    model(2 * torch.randn(9, 1, 5, 5, dtype=torch.float64) + 1)
    return model.eval()


def images() -> Batches:
    """Return 10 small images and 5 large ones, in batches of 5."""
    generator = torch.Generator().manual_seed(8)
    inputs = torch.randn(15, 1, 5, 5, generator=generator, dtype=torch.float64)
    inputs[10:] += 10
    return Batches(inputs, torch.arange(15) % 3, 5)
