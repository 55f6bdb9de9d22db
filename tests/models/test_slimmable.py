import copy
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.func import functional_call, vmap

from fedscope.errors import UserError
from fedscope.federated.record.flat import FlatModel
from fedscope.models.catalogue import build
from fedscope.models.resnet import Padded, ResNet, padded
from fedscope.models.slimmable import channels, slim
from fedscope.models.stochastic_depth import gated
from tests import tiers

CASES = [  # network, head, width, divisor
    ("resnet_digits", False, 0.5, 1),
    ("resnet_digits", True, 0.7, 2),
    ("resnet56_bottleneck", False, 0.25, 8),
    ("resnet56_bottleneck", True, 0.8, 8),
    ("resnet20", False, 0.25, 8),
    ("resnet20", True, 0.55, 2),
    ("resnet18", False, 0.25, 8),
    ("resnet18_gn", False, 0.5, 8),
]


def network(name: str = "resnet_digits", head: bool = False) -> ResNet:
    model = build(name, 10, 3, torch.Generator().manual_seed(0), head=head)
    assert isinstance(model, ResNet)
    for module in model.modules():  # no two channels alike, nothing at its default
        if isinstance(module, nn.BatchNorm2d | nn.GroupNorm):
            module.eps = 1e-3
            for parameter in module.parameters():
                parameter.data += 0.1 * torch.arange(len(parameter)).sin()
    return model


def images(name: str = "resnet_digits") -> Tensor:
    side = 32 if name == "resnet56_bottleneck" else 17 if name == "resnet18" else 8
    return torch.randn(3, 3, side, side, generator=torch.Generator().manual_seed(1))


def cut(model: ResNet, width: float, divisor: int) -> ResNet:
    """A network of its own at ``width``, whose layers hold copies of the first channels."""
    narrow = copy.deepcopy(model)
    for name, module in narrow.named_modules():
        if isinstance(module, nn.Conv2d):
            outputs, inputs = channels(module.out_channels, width, divisor), module.in_channels
            inputs = inputs if name == "stem.0" else channels(inputs, width, divisor)
            module.weight = nn.Parameter(module.weight[:outputs, :inputs].clone())
        elif isinstance(module, nn.BatchNorm2d):
            count = channels(module.num_features, width, divisor)
            for own in ("weight", "bias", "running_mean", "running_var"):
                getattr(module, own).data = getattr(module, own)[:count].clone()
        elif isinstance(module, nn.GroupNorm):
            module.num_channels = channels(module.num_channels, width, divisor)
            for own in ("weight", "bias"):
                getattr(module, own).data = getattr(module, own)[: module.num_channels].clone()
        elif isinstance(module, Padded):
            module.outputs = channels(module.outputs, width, divisor)
    first = narrow.fc if narrow.head is None else narrow.get_submodule("head.0")
    assert isinstance(first, nn.Linear)
    first.weight = nn.Parameter(first.weight[:, : channels(first.in_features, width, divisor)].clone())
    return narrow.train()


@pytest.mark.parametrize(
    ("width", "expected"),
    [
        (0.8, {16: 16, 32: 24, 64: 48, 128: 104, 256: 208, 512: 408}),
        (0.25, {16: 8, 32: 8, 64: 16, 128: 32, 256: 64, 512: 128}),
        (1.0, {3: 3, 10: 10, 16: 16, 17: 17}),
    ],
)
def test_published_channels(width: float, expected: dict[int, int]) -> None:
    assert {count: channels(count, width) for count in expected} == expected


@settings(max_examples=tiers.examples(), deadline=None)
@given(count=st.integers(1, 600), width=st.floats(1e-6, 1), divisor=st.integers(1, 16))
def test_channels_are_some_not_too_few_and_there(count: int, width: float, divisor: int) -> None:
    found = channels(count, width, divisor)
    assert 1 <= found <= count
    assert found >= min(count, 0.9 * width * count)
    assert found % divisor in (0, 1) or found == count  # 1: from the lower bound of one channel


