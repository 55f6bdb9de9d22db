"""The networks by name, and how their weights are drawn."""

from collections.abc import Callable
from math import sqrt
from typing import Protocol

import torch
from torch import nn

from fedscope.errors import UserError
from fedscope.models.convnets import convnet_cifar, convnet_tiny_gn
from fedscope.models.depth import Schedule, set_depth
from fedscope.models.perceptron import mlp_digits
from fedscope.models.resnet import ResNet, resnet56_bottleneck, resnet_digits


class Residual(Protocol):
    """Builds a network that can have a projection head."""

    def __call__(self, classes: int, channels: int, head: bool = False) -> ResNet:
        """Return the network, logits over ``classes``."""
        ...


RESIDUAL: dict[str, Residual] = {
    "resnet_digits": resnet_digits,
    "resnet56_bottleneck": resnet56_bottleneck,
}
MODELS: dict[str, Callable[[int, int], nn.Module]] = {
    **RESIDUAL,
    "mlp_digits": mlp_digits,
    "convnet_cifar": convnet_cifar,
    "convnet_tiny_gn": convnet_tiny_gn,
}
INPUT_SIDES = {
    "resnet_digits": 8,
    "mlp_digits": 8,
    "convnet_cifar": 32,
    "convnet_tiny_gn": 64,
    "resnet56_bottleneck": 32,
}
DEFAULTS = {
    "digits": "resnet_digits",
    "synthetic": "mlp_digits",
    "cifar10": "convnet_cifar",
    "cifar100": "convnet_cifar",
}


def can_have_head(name: str) -> bool:
    """Say whether the network ``name`` can be built with a projection head."""
    return name in RESIDUAL


def build(
    name: str,
    classes: int,
    channels: int,
    generator: torch.Generator,
    *,
    head: bool = False,
    keep: float = 1.0,
    schedule: Schedule = "code",
) -> nn.Module:
    """Return the network ``name`` with weights drawn from ``generator`` (and from nothing else).

    ``head`` adds MOON's projection, drawn last: the layers before it are those of the plain network.
    ``keep`` is the keep probability of the last block, the others' follow the ``schedule``; neither is drawn.

    Raises:
        UserError: the name is unknown; the network has no residual blocks and is to have a ``head`` or to
            drop some; ``keep`` is not in (0, 1].
    """
    if name not in MODELS:
        raise UserError(f"unknown model {name!r}; choose one of {', '.join(MODELS)}")
    if head and name not in RESIDUAL:
        raise UserError(f"{name} has no projection head; choose one of {', '.join(RESIDUAL)}")
    with torch.random.fork_rng(devices=()):  # PyTorch's own initialisation is drawn, and overwritten
        model = RESIDUAL[name](classes, channels, head) if head else MODELS[name](classes, channels)
    for _, module in sorted(model.named_modules(), key=lambda named: named[0].startswith("head.")):
        _initialise(module, generator, he=isinstance(model, ResNet))
    if keep != 1:
        set_depth(model, keep, schedule)
    return model


def _initialise(module: nn.Module, generator: torch.Generator, *, he: bool) -> None:
    """Draw one layer's weights: He fan-out normal for convolutions where ``he``, else PyTorch's defaults."""
    if isinstance(module, nn.Conv2d | nn.Linear):
        if he and isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu", generator=generator)
        else:
            nn.init.kaiming_uniform_(module.weight, a=sqrt(5), generator=generator)
        if module.bias is not None:
            bound = 1 / sqrt(module.weight[0].numel())
            nn.init.uniform_(module.bias, -bound, bound, generator=generator)
    elif isinstance(module, nn.BatchNorm2d):
        module.reset_parameters()
