"""One rule for what is drawn: a generator or a seed, never both, seed 0 without either, no global state."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fedscope.errors import UserError
from fedscope.landscape import (
    LambdaOperator,
    MonteCarloFisher,
    client_gradient_noise,
    cross_client,
    deflated_diagonal,
    diagonal,
    layer_eigenpairs,
    pair_barriers,
    random_directions,
    spectral_density,
    top_eigenpairs,
    trace,
)
from fedscope.landscape.published.estimators import published_eigenpairs, published_trace
from tests.landscape.cases import matrix_operator, mlp, symmetric

CASE, LAYER = mlp(), nn.Linear(3, 2)
OTHER = {
    name: torch.randn(t.shape, generator=torch.Generator().manual_seed(3), dtype=t.dtype)
    for name, t in CASE.model.state_dict().items()
}
STATES = [CASE.model.state_dict(), OTHER]


def _operator(shift: float = 0.0) -> LambdaOperator:
    return matrix_operator(symmetric(torch.linspace(-1, 5, 12) + shift))


def _fisher(**draws: Any) -> Tensor:
    return MonteCarloFisher(CASE.model, CASE.loss_fn, CASE.batches, **draws).to_dense()


DRAWING: dict[str, Callable[..., Tensor]] = {
    "top_eigenpairs": lambda **draws: top_eigenpairs(_operator(), tol=0.3, **draws).vectors,
    "trace": lambda **draws: torch.tensor(trace(_operator(), probes=3, **draws).value),
    "diagonal": lambda **draws: diagonal(_operator(), probes=8, **draws).parameter,
    "deflated_diagonal": lambda **draws: deflated_diagonal(_operator(), probes=8, **draws).parameter,
    "spectral_density": lambda **draws: spectral_density(_operator(), steps=3, **draws).nodes,
    "layer_eigenpairs": lambda **draws: (
        layer_eigenpairs(lambda _: _operator(), ["a"], tol=0.3, **draws)["a"].vectors
    ),
    "cross_client": lambda **draws: cross_client(
        [_operator(), _operator(1)], probes=3, groups=3, **draws
    ).H_N_matrix["parameter"],
    "random_directions": lambda **draws: random_directions(LAYER, **draws).vectors[0],
    "published_trace": lambda **draws: published_trace(_operator(), max_iterations=3, **draws).tensor,
    "published_eigenpairs": lambda **draws: (
        published_eigenpairs(_operator(), max_iterations=2, **draws).vectors
    ),
    "MonteCarloFisher": _fisher,
    "pair_barriers": lambda **draws: (
        pair_barriers(
            CASE.model, lambda o, t: (2 * o).sin().mean() + 0 * t.sum(), CASE.batches, STATES, **draws
        ).values
    ),
    "client_gradient_noise": lambda **draws: torch.tensor(
        client_gradient_noise(CASE.model, CASE.loss_fn, [CASE.batches], **draws).within.stderr
    ),
}

SEVERAL = ("layer_eigenpairs", "cross_client", "pair_barriers", "client_gradient_noise")


@pytest.mark.parametrize("name", DRAWING)
def test_a_seed_is_its_generator_and_nothing_else_is_drawn_from(name: str) -> None:
    draw = DRAWING[name]
    before = torch.get_rng_state()
    first = draw()
    assert torch.equal(first, draw(seed=0))
    assert not torch.equal(first, draw(seed=1))
    generator = torch.Generator().manual_seed(1)
    state = generator.get_state()
    own = draw(generator=generator)
    assert torch.equal(own, draw(generator=torch.Generator().manual_seed(1)))
    assert not torch.equal(generator.get_state(), state)
    if name not in SEVERAL:  # whose several streams are of a seed drawn from it
        assert torch.equal(own, draw(seed=1))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("name", DRAWING)
def test_a_generator_beside_a_seed_is_refused(name: str) -> None:
    with pytest.raises(UserError, match="generator or seed, not both"):
        DRAWING[name](generator=torch.Generator(), seed=0)
