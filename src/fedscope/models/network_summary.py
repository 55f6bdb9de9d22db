"""What a network is, in numbers and in a few lines, from its shapes alone."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import torch
from torch import Tensor, nn

from fedscope.models.network_cost import norm_affine, norm_statistics, operations, parameter_count
from fedscope.models.resnet import Block, Padded, ResNet
from fedscope.models.transformer import Encoder, VisionTransformer

SAMPLES = 2  # of the counted batch: BatchNorm in train mode refuses one


@dataclass(frozen=True)
class Stage:
    """Consecutive layers of a network."""

    name: str
    layers: str
    output: tuple[int, ...]  # shape of what they make of one sample


@dataclass(frozen=True)
class NetworkSummary:
    """A network on images of one size; scalars, and multiply-accumulates of a forward pass per sample."""

    input: tuple[int, int, int]
    parameters: int  # P
    norm_affine: int  # of P, normalisation's scales and shifts
    norm_statistics: int  # Q, BatchNorm's running means and variances
    tensors: int  # that hold the P parameters
    multiply_accumulates: int  # of convolutions and linear layers
    pooled: int  # elements that enter the global average pool
    stages: list[Stage]


def summary(model: nn.Module, channels: int, side: int) -> NetworkSummary:
    found, outputs = list(_stages(model)), list[tuple[int, ...]]()

    def keep(_module: nn.Module, _inputs: object, output: Tensor) -> None:
        outputs.append(tuple(output.shape[1:]))

    hooks = [layers[-1].register_forward_hook(keep) for _, layers in found]
    device = next(model.parameters()).device
    counted = operations(lambda: model(torch.zeros(SAMPLES, channels, side, side, device=device)))
    for hook in hooks:
        hook.remove()
    stages = [
        Stage(name, ", ".join(_words(layers)), output)
        for (name, layers), output in zip(found, outputs, strict=True)
    ]
    return NetworkSummary(
        (channels, side, side), parameter_count(model), norm_affine(model), norm_statistics(model),
        len(list(model.parameters())), counted.products // SAMPLES, counted.pooled // SAMPLES, stages,
    )  # fmt: skip


def _stages(model: nn.Module) -> Iterator[tuple[str, list[nn.Module]]]:
    """Yield the parts of a residual network or a transformer, or each layer with weights and what follows."""
    if isinstance(model, ResNet | VisionTransformer):
        for name, part in model.named_children():
            yield name, list(part) if isinstance(part, nn.Sequential) else [part]
        return
    name, layers = "", list[nn.Module]()
    for own, layer in model.named_children():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            if name:
                yield name, layers
                layers = []
            name = own
        layers.append(layer)
    yield name, layers


def _words(layers: Sequence[nn.Module]) -> list[str]:
    runs = [(text, len(list(same))) for text, same in groupby(layers, _describe)]
    return [f"{count} × {text}" if count > 1 else text for text, count in runs]


def _describe(layer: nn.Module) -> str:
    match layer:
        case nn.Conv2d():
            return f"conv {_square(layer.kernel_size[0], layer.stride[0])} to {layer.out_channels}"
        case nn.Linear():
            return f"linear to {layer.out_features}"
        case nn.MaxPool2d(kernel_size=int(side), stride=int(stride)):
            return f"max-pool {_square(side, stride)}"
        case nn.AdaptiveAvgPool2d():
            return f"average pool to {layer.output_size}×{layer.output_size}"
        case nn.GroupNorm():
            return f"GroupNorm of {layer.num_groups}"
        case Encoder(attention=attention):
            return f"block of attention in {attention.heads} heads, {', '.join(_words(list(layer.mlp)))}"
        case Block():
            branch = [part for part in layer.branch if isinstance(part, nn.Conv2d)]
            return f"block of {', '.join(_words(branch))} ({_SHORTCUTS[type(layer.shortcut)]})"
        case _:
            return type(layer).__name__.removesuffix("1d").removesuffix("2d")


_SHORTCUTS = {nn.Identity: "identity", nn.Sequential: "projection", Padded: "zero-padding"}


def _square(side: int, stride: int) -> str:
    return f"{side}×{side}" + (f"/{stride}" if stride > 1 else "")
