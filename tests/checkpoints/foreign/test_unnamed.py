"""Weights without names are the network's in its order, or refused."""

from collections import OrderedDict
from collections.abc import Mapping

import pytest
import torch
from torch import Tensor, nn

from fedscope.checkpoints.foreign.fitting import fit
from fedscope.errors import UserError


def small() -> nn.Module:
    return nn.Sequential(OrderedDict(conv=nn.Conv2d(1, 2, 3), bn=nn.BatchNorm2d(2), fc=nn.Linear(2, 3)))


def wanted(model: nn.Module) -> Mapping[str, Tensor]:
    return model.state_dict(keep_vars=True)


def numbered(tensors: list[Tensor], prefix: str = "arr_") -> dict[str, Tensor]:
    return {f"{prefix}{place}": tensor for place, tensor in reversed([*enumerate(tensors)])}


STATE = {name: torch.randn(tensor.shape) for name, tensor in small().state_dict().items()}
FLOATS = {name: tensor for name, tensor in STATE.items() if "num_batches" not in name}


@pytest.mark.parametrize("prefix", ["arr_", "", "parameters."])
def test_a_list_is_in_the_order_of_the_state(prefix: str) -> None:
    found = fit(numbered(list(STATE.values()), prefix), wanted(small()), "f.npz")
    assert found.notes == ("named 9 arrays in the order of the network's state_dict()",)
    assert list(found.state) == list(STATE)
    assert all(torch.equal(found.state[name], STATE[name]) for name in STATE)


def test_what_counts_batches_may_be_lacking() -> None:
    found = fit(numbered(list(FLOATS.values())), wanted(small()), "f.npz")
    assert "without what counts batches" in found.notes[0]
    assert all(torch.equal(found.state[name], FLOATS[name]) for name in FLOATS)
    assert found.state["bn.num_batches_tracked"] == 0


def test_one_of_several_lists_is_chosen() -> None:
    both = numbered(list(STATE.values()), "server.") | numbered([torch.ones(1)], "optimizer.")
    assert torch.equal(fit(both, wanted(small()), "f.pt", entry="server").state["fc.bias"], STATE["fc.bias"])
    with pytest.raises(UserError, match="does not fit the network"):
        fit(both, wanted(small()), "f.pt")


def test_parameters_are_enough_without_buffers_and_shared_ones_count_once() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    model[1].weight = model[0].weight
    own = [parameter.detach() for parameter in model.parameters()]
    found = fit(numbered(own), wanted(model), "f.npz")
    assert "parameters()" in found.notes[0]
    assert torch.equal(found.state["1.weight"], own[0])
    assert torch.equal(found.state["1.bias"], own[2])


def test_a_list_of_a_networks_own_names_is_taken_by_name() -> None:
    model = nn.ParameterList([torch.zeros(2), torch.zeros(3)])
    swapped = {"1": torch.ones(3), "0": torch.zeros(2)}
    assert fit(swapped, wanted(model), "f.pt").notes == ()


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        (list(STATE.values())[:-1], "a list of 8 arrays .* in the order of .*array 7 is"),
        (list(STATE.values())[:3], "the network has 9 tensors, 6 of them parameters"),
        (list(STATE.values())[::-1], r"array 0 is \(3,\), conv.weight \(2, 1, 3, 3\)"),
        ([tensor for name, tensor in STATE.items() if "bn.r" not in name], "a list of 7 arrays"),
        (
            [tensor for name, tensor in FLOATS.items() if "bn.r" not in name],
            r"as long as parameters\(\), and lacks its bn.running_mean, bn.running_var; save its state_dict",
        ),
    ],
)
def test_another_list_is_refused(tensors: list[Tensor], message: str) -> None:
    with pytest.raises(UserError, match=message):
        fit(numbered(tensors), wanted(small()), "f.npz")
