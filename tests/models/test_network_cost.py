from typing import cast

import pytest
import torch
from torch import Tensor, nn

from fedscope.models.catalogue import build
from fedscope.models.network_cost import multiply_accumulates, norm_affine, parameter_count
from fedscope.models.resnet import ResNet, blocks
from fedscope.models.slimmable import slim
from fedscope.models.stochastic_depth import Schedule, gated, keep_probabilities

POOLED = 256 * 8 * 8


def network(name: str = "resnet56_bottleneck", head: bool = False) -> nn.Module:
    return build(name, 100, 3, torch.Generator().manual_seed(0), head=head)


@pytest.mark.parametrize(
    ("name", "head", "expected"),
    [
        ("resnet56_bottleneck", False, 87_237_632 + POOLED),
        ("resnet56_bottleneck", True, 87_368_704 + POOLED),
        ("convnet_cifar", False, 14_710_528),
    ],
)
def test_published_forward_passes(name: str, head: bool, expected: int) -> None:
    model, x = network(name, head), torch.zeros(2, 3, 32, 32)
    assert multiply_accumulates(lambda: model.eval()(x)) == 2 * expected
    assert multiply_accumulates(lambda: model.train()(x)) == 2 * expected
    assert multiply_accumulates(lambda: (model(x), model(x[:1]))) == 3 * expected


def test_the_published_cost_of_the_tiny_imagenet_network() -> None:
    model = build("convnet_tiny_gn", 200, 3, torch.Generator().manual_seed(0))
    assert multiply_accumulates(lambda: model(torch.zeros(2, 3, 64, 64))) == 2 * 56_634_368


def test_precision_and_layout_cost_nothing() -> None:
    model = network()
    x = torch.zeros(1, 3, 32, 32).contiguous(memory_format=torch.channels_last)
    with torch.autocast("cpu", torch.bfloat16):
        assert multiply_accumulates(lambda: model(x)) == 87_237_632 + POOLED
    with torch.inference_mode():
        assert multiply_accumulates(lambda: model(x)) == 87_237_632 + POOLED


def test_the_sub_block_of_fedalign() -> None:
    model, x = cast(ResNet, network()), torch.zeros(2, 32, 16, 16)
    assert multiply_accumulates(lambda: slim(model.groups[-1], x, 0.25)) == 2 * 1_867_776


def test_the_sub_network_of_gradaug() -> None:
    model, total = network(), 0
    for side in (32, 28, 24, 20):
        x = torch.zeros(2, 3, side, side)
        total += multiply_accumulates(lambda x=x: slim(model, x, 0.8))  # type: ignore[misc]
    assert total / 4 / 2 == pytest.approx(40.4e6, abs=0.05e6)


def test_the_expected_cost_of_stochastic_depth() -> None:
    model, x = network().train(), torch.zeros(1, 3, 32, 32)
    full, branches = 87_237_632 + POOLED, []
    for dropped in blocks(model):
        with gated(model, [block is not dropped for block in blocks(model)]):
            branches.append(full - multiply_accumulates(lambda: model(x)))

    def expected(schedule: Schedule) -> float:
        keeps = keep_probabilities(len(branches), 0.9, schedule)
        return full - sum((1 - keep) * branch for keep, branch in zip(keeps, branches, strict=True))

    assert expected("code") == pytest.approx(83.1e6, abs=0.05e6)
    assert expected("paper") == pytest.approx(82.9e6, abs=0.05e6)


def test_products_of_a_loss_are_free() -> None:
    x, y = torch.zeros(4, 8, 16), torch.zeros(4, 16, 8)

    def loss() -> Tensor:
        return (x @ y).sum() + (x[0] @ y[0]).square().mean((0, 1)) + x.mean()

    assert multiply_accumulates(loss) == 0
    assert multiply_accumulates(lambda: None) == 0


def test_a_pool_is_a_mean_over_both_spatial_dimensions() -> None:
    x = torch.zeros(2, 3, 4, 5)
    assert multiply_accumulates(lambda: x.mean((-1, -2))) == x.numel()
    assert multiply_accumulates(lambda: nn.AdaptiveAvgPool2d(1)(x)) == x.numel()
    assert multiply_accumulates(lambda: (x.mean((0, 1)), x.mean(3), x[0].mean((-1, -2)), x.mean())) == 0


def test_gradients_are_neither_made_nor_counted() -> None:
    layer, x = nn.Linear(5, 7), torch.zeros(3, 5)
    results: list[Tensor] = []
    assert multiply_accumulates(lambda: results.append(layer(x))) == 3 * 5 * 7
    assert not results[0].requires_grad


@pytest.mark.parametrize(("head", "expected"), [(False, 605_460), (True, 737_044)])
def test_published_parameter_column(head: bool, expected: int) -> None:
    model = network(head=head)
    assert parameter_count(model) - norm_affine(model) == expected


def test_every_normalisation_counts() -> None:
    model = nn.Sequential(
        nn.Linear(4, 4), nn.LayerNorm(4), nn.GroupNorm(2, 6), nn.BatchNorm2d(3, affine=False)
    )
    assert norm_affine(model) == 8 + 12
    assert parameter_count(model.requires_grad_(False)) == 20 + 8 + 12
