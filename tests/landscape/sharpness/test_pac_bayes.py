import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from fedscope.errors import UserError
from fedscope.landscape import Batches
from fedscope.landscape.sharpness.balls import Geometry
from fedscope.landscape.sharpness.pac_bayes import Deviations, noise_level, pac_bayes_sigma
from fedscope.landscape.sharpness.sharpness_result import Cost
from tests import tiers
from tests.landscape.sharpness.cases import (
    Quadratic,
    labelled,
    matrix_of,
    mean_of,
    quadratic,
    relu_net,
    whole,
)


def draws(seed: int, pairs: int, n: int) -> Tensor:
    g = torch.Generator().manual_seed(seed)
    seeds = torch.randint(1 << 62, (pairs,), generator=g).tolist()
    own = [Geometry().noise(torch.ones(n).double(), torch.Generator().manual_seed(s)) for s in seeds]
    return torch.stack(own)


@pytest.mark.parametrize("adaptive", [False, True])
def test_of_a_quadratic_it_is_the_root_of_the_target_over_the_noise_form(adaptive: bool) -> None:
    net, batches = quadratic(sloped=True)
    matrix, c = matrix_of(batches), net.w.detach().abs() if adaptive else torch.ones(6)
    z = c * draws(2, 5, 6)
    per_unit = float(torch.einsum("mi,ij,mj->m", z, matrix, z).mean()) / 2
    found = pac_bayes_sigma(
        net, mean_of, batches, target=0.1, of="loss", adaptive=adaptive, epsilon=0, rtol=5e-7, seed=2
    )
    assert found.value == pytest.approx(math.sqrt(0.1 / per_unit), rel=1e-6)
    assert found.deviation == pytest.approx(0.1, rel=1e-6)
    truth = math.sqrt(2 * 0.1 / float((matrix.diagonal() * c**2).sum()))
    assert found.ends[0] < truth < found.ends[1]
    assert found.population_ends[0] < found.value < found.population_ends[1]


def test_noise_in_units_of_the_weights_has_a_floor() -> None:
    net, batches = quadratic()
    z, matrix, w = draws(0, 4, 6), matrix_of(batches), net.w.detach()

    def deviation(sigma: float) -> float:
        noise = z * (sigma**2 * w**2 + 0.05**2).sqrt()
        return float(torch.einsum("mi,ij,mj->m", noise, matrix, noise).mean()) / 2

    found = pac_bayes_sigma(
        net, mean_of, batches, target=0.2, of="loss", adaptive=True, epsilon=0.05, pairs=4, rtol=3e-7
    )
    assert deviation(found.value) == pytest.approx(0.2, rel=1e-6)


def test_the_accuracy_drops_by_no_more_than_the_target() -> None:
    net, batches = relu_net(), labelled(200, 50)
    x, y = whole(batches)
    y = net(x).argmax(1)  # all right at w
    own = Batches(x, y, 50)
    found = pac_bayes_sigma(net, cross_entropy, own, target=0.1, rtol=1e-3, seed=1)
    z = draws(1, 5, 69)

    def drop(sigma: float) -> float:
        wrong = []
        for sign in (1, -1):
            for noise in z:
                other = relu_net()
                pieces = (sign * sigma * noise).split([p.numel() for p in other.parameters()])
                with torch.no_grad():
                    for p, piece in zip(other.parameters(), pieces, strict=True):
                        p.add_(piece.view_as(p))
                    wrong.append(float((other(x).argmax(1) != y).double().mean()))
        return sum(wrong) / len(wrong)

    assert drop(found.value) <= 0.1 < drop(found.value * 1.002)
    assert found.deviation == pytest.approx(drop(found.value))
    assert found.ends[0] < found.value < found.ends[1]


def test_a_network_that_bears_any_noise_has_no_largest_one() -> None:
    net, batches = quadratic()
    x, y = batches[0]
    flat = Batches((torch.zeros_like(x[0]), torch.zeros_like(x[1])), y, 4)
    found = pac_bayes_sigma(net, mean_of, flat, of="loss")
    assert found.value == math.inf
    assert found.ends == (math.inf, math.inf)
    broken = Batches((x[0] * torch.nan, x[1]), y, 4)
    assert pac_bayes_sigma(net, mean_of, broken, of="loss").value == 0  # no noise is borne


def test_one_batch_tells_no_interval_of_the_population() -> None:
    net = relu_net()
    found = pac_bayes_sigma(net, cross_entropy, Batches(*whole(labelled()), 1000), of="loss")
    assert found.ends[0] < found.value < found.ends[1]
    assert all(map(math.isnan, found.population_ends))


def test_bad_requests_are_refused() -> None:
    net, batches = quadratic()
    with pytest.raises(UserError, match="positive target"):
        pac_bayes_sigma(net, mean_of, batches, target=0)
    with pytest.raises(UserError, match="at least 2 pairs"):
        pac_bayes_sigma(net, mean_of, batches, pairs=1)
    with pytest.raises(UserError, match="accuracy needs outputs"):
        pac_bayes_sigma(net, mean_of, batches)
    network, x = relu_net(), whole(labelled(20, 10))[0]
    for targets in (network(x).detach(), torch.zeros(20), torch.zeros(20, 1, dtype=torch.long)):
        with pytest.raises(UserError, match=r"labels \(samples,\), integers"):  # of a regression, say
            pac_bayes_sigma(network, lambda outputs, _: outputs.square().mean(), Batches(x, targets, 10))


class _Diagonal:
    """½ Σ a_bi δ_i² of B batches, as an objective."""

    def __init__(self, curvatures: Tensor) -> None:
        self._curvatures, self.weights = curvatures, torch.zeros(curvatures.shape[1], dtype=torch.float64)
        self.sizes, self.population, self.cost = (8,) * len(curvatures), None, Cost()

    def values(self, delta: Tensor, read: Callable[[Any, Any], Tensor] | None = None) -> Tensor:
        return self._curvatures @ delta.square() / 2

    def mean(self, values: Tensor) -> Tensor:
        return values.mean(-1)


@pytest.mark.drawn
def test_its_intervals_cover() -> None:
    repeats = tiers.draws()
    own = population = 0
    for seed in range(repeats):
        g = torch.Generator().manual_seed(seed)
        curvatures = torch.empty(16, 8, 12, dtype=torch.float64).exponential_(generator=g).mean(1)
        objective: Any = _Diagonal(curvatures)
        found = noise_level(Deviations(objective, "loss", None, 8, g, None), 0.1, 6e-2, seed)
        own += found.ends[0] <= math.sqrt(0.2 / float(curvatures.mean(0).sum())) <= found.ends[1]
        population += found.population_ends[0] <= math.sqrt(0.2 / 12) <= found.population_ends[1]
    assert tiers.nominal(own, repeats)
    assert tiers.nominal(population, repeats)


def test_its_standard_errors_are_those_of_the_deviation_over_its_slope() -> None:
    net, batches = quadratic(samples=24, batch_size=8)
    found = pac_bayes_sigma(net, mean_of, batches, of="loss", pairs=20)
    z = draws(0, 20, 6)
    forms = torch.einsum("mi,ij,mj->m", z, matrix_of(batches), z) / 2
    expected = float(forms.std()) / 20**0.5 / (2 * float(forms.mean())) * found.value  # d ln σ = d ln D/2
    assert found.stderr_draws == pytest.approx(expected, rel=0.1)
    assert sum(found.draws) / 20 == pytest.approx(found.value, rel=1e-2)
    assert len(found.batches) == 3
    assert sum(found.batches) / 3 == pytest.approx(sum(found.draws) / 20)
    assert isinstance(net, Quadratic)
