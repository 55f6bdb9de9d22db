import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from fedscope.errors import UserError
from fedscope.landscape import Batches
from fedscope.landscape.sharpness.average_case import average_sharpness, low_pass_loss, summarized
from fedscope.landscape.sharpness.balls import Geometry
from fedscope.landscape.sharpness.perturbed_loss import Perturbed
from tests import tiers
from tests.landscape.sharpness.authors import average_rise
from tests.landscape.sharpness.cases import labelled, matrix_of, mean_of, quadratic, relu_net


def noises(p: float, count: int, n: int) -> list[Tensor]:
    g = torch.Generator().manual_seed(4)
    return [Geometry(p).noise(torch.ones(n, dtype=torch.float64), g) for _ in range(count)]


@pytest.mark.parametrize("p", [2, math.inf])
@pytest.mark.parametrize("adaptive", [False, True])
def test_of_a_quadratic_it_is_the_noise_form_of_its_matrix(p: float, adaptive: bool) -> None:
    net, batches = quadratic(sloped=True)
    matrix, c = matrix_of(batches), net.w.detach().abs() if adaptive else torch.ones(6)
    draws = [0.3 * c * z for z in noises(p, 20, 6)]
    expected = sum(float(d @ matrix @ d) / 2 for d in draws) / 20
    found = average_sharpness(net, mean_of, batches, rho=0.3, p=p, adaptive=adaptive, seed=4)
    assert found.value == pytest.approx(expected, rel=1e-6)
    spread = 0.3**2 * (1 if p == 2 else 1 / 3)  # of a coordinate
    truth = spread * float((matrix.diagonal() * c**2).sum()) / 2
    low, high = found.interval()
    assert low < truth < high
    assert found.cost.forwards == 41
    assert found.dof_draws == 19


@pytest.mark.parametrize("p", [2, math.inf])
@pytest.mark.parametrize("adaptive", [False, True])
def test_its_numbers_are_those_of_the_authors_program(p: float, adaptive: bool) -> None:
    net, batches = relu_net(), labelled()
    draws = [sign * z for z in noises(p, 5, 69) for sign in (1, -1)]
    expected = [average_rise(net, cross_entropy, x, y, draws, 0.2, adaptive) for x, y in batches]
    found = average_sharpness(net, cross_entropy, batches, rho=0.2, p=p, adaptive=adaptive, pairs=5, seed=4)
    torch.testing.assert_close(list(found.batches), expected, rtol=1e-6, atol=1e-12)


def test_it_does_not_depend_on_the_batches() -> None:
    net, few, many = relu_net(), labelled(batch_size=24), labelled(batch_size=5)
    one, other = (average_sharpness(net, cross_entropy, b, rho=0.2, pairs=3) for b in (few, many))
    assert one.value == pytest.approx(other.value, rel=1e-9)
    assert math.isnan(one.stderr_data)


def test_the_low_pass_loss_is_the_loss_and_the_rise() -> None:
    net, batches = quadratic(sloped=True)
    rise = average_sharpness(net, mean_of, batches, rho=0.05, seed=1)
    found = low_pass_loss(net, mean_of, batches, sigma=0.05, seed=1)
    own = [float(mean_of(net(*x), y).detach()) for x, y in batches]
    loss = sum(own) / 3
    assert found.value == pytest.approx(loss + rise.value, rel=1e-9)
    assert found.stderr_draws == pytest.approx(rise.stderr_draws)
    torch.testing.assert_close(list(found.batches), [a + b for a, b in zip(rise.batches, own, strict=True)])
    spread = torch.tensor(found.batches, dtype=torch.float64).std() / 3**0.5
    assert found.stderr_data == pytest.approx(float(spread), rel=0.05)


def test_what_is_not_finite_stays_so_and_bad_numbers_are_refused() -> None:
    net, batches = relu_net(), labelled()
    bad = Batches(torch.full((4, 4), torch.nan, dtype=torch.float64), torch.zeros(4, dtype=torch.long), 4)
    assert math.isnan(average_sharpness(net, cross_entropy, bad, rho=0.1, pairs=2).value)
    with pytest.raises(UserError, match="0 pairs"):
        average_sharpness(net, cross_entropy, batches, rho=0.1, pairs=0)
    with pytest.raises(UserError, match="rho is inf"):
        average_sharpness(net, cross_entropy, batches, rho=math.inf)


@pytest.mark.drawn
@pytest.mark.parametrize("spectrum", ["flat", "one"])
def test_its_intervals_cover(spectrum: str) -> None:
    """½ wᵀA_i w of diagonal A_i with exponential entries: ρ²·tr/2 on the samples and in the population."""
    draws = tiers.draws()
    base = (
        torch.ones(12, dtype=torch.float64)
        if spectrum == "flat"
        else torch.tensor([30.0] + [0.1] * 11).double()
    )
    net, batches = quadratic(batch_size=2)
    objective, g = Perturbed(net, mean_of, batches), torch.Generator().manual_seed(1)
    objective.sizes = (8,) * 16
    own = population = 0
    for _ in range(draws):
        curvature = base * torch.empty(16, 8, 12, dtype=torch.float64).exponential_(generator=g).mean(1)
        squares = torch.randn(20, 12, generator=g, dtype=torch.float64).square()
        found = summarized(objective, squares @ curvature.T / 2, 0)
        low, high = found.interval()
        own += low <= float(curvature.mean(0).sum()) / 2 <= high
        low, high = found.population_interval()
        population += low <= float(base.sum()) / 2 <= high
        plain = replace(found, skewed=False).interval()
        assert plain[0] < found.interval()[0]  # the logarithmic one lies higher
    assert tiers.nominal(own, draws)
    assert tiers.nominal(population, draws)