@pytest.mark.parametrize("width", [0.0, -0.5, 1.01, float("nan")])
def test_widths_are_shares(width: float) -> None:
    with pytest.raises(ValueError, match=r"width .*\(0, 1\]"):
        channels(16, width)


@pytest.mark.parametrize("name", ["resnet_digits", "resnet56_bottleneck", "resnet20", "resnet18"])
@pytest.mark.parametrize("head", [False, True])
def test_full_width_is_training_without_running_statistics(name: str, head: bool) -> None:
    model, x = network(name, head), images(name)
    before = copy.deepcopy(model.state_dict())
    out = slim(model, x, 1.0)
    assert all(torch.equal(t, before[key]) for key, t in model.state_dict().items())
    assert torch.equal(out, model.train()(x))


@pytest.mark.parametrize(("name", "head", "width", "divisor"), CASES)
def test_a_narrow_pass_is_a_narrow_network(name: str, head: bool, width: float, divisor: int) -> None:
    model, x = network(name, head), images(name)
    before = copy.deepcopy(model.state_dict())
    out = slim(model.eval(), x, width, divisor)
    torch.testing.assert_close(out, cut(model, width, divisor)(x))
    assert not torch.allclose(out, slim(model, x, 1.0), rtol=0.01)
    assert all(torch.equal(t, before[key]) for key, t in model.state_dict().items())


def test_the_last_group_alone() -> None:
    model = network("resnet56_bottleneck")
    features = torch.randn(2, 128, 16, 16, generator=torch.Generator().manual_seed(1)).relu()
    first = features[:, : channels(128, 0.25)]
    out = slim(model.groups[-1], first, 0.25)
    assert out.shape == (2, 64, 8, 8)
    torch.testing.assert_close(out, cut(model, 0.25, 8).groups[-1](first))


@pytest.mark.parametrize(("name", "head", "width", "divisor"), CASES)
def test_only_the_first_channels_learn(name: str, head: bool, width: float, divisor: int) -> None:
    model, x = network(name, head).double(), images(name).double()
    narrow = cut(model, width, divisor)
    slim(model, x, width, divisor).square().sum().backward()
    narrow(x).square().sum().backward()
    parts = dict(narrow.named_parameters())
    for key, parameter in model.named_parameters():
        part = parts[key].grad
        assert parameter.grad is not None
        assert part is not None
        used = tuple(slice(size) for size in part.shape)
        torch.testing.assert_close(parameter.grad[used], part)
        parameter.grad[used] = 0
        assert not parameter.grad.any()


@pytest.mark.parametrize("width", [0.3, 0.5, 1.0])
def test_a_layer_gives_its_first_channels(width: float) -> None:
    layer, x = nn.Conv2d(3, 10, 3, stride=2, padding=2, dilation=2), images()
    torch.testing.assert_close(slim(layer, x, width, 2), layer(x)[:, : channels(10, width, 2)])
    dense = nn.Linear(6, 4)
    few = torch.cat([x.flatten(1)[:, :5], torch.zeros(3, 1)], 1)
    torch.testing.assert_close(slim(dense, few[:, :5], width, 2), dense(few))


def test_the_first_channels_of_a_padded_shortcut() -> None:
    """What a narrow network adds is what the full one adds where the other channels are silent."""
    x = torch.randn(2, 10, 5, 4, generator=torch.Generator().manual_seed(0))
    silent = torch.cat([x[:, :6], torch.zeros(2, 4, 5, 4)], 1)
    narrow = slim(Padded(20, 2), x[:, :6], 0.6, 2)
    assert narrow.shape == (2, 12, 3, 2)
    assert torch.equal(narrow, padded(silent, 20, 2)[:, :12])
    assert not padded(silent, 20, 2)[:, 12:].any()


