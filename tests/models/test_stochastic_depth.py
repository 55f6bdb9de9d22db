import copy

import pytest
import torch

from fedscope.errors import UserError
from fedscope.models.catalogue import build
from fedscope.models.resnet import ResNet, blocks
from fedscope.models.stochastic_depth import Schedule, gated, keep_probabilities, set_depth


@pytest.fixture
def model() -> ResNet:
    model = build("resnet_digits", 10, 1, torch.Generator().manual_seed(0))
    assert isinstance(model, ResNet)
    return model


@pytest.fixture
def x() -> torch.Tensor:
    return torch.randn(4, 1, 8, 8, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(
    ("count", "last", "schedule", "expected"),
    [
        (4, 0.6, "paper", [0.9, 0.8, 0.7, 0.6]),
        (5, 0.6, "code", [1.0, 0.9, 0.8, 0.7, 0.6]),
        (2, 0.5, "code", [1.0, 0.5]),
        (1, 0.5, "code", [0.5]),
        (1, 0.5, "paper", [0.5]),
    ],
)
def test_schedules(count: int, last: float, schedule: Schedule, expected: list[float]) -> None:
    assert keep_probabilities(count, last, schedule) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("count", [1, 2, 3, 8, 18, 49])
@pytest.mark.parametrize("last", [1e-3, 0.1, 0.9])
def test_the_ends_are_exact(count: int, last: float) -> None:
    for schedule in ("code", "paper"):
        keeps = keep_probabilities(count, last, schedule)
        assert keeps[-1] == last
        assert keeps == sorted(keeps, reverse=True)
        assert keep_probabilities(count, 1.0, schedule) == [1.0] * count
    assert count == 1 or keep_probabilities(count, last, "code")[0] == 1.0


@pytest.mark.parametrize("last", [0.0, -0.1, 1.1, float("nan")])
def test_what_is_no_probability_is_refused(last: float) -> None:
    with pytest.raises(UserError, match=r"\(0, 1\]"):
        keep_probabilities(3, last)


def test_every_block_gets_its_probability(model: ResNet, x: torch.Tensor) -> None:
    plain = model.eval()(x)
    set_depth(model, 0.5, "code")
    assert [block.keep for block in blocks(model)] == [1.0, 0.75, 0.5]
    assert not torch.allclose(model(x), plain)
    set_depth(model, 1.0, "paper")
    assert torch.equal(model(x), plain)


def test_open_gates_train_the_plain_network(model: ResNet, x: torch.Tensor) -> None:
    plain = copy.deepcopy(model)
    set_depth(model, 0.5)
    for network in (model, plain):
        with gated(network, [True, True, True]):
            network.train()(x).square().mean().backward()
    for one, other in zip(model.parameters(), plain.parameters(), strict=True):
        assert one.grad is not None
        assert other.grad is not None
        assert torch.equal(one.grad, other.grad)
    assert all(torch.equal(t, plain.state_dict()[name]) for name, t in model.state_dict().items())


@pytest.mark.parametrize(("name", "count"), [("resnet18", 8), ("resnet20", 9)])
def test_other_networks_drop_blocks_too(name: str, count: int) -> None:
    model = build(name, 10, 3, torch.Generator().manual_seed(0), keep=0.5)
    assert [block.keep for block in blocks(model)] == keep_probabilities(count, 0.5)
    images = torch.randn(4, 3, 16, 16, generator=torch.Generator().manual_seed(1))
    with gated(model, [index % 2 == 0 for index in range(count)]):
        model.train()(images).square().sum().backward()
    dropped = [all(p.grad is None for p in block.branch.parameters()) for block in blocks(model)]
    assert dropped == [index % 2 == 1 for index in range(count)]
    shortcuts = [p for block in blocks(model) for p in block.shortcut.parameters()]
    assert all(p.grad is not None for p in shortcuts)


def test_gates_close_and_open_again(model: ResNet, x: torch.Tensor) -> None:
    with gated(model, [True, False, True]):
        assert [block.gate for block in blocks(model)] == [True, False, True]
        model.train()(x).sum().backward()
    assert all(block.gate for block in blocks(model))
    closed = [block.branch[0].weight.grad is None for block in blocks(model)]
    assert closed == [False, True, False]
    with pytest.raises(RuntimeError, match="on the way"), gated(model, [False, False, False]):
        raise RuntimeError("on the way")
    assert all(block.gate for block in blocks(model))


def test_one_gate_per_block(model: ResNet) -> None:
    with pytest.raises(ValueError, match=r"2 .*3 blocks"), gated(model, [True, False]):
        pass


def test_depth_needs_blocks() -> None:
    with pytest.raises(UserError, match=r"residual .*resnet_digits"):
        set_depth(build("mlp_digits", 10, 1, torch.Generator()), 0.9)
