"""Coordinates of all that a network computes with, and the loss at networks that a slice passes through."""

import copy
import math

import pytest
import torch
from torch import Tensor, nn

from fedscope.errors import UserError
from fedscope.landscape import surface
from fedscope.landscape.loss.state_space import StateSpace
from fedscope.landscape.surfaces.network_planes import Networks, best_plane, line_between, plane_through
from tests.landscape.cases import Case, convnet


class Tied(nn.Module):
    """Everything a state_dict may hold: tied weights, a frozen tensor, buffers of BatchNorm and others."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 3)
        self.second = nn.Linear(3, 3)
        self.second.weight = self.first.weight
        self.norm = nn.BatchNorm1d(3)
        self.scale = nn.Parameter(torch.ones(3), requires_grad=False)
        self.register_buffer("mask", torch.ones(3))


def neighbours(case: Case, count: int, dtype: torch.dtype) -> list[nn.Module]:
    """Networks near the case's, in weights and statistics."""
    generator, found = torch.Generator().manual_seed(0), []
    for _ in range(count):
        network = copy.deepcopy(case.model).to(dtype)
        for tensor in network.state_dict().values():
            if tensor.is_floating_point():
                tensor *= (0.5 * torch.randn(tensor.shape, generator=generator)).exp().to(dtype)
        found.append(network)
    return found


def own_loss(network: nn.Module, case: Case) -> float:
    dtype = next(network.parameters()).dtype
    with torch.no_grad():
        return float(case.loss_fn(network.eval()(case.inputs.to(dtype)), case.targets))


def points(space: StateSpace, networks: list[nn.Module]) -> Networks:
    flat = [space.flat(network.state_dict()) for network in networks]
    return Networks(flat, [f"w{i}" for i in range(len(flat))], space.n)


def test_coordinates_and_back() -> None:
    model = convnet().model
    space = StateSpace.of(model)
    state = model.state_dict()
    flat = space.flat(state)
    assert (space.n, space.size, len(flat)) == (81, 85, 85)
    weights = torch.cat([p.detach().flatten() for p in model.parameters()])
    assert torch.equal(flat[:81], weights)
    for name, statistic in space.statistics(flat).items():
        torch.testing.assert_close(statistic, state[name])
    assert set(space.statistics(flat)) == {"1.running_mean", "1.running_var"}


def test_between_two_networks_means_are_arithmetic_and_variances_geometric() -> None:
    space = StateSpace.of(nn.BatchNorm1d(1))
    state = {name: torch.zeros(1) for name in ("weight", "bias")}
    ends = [
        space.flat({**state, "running_mean": torch.tensor([mean]), "running_var": torch.tensor([variance])})
        for mean, variance in ((1.0, 1.0), (3.0, 4.0))
    ]
    middle = space.statistics((ends[0] + ends[1]) / 2)
    assert float(middle["running_mean"]) == 2
    assert float(middle["running_var"]) == pytest.approx(2)
    beyond = space.statistics(5 * ends[0] - 4 * ends[1])
    assert 0 < float(beyond["running_var"]) < 0.01


def test_a_channel_without_variance_keeps_its_loss() -> None:
    case = convnet()
    networks = neighbours(case, 3, torch.float32)
    norm = networks[1][1]  # type: ignore[index]
    assert isinstance(norm.running_var, Tensor)
    norm.running_var[0] = 0.0
    found = plane_through(points(StateSpace.of(case.model), networks))
    at = [[place] for place in found.marks[1].at]
    value = surface(networks[0], case.loss_fn, case.batches, directions=found, values=(at[0], at[1])).loss
    assert float(value) == pytest.approx(own_loss(networks[1], case), rel=1e-6)


def test_states_that_are_no_state_are_refused() -> None:
    model = convnet().model
    space, state = StateSpace.of(model), model.state_dict()
    with pytest.raises(UserError, match="running variance"):
        space.flat({**state, "1.running_var": torch.tensor([1.0, -1.0])})
    with pytest.raises(UserError, match=r"0\.weight .*\(2, 1, 3, 3\)"):
        space.flat({name: tensor for name, tensor in state.items() if name != "0.weight"})
    with pytest.raises(UserError, match=r"5\.bias .*\(3,\).*\(7,\)"):
        space.flat({**state, "5.bias": torch.zeros(7)})


def test_what_no_slice_moves_must_be_shared() -> None:
    model = Tied()
    space, state = StateSpace.of(model), model.state_dict()
    assert space.fixed == ("scale", "mask")
    counted = {**state, "norm.num_batches_tracked": torch.tensor(9), "first.weight": torch.zeros(3, 3)}
    space.check_fixed(counted, state)
    for name in space.fixed:
        with pytest.raises(UserError, match=f"{name}.*frozen.*buffer"):
            space.check_fixed({**state, name: 2 * state[name]}, state)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_every_network_that_a_slice_passes_through_has_its_own_loss_there(dtype: torch.dtype) -> None:
    case = convnet()
    networks = neighbours(case, 3, dtype)
    own = [own_loss(network, case) for network in networks]
    assert len(set(own)) == 3
    cloud = points(StateSpace.of(case.model), networks)
    pair = Networks(cloud.points[1:], cloud.labels[1:], cloud.n)
    slices = [(plane_through(cloud), own), (best_plane(cloud, path=True), own), (line_between(pair), own[1:])]
    for found, losses in slices:
        for mark, loss in zip(found.marks, losses, strict=True):
            assert mark.distance < 1e-12
            at = tuple([place] for place in mark.at)
            # The model that is given lends its structure only: weights and statistics are the slice's.
            seen = surface(networks[2], case.loss_fn, case.batches, directions=found, values=at)
            assert float(seen.loss) == pytest.approx(loss, rel=1e-6 if dtype == torch.float32 else 1e-13)
            assert seen.marks == found.marks
            assert not math.isnan(seen.center_loss)
