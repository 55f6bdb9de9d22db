"""Costs by arithmetic against the count of what runs."""

from typing import Any, cast

import pytest
import torch

from fedscope.models.catalogue import build, outline
from fedscope.models.network_cost import multiply_accumulates, operations
from fedscope.models.products import products
from fedscope.models.resnet import ResNet
from fedscope.models.slimmable import channels, slim

CASES = [
    ("resnet20", {}, 20),
    ("resnet20", {"shortcut": "B", "head": True}, 28),
    ("resnet18", {"head": True}, 90),
    ("resnet_digits", {}, 7),
]


def network(name: str, given: dict[str, Any]) -> ResNet:
    return cast(ResNet, outline(name, 10, 3, **given))


@pytest.mark.parametrize(("name", "given", "side"), CASES)
@pytest.mark.parametrize(("width", "divisor"), [(1.0, 8), (0.8, 8), (0.43, 2)])
def test_every_layer_counts_as_it_runs(
    name: str, given: dict[str, Any], side: int, width: float, divisor: int
) -> None:
    found = products(network(name, given), 3, side)
    model, x = build(name, 10, 3, torch.Generator(), **given), torch.zeros(2, 3, side, side)
    ran = multiply_accumulates(lambda: slim(model.train(), x, width, divisor))
    assert 2 * sum(layer.at(width, divisor) for layer in found) == ran


def test_the_last_group_alone_counts_as_it_runs() -> None:
    model, found = network("resnet18", {}), products(network("resnet18", {}), 3, 64)
    x = torch.zeros(2, channels(256, 0.25), 4, 4, device="meta")
    ran = multiply_accumulates(lambda: slim(model.groups[-1].train(), x, 0.25))
    assert 2 * sum(layer.at(0.25) for layer in found if layer.name.startswith("layer4.")) == ran


def test_the_pool_stands_between_convolutions_and_linear_layers() -> None:
    model = network("resnet56_bottleneck", {"head": True})
    found = products(model, 3, 32)
    assert [layer.name for layer in found[-4:]] == ["pool", "head.0", "head.2", "fc"]
    assert (found[0].name, len(found)) == ("stem.0", 1 + 18 * 3 + 3 + 1 + 3)
    pooled = operations(lambda: model.eval()(torch.zeros(1, 3, 32, 32, device="meta"))).pooled
    assert found[-4].at(1) == pooled == 16_384
    assert not any(module._forward_hooks for module in model.modules())
