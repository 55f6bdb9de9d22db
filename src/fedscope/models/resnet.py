"""Residual networks: one class, two stems, two blocks, shortcuts and normalisations, an optional head."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import cast

from torch import Tensor, nn
from torch.nn.functional import pad

from fedscope.choices import Shortcut

Norm = Callable[[int], nn.Module]  # of the number of channels

HEAD_WIDTH = 256  # at most; of the embedding that MOON compares (Li et al. 2021, out_dim)


class Block(nn.Module):
    """A residual block: relu(branch(x) + shortcut(x)).

    ``keep`` and ``gate`` are stochastic depth (Huang et al. 2016, Eqs. 2 and 5), plain attributes outside the
    state dict. In train mode a block whose ``gate`` is False computes relu(shortcut(x)) and leaves its branch
    alone, buffers included; a kept branch is not rescaled. In eval mode the branch counts ``keep``-fold.
    """

    keep: float = 1.0  # p_b, the probability that training evaluates the branch
    gate: bool = True  # this mini-batch's draw

    def __init__(self, branch: nn.Sequential, shortcut: nn.Module):
        super().__init__()
        self.branch = branch
        self.shortcut = shortcut
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


class Padded(nn.Module):
    """The shortcut without parameters (He et al. 2016, option A): every ``stride``-th pixel, zero channels.

    The zeros come after the channels there are (as in fb.resnet.torch; others put half of them before), so
    that a network of the first channels of every layer has the first channels of this shortcut too.
    """

    def __init__(self, outputs: int, stride: int):
        super().__init__()
        self.outputs, self.stride = outputs, stride

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, inputs, H, W) to (B, outputs, ⌈H/stride⌉, ⌈W/stride⌉)."""
        return padded(x, self.outputs, self.stride)


def padded(x: Tensor, outputs: int, stride: int) -> Tensor:
    """Return every ``stride``-th pixel of x with channels of zeros after its own, ``outputs`` in all."""
    return pad(x[:, :, ::stride, ::stride], (0, 0, 0, 0, 0, outputs - x.shape[1]))


def projection(inputs: int, outputs: int, stride: int, norm: Norm = nn.BatchNorm2d) -> nn.Sequential:
    """Return the shortcut with parameters (He et al. 2016, option B): a 1×1 convolution, and ``norm``."""
    return nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), norm(outputs))


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
    return Block(branch, projection(inputs, 4 * planes, stride) if first else nn.Identity())


def basic(
    inputs: int,
    planes: int,
    stride: int,
    first: bool,
    shortcut: Shortcut = "B",
    norm: Norm = nn.BatchNorm2d,
) -> Block:
    """Return two 3×3 convolutions; where the shape changes the shortcut is of option A or B."""
    branch = nn.Sequential(
        nn.Conv2d(inputs, planes, 3, stride, 1, bias=False),
        norm(planes),
        nn.ReLU(),
        nn.Conv2d(planes, planes, 3, 1, 1, bias=False),
        norm(planes),
    )
    if not first or (stride == 1 and inputs == planes):
        return Block(branch, nn.Identity())
    projects = shortcut == "B"
    return Block(branch, projection(inputs, planes, stride, norm) if projects else Padded(planes, stride))


BlockMaker = Callable[[int, int, int, bool], Block]


def grouped(
    make: BlockMaker, inputs: int, planes: Sequence[int], counts: Sequence[int], expansion: int = 1
) -> list[nn.Sequential]:
    """Return groups of ``counts`` blocks on ``inputs`` channels; every group but the first halves the sides.

    A block of p ``planes`` has ``expansion``·p outputs.
    """
    groups = []
    for index, (width, count) in enumerate(zip(planes, counts, strict=True)):
        group = []
        for place in range(count):
            group.append(make(inputs, width, 2 if index and not place else 1, not place))
            inputs = expansion * width
        groups.append(nn.Sequential(*group))
    return groups


