"""Outputs at any point of weight space against the network as PyTorch runs it."""

import math
from collections.abc import Callable
from types import MethodType
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, relu

from fedscope.landscape import Batches, surface
from fedscope.landscape.surfaces.forward import Forward


class Residual(nn.Module):
    """Convolutions before BatchNorm and ReLU, before an addition and ReLU, and alone."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(inplace))
        self.one, self.bn1 = nn.Conv2d(4, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4)
        self.two, self.bn2 = nn.Conv2d(4, 8, 3, 2, 1), nn.BatchNorm2d(8, affine=False)
        self.shortcut = nn.Conv2d(4, 8, 1, 2, bias=False)
        self.act = nn.ReLU(inplace)
        self.alone = nn.Conv2d(8, 8, 3, groups=2)
        self.fc = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        y = self.bn2(self.two(self.act(self.bn1(self.one(x)))))
        x = self.act(y + self.shortcut(x))
        x = torch.sigmoid(self.alone(x)) + 0.1 * relu(self.alone(x))
        logits: Tensor = self.fc(x.mean((2, 3)))
        return logits


class Adding(nn.Module):
    """Additions in place, of a number, with a factor, of another shape, of a tensor to itself."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv2d(c, 4, 3, padding=1) for c in (1, 4, 4, 4, 4, 4))
        self.fc = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        a, b, c, d, e, f = self.convs
        x = a(x)
        y = b(x)
        y += x
        y = torch.relu(y)
        z = torch.add(c(y), x, alpha=0.5)
        z = (d(z) + 1.5).relu()
        z = e(z) + z.mean((2, 3), keepdim=True)
        z = f(relu(z))
        z = (z + z).relu_()
        logits: Tensor = self.fc(z.mean((2, 3)))
        return logits


class Branching(nn.Module):
    """A forward that looks at its values."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.fc = nn.Conv2d(1, 4, 3), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(x)
        logits: Tensor = self.fc((x if float(x.detach().sum()) > 0 else -x).mean((2, 3)))
        return logits


class Late(nn.Module):
    """The convolution's input is changed after it and before its BatchNorm."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.conv, self.bn = nn.Conv2d(1, 4, 3), nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.fc = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        y = self.conv(x)
        x.tanh_()
        logits: Tensor = self.fc((relu(self.bn(y)) * x).mean((2, 3)))
        return logits


class OwnNorm(nn.BatchNorm2d):
    """BatchNorm with a forward of its own."""

    def forward(self, x: Tensor) -> Tensor:
        assert self.running_mean is not None
        assert self.running_var is not None
        scale = (self.running_var + self.eps).rsqrt()
        x = (x - self.running_mean.view(1, -1, 1, 1)) * scale.view(1, -1, 1, 1)
        return x * self.weight.view(1, -1, 1, 1) + self.bias.view(1, -1, 1, 1)


