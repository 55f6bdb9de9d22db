"""A network at other parameters: the module's own numbers, and nothing left behind."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedscope.federated.record.flat import FlatModel
from fedscope.federated.record.network import Network
from fedscope.federated.record.vectors import Layout, Vector
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
    layout = Layout(vectors, parameters=2, model=3, personal=1)
    assert layout.width == 2 + 3 + 1 + 1
    row = layout.fresh(torch.tensor([5.0, 6.0, 7.0]))
    assert row.tolist() == [0, 0, 5, 6, 7, 0, 0]
    rows = torch.arange(14.0).view(2, 7)
    split = layout.split(rows)
    assert {name: list(part.shape) for name, part in split.items()} == {
        "a": [2, 2], "b": [2, 3], "c": [2, 1], "d": [2, 1],
    }  # fmt: skip
    assert torch.equal(layout.join(split, 2), rows)
    nothing = Layout((), 2, 3)
    assert nothing.fresh(torch.zeros(3)).shape == (0,)
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
