from itertools import pairwise, permutations, product

import pytest
import torch
from torch import Tensor, nn

from fedscope.errors import UserError
from fedscope.landscape.matching.symmetry import permutation_symmetry
from fedscope.landscape.matching.weight_matching import match_weights

from .nets import CASES, Residual, narrow, randomise

State = dict[str, Tensor]


def perceptron(*widths: int, seed: int = 0) -> nn.Module:
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(widths):
        layers += [nn.Linear(inputs, outputs), nn.Tanh()]
    model = nn.Sequential(*layers[:-1]).double()
    randomise(model, seed)
    return model


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_network_is_matched_back_to_itself_from_any_of_its_permutations(
    case: tuple[str, None, int],
) -> None:
    model, inputs = narrow(*case)
    symmetry = permutation_symmetry(model, [(inputs, torch.zeros(4))])
    state = model.state_dict()
    shuffled = symmetry.permuted(state, symmetry.random(seed=2))
    assert any(not torch.equal(shuffled[name], state[name]) for name in state)
    found = match_weights(model, state, shuffled, symmetry=symmetry)
    assert all(torch.equal(found.state[name], state[name]) for name in state)
    assert found.distance == 0
    assert found.similarity == pytest.approx(1, abs=1e-12)
    assert 0 < found.moved <= found.channels
    assert found.assignments == found.sweeps * len(symmetry.groups)


@pytest.mark.parametrize("seed", range(8))
def test_one_hidden_layer_is_matched_as_well_as_can_be(seed: int) -> None:
    one, other = perceptron(2, 5, 2, seed=seed), perceptron(2, 5, 2, seed=100 + seed)
    best = max(
        sum(
            float((one.state_dict()[name] * tensor).sum())
            for name, tensor in by_hand(other, [torch.tensor(order)]).items()
        )
        for order in permutations(range(5))
    )
    found = match_weights(
        one, one.state_dict(), other.state_dict(), symmetry=[(torch.ones(1, 2), torch.ones(1))]
    )
    assert found.similarity * norms(one, other) == pytest.approx(best, rel=1e-12)


@pytest.mark.parametrize("seed", range(6))
def test_of_two_hidden_layers_no_single_one_can_be_bettered(seed: int) -> None:
    one, other = perceptron(2, 4, 3, 2, seed=seed), perceptron(2, 4, 3, 2, seed=100 + seed)
    table = {
        (p, q): sum(
            float((one.state_dict()[name] * tensor).sum())
            for name, tensor in by_hand(other, [torch.tensor(p), torch.tensor(q)]).items()
        )
        for p, q in product(permutations(range(4)), permutations(range(3)))
    }
    found = match_weights(
        one, one.state_dict(), other.state_dict(), symmetry=[(torch.ones(1, 2), torch.ones(1))]
    )
    p, q = (tuple(row.tolist()) for row in found.permutations.values())
    value = found.similarity * norms(one, other)
    assert value == pytest.approx(table[p, q], rel=1e-12)
    assert value <= max(table.values()) + 1e-12
    assert value >= max(table[a, b] for a, b in table if a == p or b == q) - 1e-12
    assert found.similarity == max(found.orders)


def by_hand(model: nn.Module, orders: list[Tensor]) -> State:
    """Return a perceptron's state with its hidden units in these orders."""
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    for layer, order in enumerate(orders):
        for name in (f"{2 * layer}.weight", f"{2 * layer}.bias"):
            state[name] = state[name][order]
        state[f"{2 * layer + 2}.weight"] = state[f"{2 * layer + 2}.weight"][:, order]
    return state


def norms(one: nn.Module, other: nn.Module) -> float:
    sizes = [sum(float(t.square().sum()) for t in model.state_dict().values()) for model in (one, other)]
    return float((sizes[0] * sizes[1]) ** 0.5)


def test_a_group_on_two_axes_of_a_weight_never_makes_the_match_worse() -> None:
    for seed in range(10):
        one, other = Residual().double(), Residual().double()
        randomise(one, seed)
        randomise(other, 50 + seed)
        data = [(torch.ones(1, 3), torch.ones(1))]
        found = match_weights(one, one.state_dict(), other.state_dict(), symmetry=data)
        assert found.similarity >= found.similarity_before
        assert found.distance <= found.distance_before + 1e-12


def test_numbers_are_those_of_the_states_and_draws_repeat() -> None:
    one, other = perceptron(3, 6, 5, 2), perceptron(3, 6, 5, 2, seed=9)
    data = [(torch.ones(1, 3), torch.ones(1))]
    found = match_weights(one, one.state_dict(), other.state_dict(), symmetry=data, seed=3, orders=2)
    gap = sum(float((found.state[n] - t).square().sum()) for n, t in one.state_dict().items()) ** 0.5
    assert found.distance == pytest.approx(gap, rel=1e-12)
    before = sum(float((other.state_dict()[n] * t).sum()) for n, t in one.state_dict().items())
    assert found.similarity_before == pytest.approx(before / norms(one, other), rel=1e-12)
    again = match_weights(one, one.state_dict(), other.state_dict(), symmetry=data, seed=3, orders=2)
    assert found.orders == again.orders
    assert len(found.orders) == 2
    with torch.no_grad():
        x = torch.randn(7, 3).double()
        wanted = other(x)
        other.load_state_dict(found.state)
        assert torch.allclose(other(x), wanted, rtol=0, atol=1e-12)


def test_bad_requests_are_refused() -> None:
    one = perceptron(3, 6, 2)
    data = [(torch.ones(1, 3), torch.ones(1))]
    state = one.state_dict()
    with pytest.raises(UserError, match="one order or more"):
        match_weights(one, state, state, symmetry=data, orders=0)
    with pytest.raises(UserError, match="match alike ones"):
        match_weights(one, state, perceptron(3, 7, 2).state_dict(), symmetry=data)
    with pytest.raises(UserError, match="not finite"):
        match_weights(one, state, {**state, "0.bias": torch.full((6,), torch.nan)}, symmetry=data)
