"""The networks by name, and how their weights are drawn."""

from collections.abc import Callable
from math import sqrt

import torch
from torch import nn

from fedscope.errors import UserError
from fedscope.models.convnets import convnet_cifar
from fedscope.models.perceptron import mlp_digits
from fedscope.models.resnet import ResNet, resnet56_bottleneck, resnet_digits

MODELS: dict[str, Callable[[int, int], nn.Module]] = {
    "resnet_digits": resnet_digits,
    "mlp_digits": mlp_digits,
    "convnet_cifar": convnet_cifar,
    "resnet56_bottleneck": resnet56_bottleneck,
}
INPUT_SIDES = {"resnet_digits": 8, "mlp_digits": 8, "convnet_cifar": 32, "resnet56_bottleneck": 32}
DEFAULTS = {
    "digits": "resnet_digits",
    "synthetic": "mlp_digits",
    "cifar10": "convnet_cifar",
    "cifar100": "convnet_cifar",
}


def build(name: str, classes: int, channels: int, generator: torch.Generator) -> nn.Module:
    """Return the network ``name`` with weights drawn from ``generator`` (and from nothing else).

    Raises:
        UserError: the name is unknown.
    """
    if name not in MODELS:
        raise UserError(f"unknown model {name!r}; choose one of {', '.join(MODELS)}")
    with torch.random.fork_rng(devices=()):  # PyTorch's own initialisation is drawn, and overwritten
        model = MODELS[name](classes, channels)
    for module in model.modules():
        _initialise(module, generator, he=isinstance(model, ResNet))
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
