"""A residual network's multiply-accumulates layer by layer, at full and at smaller widths.

Arithmetic on shapes, which prices hundreds of sub-networks at once; :mod:`.network_cost` counts what runs.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedscope.models.resnet import ResNet
from fedscope.models.slimmable import channels as slim_channels


@dataclass(frozen=True)
class Products:
    """What a layer costs per sample: inputs × outputs × ``places``, of which some have smaller widths."""

    name: str
    inputs: int
    outputs: int
    places: int  # kernel positions × output positions
    slims: tuple[bool, bool]  # inputs, outputs

    def at(self, width: float, divisor: int = 8) -> int:
        inputs, outputs = (
            slim_channels(count, width, divisor) if slim else count
            for count, slim in zip((self.inputs, self.outputs), self.slims, strict=True)
        )
        return inputs * outputs * self.places


def products(network: ResNet, channels: int, side: int) -> list[Products]:
    """Return the convolutions, the global average pool (its elements) and the linear layers, in this order.

    For images (``channels``, ``side``, ``side``); the network runs once, in eval mode, and is left so.
    """
    found: list[Products] = []

    def record(name: str) -> Callable[[nn.Module, object, Tensor], None]:
        def hook(layer: nn.Module, _: object, output: Tensor) -> None:
            if isinstance(layer, nn.Conv2d):
                places = layer.weight[0, 0].numel() * output[0, 0].numel()
                widths = (name != STEM, True)
                found.append(Products(name, layer.in_channels, layer.out_channels, places, widths))
            elif isinstance(layer, nn.Linear):
                first = not any(other.name in FIRST for other in found)
                found.append(Products(name, layer.in_features, layer.out_features, 1, (first, False)))

        return hook

    def pool(_layer: nn.Module, _: object, output: Tensor) -> None:
        found.append(Products("pool", 1, output.shape[1], output[0, 0].numel(), (False, True)))

    hooks = [layer.register_forward_hook(record(name)) for name, layer in network.named_modules()]
    hooks.append(network.groups[-1].register_forward_hook(pool))
    with torch.no_grad():
        network.eval()(torch.zeros(1, channels, side, side, device=network.fc.weight.device))
    for handle in hooks:
        handle.remove()
    return found


STEM = "stem.0"  # reads the images, which have no smaller width
FIRST = ("head.0", "fc")  # the linear layer after the pool is one of them; those after it keep their inputs
