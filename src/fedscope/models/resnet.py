"""Residual networks for small images: one class, two block types, an optional projection head."""

from collections.abc import Sequence
from typing import cast

from torch import Tensor, nn

HEAD_WIDTH = 256  # at most; of the embedding that MOON compares (Li et al. 2021, out_dim)


class Block(nn.Module):
    """A residual block: relu(branch(x) + shortcut(x)); the shortcut is a 1×1 projection where ``project``.

    ``keep`` and ``gate`` are stochastic depth (Huang et al. 2016, Eqs. 2 and 5), plain attributes outside the
    state dict. In train mode a block whose ``gate`` is False computes relu(shortcut(x)) and leaves its branch
    alone, buffers included; a kept branch is not rescaled. In eval mode the branch counts ``keep``-fold.
    """

    keep: float = 1.0  # p_b, the probability that training evaluates the branch
    gate: bool = True  # this mini-batch's draw

    def __init__(self, branch: nn.Sequential, inputs: int, outputs: int, stride: int, project: bool):
        super().__init__()
        self.branch = branch
        self.shortcut = (
            nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))
            if project
            else nn.Identity()
        )
        self.relu = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, inputs, H, W) to (B, outputs, H/stride, W/stride)."""
        out: Tensor
        if self.training and not self.gate:
            out = self.relu(self.shortcut(x))
            return out
        branch = self.branch(x)
        if not self.training and self.keep < 1:
            branch = self.keep * branch
        out = self.relu(branch + self.shortcut(x))
        return out


def bottleneck(inputs: int, planes: int, stride: int, first: bool) -> Block:
    """Return 1×1, 3×3 with the stride, 1×1 to 4·``planes``; the first of a group projects its shortcut."""
    branch = nn.Sequential(
        nn.Conv2d(inputs, planes, 1, bias=False),
        nn.BatchNorm2d(planes),
        nn.ReLU(),
        nn.Conv2d(planes, planes, 3, stride, 1, bias=False),
        nn.BatchNorm2d(planes),
        nn.ReLU(),
        nn.Conv2d(planes, 4 * planes, 1, bias=False),
        nn.BatchNorm2d(4 * planes),
    )
    return Block(branch, inputs, 4 * planes, stride, project=first)


def basic(inputs: int, planes: int, stride: int, first: bool) -> Block:
    """Return two 3×3 convolutions; the shortcut projects where the shape changes."""
    branch = nn.Sequential(
        nn.Conv2d(inputs, planes, 3, stride, 1, bias=False),
        nn.BatchNorm2d(planes),
        nn.ReLU(),
        nn.Conv2d(planes, planes, 3, 1, 1, bias=False),
        nn.BatchNorm2d(planes),
    )
    return Block(branch, inputs, planes, stride, project=first and (stride > 1 or inputs != planes))


class ResNet(nn.Module):
    """3×3 stem, groups of residual blocks (stride 2 from the second on), global average pool, linear.

    With a ``head`` two linear layers lie before the classifier: MOON's projection (Li et al. 2021, Sec. 3.2).
    """

    def __init__(
        self,
        groups: Sequence[nn.Sequential],
        stem: int,
        features: int,
        classes: int,
        channels: int,
        head: bool = False,
    ):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(channels, stem, 3, 1, 1, bias=False), nn.BatchNorm2d(stem), nn.ReLU()
        )
        for index, group in enumerate(groups, 1):
            self.add_module(f"layer{index}", group)
        self.depth = len(groups)
        embedding = min(features, HEAD_WIDTH) if head else features
        self.head = (
            nn.Sequential(nn.Linear(features, features), nn.ReLU(), nn.Linear(features, embedding))
            if head
            else None
        )
        self.fc = nn.Linear(embedding, classes)

    @property
    def groups(self) -> list[nn.Sequential]:
        """The groups of blocks, ``layer1`` first."""
        names = (f"layer{index}" for index in range(1, self.depth + 1))
        return [cast(nn.Sequential, self.get_submodule(name)) for name in names]

    def forward(self, x: Tensor) -> Tensor:
        """Map images (B, channels, H, W) to logits (B, classes)."""
        x = self.stem(x)
        for group in self.groups:
            x = group(x)
        x = x.mean((2, 3))
        if self.head is not None:
            x = self.head(x)
        logits: Tensor = self.fc(x)
        return logits


def blocks(model: nn.Module) -> list[Block]:
    """Return the residual blocks of ``model`` from input to output; none where it is not residual."""
    return [module for module in model.modules() if isinstance(module, Block)]


def resnet56_bottleneck(classes: int, channels: int = 3, head: bool = False) -> ResNet:
    """Return FedML's ResNet-56 (Mendieta et al. 2022): bottlenecks 6-6-6 of 16/32/64 planes.

    Input (B, channels, 32, 32). He fan-out initialisation, no zero-initialised BatchNorm.
    """
    groups, inputs = [], 16
    for index, planes in enumerate((16, 32, 64)):
        group = []
        for place in range(6):
            stride = 2 if index and not place else 1
            group.append(bottleneck(inputs, planes, stride, first=not place))
            inputs = 4 * planes
        groups.append(nn.Sequential(*group))
    return ResNet(groups, 16, 256, classes, channels, head)


def resnet_digits(classes: int, channels: int = 1, head: bool = False) -> ResNet:
    """Return a small BatchNorm ResNet for 8×8 images: basic blocks 1-1-1 of 8/16/32 channels."""
    groups, inputs = [], 8
    for index, planes in enumerate((8, 16, 32)):
        groups.append(nn.Sequential(basic(inputs, planes, 2 if index else 1, first=True)))
        inputs = planes
    return ResNet(groups, 8, 32, classes, channels, head)
