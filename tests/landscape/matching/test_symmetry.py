from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from fedscope.errors import UserError
from fedscope.landscape.matching.symmetry import Symmetry, permutation_symmetry

from .nets import CASES, Attending, Depthwise, Residual, Unseen, narrow, randomise


def of(model: nn.Module, inputs: Tensor) -> Symmetry:
    return permutation_symmetry(model, [(inputs, torch.zeros(len(inputs), dtype=torch.long))])


def largest_change(model: nn.Module, inputs: Tensor, symmetry: Symmetry, seed: int = 5) -> float:
    """Return by how much a random permutation of all groups changes outputs, in float64."""
    with torch.no_grad():
        before = model(inputs)
        model.load_state_dict(symmetry.permuted(model.state_dict(), symmetry.random(seed=seed)))
        return float((model(inputs) - before).abs().max())


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_network_of_the_catalogue_computes_the_same_with_its_channels_permuted(
    case: tuple[str, None, int],
) -> None:
    model, inputs = narrow(*case)
    found = of(model, inputs)
    assert sum(found.groups.values()) > 8
    assert not found.pinned
    assert largest_change(model, inputs, found) < 1e-9
    assert found.passes == 4


def test_a_skip_connection_ties_all_layers_that_add_to_one_sum() -> None:
    model, inputs = narrow("resnet20", "B", 4)
    found = of(model, inputs)
    (group,) = {axis[0].group for axis in found.axes["stem.0.weight"][:1]}
    first = [f"layer1.{block}.branch.3.weight" for block in range(3)]
    assert all(found.axes[name][0] == found.axes["stem.0.weight"][0] for name in first)
    assert found.axes["layer2.0.shortcut.0.weight"][1][0].group == group
    assert found.axes["layer2.0.branch.3.weight"][0] == found.axes["layer2.0.shortcut.0.weight"][0]
    assert found.axes["layer2.0.branch.4.running_var"][0] == found.axes["layer2.0.shortcut.0.weight"][0]
    assert len(found.groups) == 3 + 9  # three sums, and the inside of each block


def test_a_zero_padded_shortcut_ties_the_first_channels_and_leaves_the_others_free() -> None:
    model, inputs = narrow("resnet8", "A", 2)
    found = of(model, inputs)
    stem, wide = found.axes["stem.0.weight"][0], found.axes["layer2.0.branch.3.weight"][0]
    assert [piece.length for piece in wide] == [8, 8]
    assert wide[0] == stem[0]
    assert wide[1].movable
    assert wide[1] != wide[0]
    assert "layer2.0.branch.3.weight[0][8:16]" in found.groups
    assert found.axes["fc.weight"][1][:2] == wide


def test_flattening_moves_all_places_of_a_channel_together() -> None:
    model, inputs = narrow("convnet_cifar", None, 8)
    (piece,) = of(model, inputs).axes["fc1.weight"][1]
    assert (piece.length, piece.each) == (200, 25)


def test_channels_move_within_the_groups_of_a_group_norm() -> None:
    model, inputs = narrow("convnet_tiny_gn", None, 8)
    assert [piece.length for piece in of(model, inputs).axes["norm1.weight"][0]] == [2, 2, 2, 2]


def test_depthwise_convolutions_follow_their_channels_and_grouped_ones_keep_their_inputs() -> None:
    model = Depthwise().double()
    randomise(model)
    inputs = torch.randn(4, 1, 8, 8).double()
    found = of(model, inputs)
    assert not any(piece.movable for piece in found.axes["depthwise.weight"][0])  # the grouped one's inputs
    assert [p.length for p in found.axes["grouped.weight"][0]] == [4, 4]
    assert found.pinned == ("convolution of several groups",)
    assert largest_change(model, inputs, found) < 1e-9
    alone = nn.Sequential(nn.Conv2d(1, 6, 3), nn.Conv2d(6, 12, 3, groups=6), nn.Flatten(), nn.Linear(192, 2))
    alone = alone.double()
    found = of(alone, inputs)
    assert found.groups == {"0.weight[0]": 6}
    assert found.axes["1.weight"][0][0].each == 2
    assert found.axes["3.weight"][1][0].each == 32
    assert largest_change(alone, inputs, found) < 1e-9