class ByName(nn.Module):
    """A weight that is got at by its name."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.fc = nn.Conv2d(1, 4, 3), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        weight = dict(self.fc.named_parameters())["weight"]
        return nn.functional.linear(relu(self.conv(x)).mean((2, 3)), weight / weight.norm())


def _with_own_norm() -> nn.Module:
    net = Residual()
    net.bn1 = OwnNorm(4)
    return net


NETS: dict[str, Callable[[], nn.Module]] = {
    "residual": Residual,
    "residual, in place": lambda: Residual(inplace=True),
    "adding": Adding,
    "branching": Branching,
    "late": Late,
    "a norm's own forward": _with_own_norm,
    "by name": ByName,
}


def _case(name: str) -> tuple[nn.Module, Batches]:
    torch.manual_seed(4)
    net, inputs = NETS[name](), torch.randn(21, 1, 9, 9)
    net(inputs)
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d) and module.affine:
            nn.init.normal_(module.weight, 1, 0.3)
            nn.init.normal_(module.bias, 0, 0.3)
    return net.eval(), Batches(inputs, torch.randint(3, (21,)), 8)


def _forward(model: nn.Module, batches: Batches) -> Forward:
    return Forward(model, cross_entropy, batches, bn="eval", everywhere=False)


@pytest.mark.parametrize("name", NETS)
def test_outputs_are_the_networks_own_wherever_its_weights_are(name: str) -> None:
    model, batches = _case(name)
    forward = _forward(model, batches)
    loss = forward.loss
    moved = loss.center + 0.2 * torch.randn(len(loss.center), generator=torch.Generator().manual_seed(1))
    norms = {name: value for name, value in model.named_buffers() if "running" in name}
    state = model.state_dict() | {name: 0.5 * value for name, value in norms.items()}
    point = forward.space.flat(state)
    point[: forward.space.n] = moved
    forward.load(point)
    outputs = forward.outputs()
    torch.nn.utils.vector_to_parameters(moved, model.parameters())
    for value in norms.values():
        value.mul_(0.5)
    with torch.no_grad():
        for output, (inputs, _) in zip(outputs, batches, strict=True):
            torch.testing.assert_close(output, model(inputs), rtol=1e-5, atol=1e-6)


LAYERS = ("stem.0.weight", "one.weight", "two.bias", "shortcut.weight", "bn1.weight")


@pytest.mark.parametrize("value", [math.nan, math.inf, 1e38])
@pytest.mark.parametrize("layer", LAYERS)
def test_a_centre_that_is_not_finite_is_not_hidden(layer: str, value: float) -> None:
    model, batches = _case("residual")
    with torch.no_grad():
        dict(model.named_parameters())[layer].fill_(value)
    n = sum(p.numel() for p in model.parameters())
    found = surface(model, cross_entropy, batches, directions=(torch.zeros(n),), grid=1)
    torch.testing.assert_close(found.loss[0], _loss(model, batches), rtol=1e-5, atol=0, equal_nan=True)


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("value", [1e20, 1e30, 1e38])
def test_what_overflows_away_from_the_centre_is_not_hidden(layer: str, value: float) -> None:
    model, batches = _case("residual")
    centre = torch.nn.utils.parameters_to_vector(model.parameters()).detach()
    with torch.no_grad():
        dict(model.named_parameters())[layer].mul_(value)
    direction = torch.nn.utils.parameters_to_vector(model.parameters()).detach() - centre
    truth = _loss(model, batches)
    torch.nn.utils.vector_to_parameters(centre, model.parameters())
    found = surface(model, cross_entropy, batches, directions=(direction,), values=[[1.0]])
    torch.testing.assert_close(found.loss[0], truth, rtol=1e-5, atol=0, equal_nan=True)


@torch.no_grad()
def _loss(model: nn.Module, batches: Batches) -> Tensor:
    losses = [len(y) * cross_entropy(model(x), y).double() for x, y in batches]
    return torch.stack(losses).sum() / batches.samples


def test_hooks_see_what_they_saw() -> None:
    model, batches = _case("residual")
    model.get_submodule("one").register_forward_hook(lambda _m, _i, output: 2 * output)
    forward = _forward(model, batches)
    with torch.no_grad():
        for output, (inputs, _) in zip(forward.outputs(), batches, strict=True):
            torch.testing.assert_close(output, model(inputs), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("place", ["one", "bn1", "act"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_forward_that_was_put_into_a_layer_is_kept(place: str, dtype: torch.dtype) -> None:
    model, batches = _case("residual")
    layer = model.to(dtype).get_submodule(place)

    def twice(self: nn.Module, x: Tensor) -> Any:
        return 2 * type(self).forward(self, x)

    layer.__dict__["forward"] = MethodType(twice, layer)
    batches = batches.to("cpu", dtype)
    forward = _forward(model, batches)
    with torch.no_grad():
        for output, (inputs, _) in zip(forward.outputs(), batches, strict=True):
            torch.testing.assert_close(output, model(inputs), rtol=1e-5, atol=1e-6)


def test_small_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    model, batches = _case("residual")
    whole = _forward(model, batches).outputs()
    monkeypatch.setattr("fedscope.landscape.surfaces.forward._BLOCK", {"cpu": 3 * 9 * 9 * 4 * 4})
    blocks = _forward(model, batches)
    assert [len(block) for block in blocks._blocks or []] == [3] * 7
    for ours, theirs in zip(blocks.outputs(), whole, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-6)


def test_samples_that_depend_on_each_other_stay_together() -> None:
    class Centred(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(2, 3)

        def forward(self, x: Tensor) -> Tensor:
            logits: Tensor = self.fc(x - x.mean(0))
            return logits

    batches = Batches(torch.randn(9, 2), torch.randint(3, (9,)), 5)
    forward = _forward(Centred(), batches)
    loss = forward.loss
    assert forward._blocks is None
    for output, (inputs, _) in zip(forward.outputs(), batches, strict=True):
        own = loss.outputs(inputs)
        torch.testing.assert_close(output, own, rtol=0, atol=0)