def test_pooling_has_all_widths() -> None:
    x = torch.randn(2, 3, 9, 9, generator=torch.Generator().manual_seed(0))
    for pool in (nn.MaxPool2d(3, 2, 1), nn.MaxPool2d(2, ceil_mode=True), nn.MaxPool2d(3, 1, 1, dilation=2)):
        assert torch.equal(slim(pool, x, 0.5), pool(x))


def test_gates_and_hooks_are_not_asked() -> None:
    model, x, calls = network().train(), images(), []
    for module in model.modules():
        module.register_forward_hook(lambda *_: calls.append(1))
    expected = slim(model, x, 0.5, 2)
    with gated(model, [False, False, False]):
        assert torch.equal(slim(model, x, 0.5, 2), expected)
    assert not calls


class Narrow(nn.Module):
    def __init__(self, model: ResNet):
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        return slim(self.model, x, 0.5, 2)


def test_weights_may_be_replaced_for_the_call() -> None:
    model, x = network(), images()
    weights = {f"model.{name}": (0.5 * p).detach().requires_grad_() for name, p in model.named_parameters()}
    out = functional_call(Narrow(model), weights, (x,))
    halved = copy.deepcopy(model)
    halved.load_state_dict({name.removeprefix("model."): p for name, p in weights.items()}, strict=False)
    assert torch.equal(out, slim(halved, x, 0.5, 2))
    out.sum().backward()
    assert all(weight.grad is not None for weight in weights.values())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_a_stack_of_clients() -> None:
    model, x = network().double(), images().double()
    stack = {f"model.{name}": torch.stack([p, 2 * p]).detach() for name, p in model.named_parameters()}
    out = vmap(lambda weights: functional_call(Narrow(model), weights, (x,)))(stack)
    for row in range(2):
        alone = functional_call(Narrow(model), {name: t[row] for name, t in stack.items()}, (x,))
        torch.testing.assert_close(out[row], alone)


def test_gradients_reach_the_flat_vector() -> None:
    model, x = network(), images()
    flat = FlatModel(copy.deepcopy(model))
    slim(model, x, 0.5, 2).sum().backward()
    slim(flat.module, x, 0.5, 2).sum().backward()
    for one, other in zip(model.parameters(), flat.module.parameters(), strict=True):
        assert one.grad is not None
        torch.testing.assert_close(one.grad, other.grad)
    assert flat.gradient.any()


def test_bf16_autocast() -> None:
    model, x = network(), images()
    with torch.autocast("cpu", torch.bfloat16):
        out = slim(model, x, 0.5, 2)
        assert slim(model.stem, x, 0.5, 2).dtype == torch.bfloat16
    assert out.dtype == torch.bfloat16
    torch.testing.assert_close(out.float(), slim(model, x, 0.5, 2), rtol=0.1, atol=0.05)
    out.float().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def test_a_compiler_sees_one_graph() -> None:
    model, x = network(), images()
    compiled = torch.compile(slim, backend="eager", fullgraph=True)
    assert torch.equal(compiled(model, x, 0.5, 2), slim(model, x, 0.5, 2))


@pytest.mark.parametrize(
    ("module", "name"),
    [
        (lambda: build("convnet_cifar", 10, 3, torch.Generator()), "Flatten"),
        (lambda: build("alexnet_bn", 10, 3, torch.Generator()), "AdaptiveAvgPool2d"),
        (lambda: nn.MaxPool2d(2, return_indices=True), "MaxPool2d"),
        (lambda: nn.Conv2d(4, 4, 1, groups=2), "Conv2d"),
        (lambda: nn.GroupNorm(2, 4), "GroupNorm"),
    ],
)
def test_other_layers_have_no_width(module: Callable[[], nn.Module], name: str) -> None:
    x = torch.zeros(2, 3, 64, 64)
    with pytest.raises(UserError, match=f"{name} .*GradAug .*FedAlign"):
        slim(module(), x, 0.5)