def test_attention_keeps_its_heads_and_the_rest_of_a_transformer_moves() -> None:
    model = Attending().double()
    inputs = torch.randint(11, (4, 5))
    found = of(model, inputs)
    assert found.groups == {"words.weight[1]": 8, "up.weight[0]": 12}
    assert found.pinned
    assert not found.axes["out.weight"][1][0].movable
    assert largest_change(model, inputs, found) < 1e-9


def test_both_axes_of_a_weight_may_move_together() -> None:
    model, inputs = Residual().double(), torch.randn(4, 3).double()
    found = of(model, inputs)
    assert found.groups == {"first.weight[0]": 5}
    assert found.axes["middle.weight"][0] == found.axes["middle.weight"][1]
    assert largest_change(model, inputs, found) < 1e-9


def test_the_model_is_left_alone_and_float32_will_do() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2)).train()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    assert of(model, torch.randn(4, 3)).groups == {"0.weight[0]": 4}
    assert model.training
    assert all(torch.equal(t, before[name]) for name, t in model.state_dict().items())


class _OwnTensor(nn.Module):
    """A network that cannot run in float64: a tensor of its own stays in float32."""

    def __init__(self) -> None:
        super().__init__()
        self.layers, self.turned = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)), torch.eye(2)

    def forward(self, x: Tensor) -> Tensor:
        return torch.mm(self.layers(x), self.turned)


def test_a_network_that_float64_does_not_suit_is_tried_as_it_is() -> None:
    assert of(_OwnTensor(), torch.randn(4, 3)).groups == {"layers.0.weight[0]": 4}


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: nn.Linear(3, 2), "no channels of the network can be permuted"),
        (Unseen, "changes the network's outputs"),
        (lambda: nn.Linear(4, 2), "cannot be told"),
    ],
    ids=["nothing hidden", "order unseen", "does not fit"],
)
def test_what_cannot_be_matched_is_refused(build: Callable[[], nn.Module], message: str) -> None:
    with pytest.raises(UserError, match=message):
        of(build(), torch.randn(4, 3))


def test_states_and_permutations_that_do_not_fit_are_refused() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    found = of(model, torch.randn(4, 3))
    with pytest.raises(UserError, match="needs a permutation of 0 to 3"):
        found.permuted(model.state_dict(), {"0.weight[0]": torch.tensor([0, 0, 1, 2])})
    with pytest.raises(UserError, match=r"0\.bias is missing"):
        state = {name: t for name, t in model.state_dict().items() if name != "0.bias"}
        found.permuted(state, found.identity())


def test_attention_is_seen_through_where_inference_has_an_operation_of_its_own() -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, dim_feedforward=16, batch_first=True)
    model = nn.Sequential(nn.Linear(5, 8), layer).eval()
    found = of(model, torch.randn(4, 3, 5))
    assert found.groups["1.linear1.weight[0]"] == 16
    assert torch.backends.mha.get_fastpath_enabled()


def test_channels_of_tensors_that_must_stay_are_left_where_they_are() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 3)).double()
    inputs = torch.randn(4, 4).double()
    whole = of(model, inputs)
    state = model.state_dict()
    some = whole.without({"4.weight": state["4.weight"]})
    assert whole.groups == {"0.weight[0]": 5, "2.weight[0]": 6}
    assert some.groups == {"0.weight[0]": 5}
    moved = some.permuted(model.state_dict(), some.random(seed=1))
    assert torch.equal(moved["4.weight"], model.state_dict()["4.weight"])
    assert not torch.equal(moved["2.weight"], model.state_dict()["2.weight"])
    assert largest_change(model, inputs, some) < 1e-12
    with pytest.raises(UserError, match="nothing to match"):
        whole.without({name: state[name] for name in ("0.weight", "4.weight")})
    assert whole.without({"2.bias": torch.zeros(6)}).groups == whole.groups  # any order leaves it as it is