def small_stem(channels: int, outputs: int, norm: Norm = nn.BatchNorm2d) -> nn.Sequential:
    """Return the stem for small images: a 3×3 convolution that keeps the sides."""
    return nn.Sequential(nn.Conv2d(channels, outputs, 3, 1, 1, bias=False), norm(outputs), nn.ReLU())


def large_stem(channels: int, outputs: int) -> nn.Sequential:
    """Return the stem for large images: a 7×7 convolution and a 3×3 max-pool, each halving the sides."""
    convolution = nn.Conv2d(channels, outputs, 7, 2, 3, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(outputs), nn.ReLU(), nn.MaxPool2d(3, 2, 1))


class ResNet(nn.Module):
    """Stem, groups of residual blocks, global average pool over ``features`` channels, linear: of any side.

    With a ``head`` two linear layers lie before the classifier: MOON's projection (Li et al. 2021, Sec. 3.2).
    """

    def __init__(
        self,
        stem: nn.Sequential,
        groups: Sequence[nn.Sequential],
        features: int,
        classes: int,
        head: bool = False,
    ):
        super().__init__()
        self.stem = stem
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

    Published for (B, channels, 32, 32). He fan-out initialisation, no zero-initialised BatchNorm.
    """
    groups = grouped(bottleneck, 16, (16, 32, 64), (6, 6, 6), expansion=4)
    return ResNet(small_stem(channels, 16), groups, 256, classes, head)


def resnet18(classes: int, channels: int = 3, head: bool = False) -> ResNet:
    """Return the ResNet-18 of He et al. 2016 for large images: basic blocks 2-2-2-2 of 64 to 512 channels.

    Published for (B, channels, 224, 224). He fan-out initialisation, no zero-initialised BatchNorm.
    """
    groups = grouped(basic, 64, (64, 128, 256, 512), (2, 2, 2, 2))
    return ResNet(large_stem(channels, 64), groups, 512, classes, head)


def resnet18_gn(classes: int, channels: int = 3, head: bool = False) -> ResNet:
    """Return ResNet-18 with GroupNorm of 2 groups and the stem for small images.

    GroupNorm in place of BatchNorm, whose statistics differ between clients (Hsieh et al. 2020); 2 groups as
    in the ResNet-18 of Reddi et al. 2021, and the FedSAM family after it. Used for (B, channels, 32, 32).
    """
    norm = partial(nn.GroupNorm, 2)
    groups = grouped(partial(basic, norm=norm), 64, (64, 128, 256, 512), (2, 2, 2, 2))
    return ResNet(small_stem(channels, 64, norm), groups, 512, classes, head)


def resnet8(classes: int, channels: int = 3, head: bool = False, shortcut: Shortcut | None = None) -> ResNet:
    """Return ResNet-8, of He et al. 2016, section 4.2: basic blocks 1-1-1 of 16/32/64 channels.

    Made for (B, channels, 32, 32) with the ``shortcut`` A, which is the default; the paper's own
    depths, 6n + 2, begin at 20.
    """
    groups = grouped(partial(basic, shortcut=shortcut or "A"), 16, (16, 32, 64), (1, 1, 1))
    return ResNet(small_stem(channels, 16), groups, 64, classes, head)


def resnet20(classes: int, channels: int = 3, head: bool = False, shortcut: Shortcut | None = None) -> ResNet:
    """Return the CIFAR ResNet-20 of He et al. 2016, section 4.2: basic blocks 3-3-3 of 16/32/64 channels.

    Published for (B, channels, 32, 32) with the ``shortcut`` A, which is the default.
    """
    groups = grouped(partial(basic, shortcut=shortcut or "A"), 16, (16, 32, 64), (3, 3, 3))
    return ResNet(small_stem(channels, 16), groups, 64, classes, head)


def resnet_digits(classes: int, channels: int = 1, head: bool = False) -> ResNet:
    """Return a small BatchNorm ResNet for 8×8 images: basic blocks 1-1-1 of 8/16/32 channels."""
    return ResNet(small_stem(channels, 8), grouped(basic, 8, (8, 16, 32), (1, 1, 1)), 32, classes, head)
