"""A network at other parameters: the module's own numbers, and nothing left behind."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedscope.federated.record.flat import FlatModel
from fedscope.federated.record.network import Network, chunk, is_dense, pooled_first
from fedscope.federated.record.vectors import RowLayout, Vector
from fedscope.models.catalogue import build


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("train", [False, True])
def test_at_other_values_it_is_the_other_network(train: bool) -> None:
    one, other = (FlatModel(build("resnet_digits", 10, 1, seeded(seed)).double()) for seed in (0, 1))
    images = torch.rand(5, 1, 8, 8, generator=seeded(), dtype=torch.float64)
    one.module.train()
    before = one.values.clone()
    other.module.train(train)
    values = other.values[0].clone()
    found = Network(one, bf16=False).at(values, lambda module, x: module(x), images, train=train)
    with torch.no_grad():
        torch.testing.assert_close(found, other.module(images))
    assert torch.equal(one.values, before)
    assert one.module.training
    assert not found.requires_grad
    assert torch.equal(values, FlatModel(build("resnet_digits", 10, 1, seeded(1)).double()).values[0])


def test_gradients_of_samples_are_autograds() -> None:
    model = FlatModel(build("resnet_digits", 10, 1, seeded()).double())
    network = Network(model, bf16=False)
    model.module.train()
    images = torch.rand(40, 1, 8, 8, generator=seeded(), dtype=torch.float64)
    labels = torch.arange(40) % 10
    found = torch.cat(list(network.gradients(model.values[0], images, labels)))
    assert found.shape == (40, model.size)
    model.module.eval()
    for index in (0, 17, 39):
        model.gradient.zero_()
        loss = cross_entropy(model.module(images[index : index + 1]), labels[index : index + 1])
        loss.backward()
        torch.testing.assert_close(found[index], model.gradient[0])


def test_the_fisher_information_of_a_linear_gaussian_model_is_the_mean_square() -> None:
    """Squared gradients of ½(wx − y)² at residual ±1 are x²: here by two classes and their logits (0, wx)."""
    model = FlatModel(nn.Linear(1, 2, bias=False).double())
    model.values.zero_()
    x = torch.randn(50, 1, generator=seeded(), dtype=torch.float64)
    gradients = torch.cat(
        list(Network(model, bf16=False).gradients(model.values[0], x, torch.zeros(50).long()))
    )
    # at w = 0 both classes have probability ½: ∂/∂w_c = ∓½x
    torch.testing.assert_close(gradients.square().mean(0), (x.square().mean() / 4).expand(2))


def test_vectors_lie_side_by_side() -> None:
    vectors = (
        Vector("a"),
        Vector("b", "model", start="initial"),
        Vector("c", "number"),
        Vector("d", "personal"),
    )
    layout = RowLayout(vectors, parameters=2, model=3, personal=1)
    assert layout.width == 2 + 3 + 1 + 1
    row = layout.initial_row(torch.tensor([5.0, 6.0, 7.0]))
    assert row.tolist() == [0, 0, 5, 6, 7, 0, 0]
    both = RowLayout([Vector("e", start="initial"), Vector("f", "model", start="own")], 2, 3)
    initial, own = torch.tensor([5.0, 6.0, 7.0]), torch.tensor([1.0, 2.0, 3.0])
    assert both.initial_row(initial, own).tolist() == [5, 6, 1, 2, 3]
    assert both.initial_row(initial).tolist() == [5, 6, 5, 6, 7]
    rows = torch.arange(14.0).view(2, 7)
    split = layout.split(rows)
    assert {name: list(part.shape) for name, part in split.items()} == {
        "a": [2, 2], "b": [2, 3], "c": [2, 1], "d": [2, 1],
    }  # fmt: skip
    assert torch.equal(layout.join(split, 2), rows)
    nothing = RowLayout((), 2, 3)
    assert nothing.initial_row(torch.zeros(3)).shape == (0,)
    assert nothing.split(torch.zeros(4, 0)) == {}


def test_a_mask_covers_what_it_names() -> None:
    model = FlatModel(nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)))
    mask: Tensor = model.mask(["0.bias", "1.running_var", "1.num_batches_tracked"])
    chosen = torch.zeros_like(model.values)
    chosen[0, mask] = 1
    model.values.copy_(chosen)
    state = model.state_dict(model.values[0], model.counters)
    assert {name for name, tensor in state.items() if tensor.is_floating_point() and tensor.all()} == {
        "0.bias", "1.running_var",
    }  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kernel", [(2, 2), (3, 2), (3, 1)])
def test_pooling_before_a_relu_changes_no_bit(dtype: torch.dtype, kernel: tuple[int, int]) -> None:
    """Also where windows overlap, numbers are equal, and a window has no positive one."""
    side, stride = kernel
    network = nn.Sequential(
        nn.Conv2d(2, 8, 3), nn.ReLU(), nn.MaxPool2d(side, stride), nn.Conv2d(8, 4, 2), nn.ReLU(),
        nn.MaxPool2d(side, stride, padding=1), nn.Flatten(), nn.LazyLinear(3),
    )  # fmt: skip
    images = torch.randn(6, 2, 14, 14, generator=seeded()).mul(4).round().to(torch.float32)
    images[0] = 0.0
    images[1, :, 5:, 5:] = -3.0
    network(images)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.copy_(torch.randint(-2, 3, parameter.shape, generator=seeded(1)) / 4)
    swapped = pooled_first(network)
    assert [type(layer) for layer in swapped[1:3]] == [nn.MaxPool2d, nn.ReLU]  # type: ignore[index]
    assert list(swapped.parameters()) == list(network.parameters())
    found = []
    for model in (network, swapped):
        inputs = images.clone().contiguous(memory_format=torch.channels_last).requires_grad_()
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
            logits = model(inputs)
        loss = cross_entropy(logits.float(), torch.arange(6) % 3)
        found.append([logits, *torch.autograd.grad(loss, [inputs, *network.parameters()])])
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))
    assert all(bool(gradient.count_nonzero()) for gradient in found[0][1:])


def test_pooling_and_values_that_are_not_finite() -> None:
    layers = nn.Sequential(nn.ReLU(), nn.MaxPool2d(2))
    images = torch.tensor([[-1.0, torch.nan], [torch.inf, -torch.inf]]).repeat(2, 1, 2, 2)
    images[1] = -torch.inf
    assert torch.equal(layers(images).isnan(), pooled_first(layers)(images).isnan())
    assert torch.equal(layers(images).nan_to_num(7), pooled_first(layers)(images).nan_to_num(7))


def test_other_networks_stay_as_they_are() -> None:
    class Own(nn.Sequential):
        pass

    for network in (Own(nn.ReLU(), nn.MaxPool2d(2)), build("resnet_digits", 10, 1, seeded())):
        assert pooled_first(network) is network
    mixed = nn.Sequential(nn.ReLU6(), nn.MaxPool2d(2), nn.ReLU(), nn.AvgPool2d(2))
    assert list(pooled_first(mixed)) == list(mixed)  # type: ignore[call-overload]


def test_a_dense_network_has_linear_layers_alone() -> None:
    assert is_dense(build("mlp_digits", 10, 1, seeded()))
    assert not is_dense(build("lenet5", 10, 3, seeded()))
    assert not is_dense(nn.Sequential(nn.Linear(2, 2), nn.LayerNorm(2)))
    assert not is_dense(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2, affine=False)))


def test_a_gpu_takes_more_samples_own_gradients_at_once() -> None:
    """As many as a gibibyte holds, at most 512; a CPU 32, whose digits runs have."""
    cpu, gpu = torch.device("cpu"), torch.device("cuda")
    assert [chunk(cpu, size) for size in (1, 10**9)] == [32, 32]
    assert [chunk(gpu, size) for size in (1_000, 815_332, 10**9)] == [512, 329, 32]
