"""A network's tensors as views of one vector."""

import copy

import pytest
import torch
from torch import nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy

from fedscope.federated.record.flat import FlatModel
from fedscope.models.catalogue import build

MODELS = {"resnet_digits": (1, 8), "convnet_cifar": (3, 32), "resnet56_bottleneck": (3, 32)}


def both(name: str, stack: int = 1) -> tuple[nn.Module, FlatModel, torch.Tensor]:
    """Return a double-precision network, the same one flattened, and inputs."""
    channels, side = MODELS[name]
    plain = build(name, 10, channels, torch.Generator().manual_seed(0)).double()
    inputs = torch.rand(3, channels, side, side, generator=torch.Generator().manual_seed(1)).double()
    return plain, FlatModel(copy.deepcopy(plain), stack), inputs


@pytest.mark.parametrize("name", MODELS)
def test_it_computes_and_learns_what_the_plain_network_does(name: str) -> None:
    plain, flat, inputs = both(name)
    labels = torch.tensor([1, 2, 3])
    for model in (plain, flat.module):
        cross_entropy(model(inputs), labels).backward()
    for (key, p), q in zip(plain.named_parameters(), flat.module.parameters(), strict=True):
        assert p.grad is not None
        assert q.grad is not None
        torch.testing.assert_close(q.grad, p.grad, rtol=1e-9, atol=1e-12, msg=key)
    norm = torch.cat([p.grad.flatten() for p in plain.parameters() if p.grad is not None]).norm()
    torch.testing.assert_close(flat.gradient.norm(), norm)
    state = flat.state_dict(flat.values[0], flat.counters)
    for key, tensor in plain.state_dict().items():  # the BatchNorm statistics and counters of that pass too
        torch.testing.assert_close(state[key], tensor, rtol=1e-9, atol=1e-12)
        assert state[key].is_contiguous()


def test_moving_the_vector_moves_the_network() -> None:
    _, flat, inputs = both("convnet_cifar")
    with torch.no_grad():
        flat.values.zero_()
    assert (flat.module(inputs) == 0).all()


def test_the_flat_leaf_and_the_layers_add_to_one_gradient() -> None:
    _, flat, inputs = both("resnet_digits")
    (flat.module(inputs).sum() + 0.5 * flat.parameters.square().sum()).backward()
    alone = copy.deepcopy(flat.gradient)
    flat.gradient.zero_()
    flat.module(inputs).sum().backward()
    torch.testing.assert_close(alone - flat.gradient, flat.values[:, : flat.size])


@pytest.mark.parametrize("name", ["resnet_digits", "convnet_cifar"])
def test_any_row_of_a_stack_computes(name: str) -> None:
    plain, flat, inputs = both(name, stack=2)
    plain.eval()
    flat.module.eval()
    flat.values[1] = flat.values[0] * 0.5
    named = flat.tensors(flat.values[1, : flat.size], flat.buffers(flat.values[1]), flat.counters)
    half = {k: (0.5 * t if t.is_floating_point() else t) for k, t in plain.state_dict().items()}
    torch.testing.assert_close(
        functional_call(flat.module, named, inputs), functional_call(plain, half, inputs)
    )


def test_tied_and_frozen_parameters() -> None:
    first, second = nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False)
    second.weight = first.weight
    frozen = nn.Linear(3, 2).requires_grad_(False)
    flat = FlatModel(nn.Sequential(first, second, frozen))
    assert flat.size == 9
    assert flat.values.shape == (1, 17)
    flat.values[0, 0] = 5
    assert first.weight[0, 0] == second.weight[0, 0] == 5
    assert set(flat.state_dict(flat.values[0], flat.counters)) == {
        "0.weight", "1.weight", "2.weight", "2.bias",
    }  # fmt: skip


def test_mixed_precision_networks_are_refused() -> None:
    with pytest.raises(ValueError, match="one dtype"):
        FlatModel(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2).double()))
