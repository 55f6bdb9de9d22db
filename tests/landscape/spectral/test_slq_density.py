import math
from collections.abc import Iterator
from itertools import islice

import pytest
import torch
from torch import Tensor

from fedscope.errors import UserError
from fedscope.landscape import Estimate, LambdaOperator, orthogonal, rademacher, spectral_density, trace
from fedscope.landscape.spectral.deflation import growing
from fedscope.statistics.standard_errors import mean_stderr
from tests.landscape.cases import Case, matrix_operator, symmetric


def _moment(found_nodes: Tensor, weights: Tensor, power: int) -> float:
    return float((found_nodes**power * weights).sum(1).mean())


def test_a_full_set_and_all_steps_give_the_spectrum(case: Case, dense: Tensor) -> None:
    n = len(dense)
    found = spectral_density(matrix_operator(dense), probes=n, steps=n, sampler=orthogonal)
    eigenvalues = torch.linalg.eigvalsh(dense)
    for power in (1, 2, 3):
        expected = float((eigenvalues**power).mean())
        assert _moment(found.nodes, found.weights, power) == pytest.approx(expected, rel=1e-6)
    used = found.nodes[found.weights > 1e-6]
    assert float((used[:, None] - eigenvalues).abs().min(1).values.max()) < 1e-6
    z = (found.grid[:, None] - eigenvalues) / found.sigma
    exact = (-0.5 * z**2).exp().mean(1) / (found.sigma * math.sqrt(2 * math.pi))
    torch.testing.assert_close(found.density, exact, rtol=1e-6, atol=1e-8)
    assert found.negative_mass.stderr == 0
    assert [moment.value for moment in found.moments] == pytest.approx(
        [float(eigenvalues.mean()), float((eigenvalues**2).mean())], rel=1e-6
    )
    assert torch.equal(found.band()[0], found.density)


def test_the_operator_of_a_net_gives_the_same_as_its_matrix(case: Case, dense: Tensor) -> None:
    net = spectral_density(case.operator, probes=2, steps=10)
    matrix = spectral_density(matrix_operator(dense), probes=2, steps=10)
    torch.testing.assert_close(net.density, matrix.density, rtol=1e-4, atol=1e-6)


def test_it_integrates_to_one_and_to_the_trace(case: Case, dense: Tensor) -> None:
    found = spectral_density(matrix_operator(dense), probes=6, steps=20)
    assert float(torch.trapezoid(found.density, found.grid)) == pytest.approx(1, abs=1e-6)
    torch.testing.assert_close(found.weights.sum(1), torch.ones(6, dtype=torch.float64))
    same_probes = trace(matrix_operator(dense), probes=6)
    mean = len(dense) * _moment(found.nodes, found.weights, 1)
    assert mean == pytest.approx(same_probes.value, rel=1e-9)
    assert found.matvecs == 6 * 20


def test_the_moments_are_those_of_the_probes_products(dense: Tensor) -> None:
    n, operator = len(dense), matrix_operator(dense)
    found = spectral_density(operator, probes=6, steps=20)
    first, second = found.moments
    same_probes = trace(operator, probes=6)
    assert n * first.value == pytest.approx(same_probes.value, rel=1e-9)
    probes = islice(rademacher(n, torch.Generator().manual_seed(0), torch.float64, torch.device("cpu")), 6)
    squares = [float((dense @ z).square().sum()) / n for z in probes]
    assert second.value == pytest.approx(sum(squares) / 6, rel=1e-9)
    assert second.stderr == pytest.approx(mean_stderr(squares), rel=1e-9)
    assert second.dof == 5


@pytest.mark.parametrize("rows", [0, 6])
def test_a_traces_probes_are_the_densitys_first_steps(dense: Tensor, rows: int) -> None:
    operator, generator = matrix_operator(dense), torch.Generator().manual_seed(4)
    known = growing(operator, None, torch.Generator().manual_seed(9), rows)(rows) if rows else None
    total = trace(operator, known=known, rtol=0.01, generator=generator, keep=3)
    assert total.probed
    torch.testing.assert_close(total.probed.images, total.probed.vectors @ dense, rtol=0, atol=1e-9)
    draws = rademacher_of(4, len(dense))
    torch.testing.assert_close(total.probed.vectors, torch.stack([next(draws) for _ in range(3)]))
    shared = spectral_density(
        operator, probes=4, steps=12, probed=total.probed, generator=torch.Generator().manual_seed(5)
    )
    starts = iter([*total.probed.vectors, next(rademacher_of(5, len(dense)))])
    apart = spectral_density(operator, probes=4, steps=12, sampler=lambda *_: starts)
    assert shared.matvecs == apart.matvecs - 3 == 45
    torch.testing.assert_close(shared.nodes, apart.nodes, rtol=0, atol=1e-8)
    torch.testing.assert_close(shared.weights, apart.weights, rtol=0, atol=1e-8)


def rademacher_of(seed: int, n: int) -> Iterator[Tensor]:
    return rademacher(n, torch.Generator().manual_seed(seed), torch.float64, torch.device("cpu"))


def test_the_band_is_that_of_the_probes_densities() -> None:
    matrix = symmetric(torch.cat([torch.linspace(-1, 0, 20), torch.linspace(0, 3, 60)]))
    found = spectral_density(matrix_operator(matrix), probes=5, steps=30, sigma=0.2)
    z = (found.grid[None, :, None] - found.nodes[:, None]) / 0.2
    each = ((-0.5 * z**2).exp() * found.weights[:, None]).sum(2) / (0.2 * math.sqrt(2 * math.pi))
    edges = float(found.nodes.min()) - 6 * 0.2, float(found.nodes.max()) + 6 * 0.2
    assert (float(found.grid[0]), float(found.grid[-1])) == pytest.approx(edges)
    low, high = found.band(0.9)
    for i in (200, 500, 700):
        expected = Estimate(float(each[:, i].mean()), mean_stderr(each[:, i].tolist()), 4).interval(0.9)
        assert (max(0.0, expected[0]), expected[1]) == pytest.approx((float(low[i]), float(high[i])))
    assert bool(spectral_density(matrix_operator(matrix), probes=1).band()[1].isnan().all())


def test_a_mass_lies_within_the_limits_of_its_quadrature() -> None:
    spectrum = torch.linspace(-1, 3, 81).double()
    matrix = torch.diag(spectrum)  # every sign probe has the same, exact shares
    shares = []
    for steps in (5, 10, 81):
        found = spectral_density(matrix_operator(matrix), probes=1, steps=steps)
        low, high = found.mass_bounds(0.52)
        assert low <= float((spectrum > 0.52).double().mean()) <= high
        assert low < found.mass(0.52).value < high
        shares.append(high - low)
    assert shares[0] > shares[1] > shares[2]
    assert found.mass(0.52).value == pytest.approx(50 / 81, abs=1 / 81)
    assert found.mass_bounds(4.0) == pytest.approx((0, 0), abs=1e-12)
    assert found.mass(4.0).value == 0


def test_weights_are_squared_first_components() -> None:
    entries = torch.tensor([1.0, 2.0, 5.0], dtype=torch.float64)
    found = spectral_density(LambdaOperator(lambda v: entries * v, 3), probes=1, steps=3)
    torch.testing.assert_close(found.nodes[0], entries)
    torch.testing.assert_close(found.weights[0], torch.full((3,), 1 / 3, dtype=torch.float64))


def test_breakdown_pads_with_weight_zero() -> None:
    found = spectral_density(
        matrix_operator(symmetric(torch.tensor([2.0, 2, 2, -1, -1]))), probes=5, steps=5, sampler=orthogonal
    )
    assert found.nodes.shape == found.weights.shape == (5, 5)
    assert float(found.weights[:, 2:].abs().max()) == 0
    assert found.matvecs == 10
    assert found.negative_mass.value == pytest.approx(0.4)
    assert found.mass_bounds(0.0) == pytest.approx((0.6, 0.6))  # the process has ended: nothing is open


def test_zeros_are_not_negative_mass() -> None:
    spectrum = torch.cat([torch.zeros(30), torch.tensor([4.0, -4.0])])
    found = spectral_density(matrix_operator(symmetric(spectrum)), probes=32, steps=8, sampler=orthogonal)
    assert found.negative_mass.value == pytest.approx(1 / 32)


def test_nodes_signs_beside_zero_are_not_negative_mass() -> None:
    """One node stands for nearly all eigenvalues, and is negative or positive by accident."""
    near = 1e-3 * torch.randn(500, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    spectrum = torch.cat([near, torch.linspace(-2, -1, 25).double(), torch.linspace(1, 20, 75).double()])
    by_sign = []
    for shift in (-0.01, 0.01):
        matrix = torch.diag(spectrum + shift)  # every sign probe has the same, exact shares
        found = spectral_density(matrix_operator(matrix), probes=2, steps=20)
        by_sign.append(float((found.weights * (found.nodes < 0)).sum(1).mean()))
        low, high = found.mass_interval(-found.sigma)
        assert 1 - high <= 25 / 600 <= 1 - low
        assert high - low < 0.03
        assert found.negative_mass.value == pytest.approx(25 / 600, abs=0.02)
    assert by_sign[0] - by_sign[1] > 0.7


def test_the_negative_mass_has_an_honest_error() -> None:
    matrix = symmetric(torch.cat([torch.linspace(-1, -0.1, 15), torch.linspace(0.1, 3, 45)]))
    found = spectral_density(matrix_operator(matrix), probes=40, steps=30)
    assert 0 < found.negative_mass.stderr < 0.02
    assert abs(found.negative_mass.value - 0.25) < 4 * found.negative_mass.stderr


@pytest.mark.parametrize("value", [0.0, 3.0])
def test_a_single_eigenvalue_has_a_density_too(value: float) -> None:
    found = spectral_density(matrix_operator(value * torch.eye(6).double()), probes=2)
    assert found.sigma == pytest.approx(0.01 * (value or 1))
    assert float(torch.trapezoid(found.density, found.grid)) == pytest.approx(1, abs=1e-6)
    assert float(found.grid[found.density.argmax()]) == pytest.approx(value, abs=1e-6)


def test_non_finite_curvature_comes_out_as_nan() -> None:
    found = spectral_density(LambdaOperator(lambda v: v * torch.nan, 4), probes=2)
    assert bool(found.density.isnan().all())
    assert math.isnan(found.negative_mass.value)


def test_the_default_generator_repeats() -> None:
    operator = matrix_operator(symmetric(torch.linspace(0, 1, 30)))
    first, again = (spectral_density(operator, probes=2, steps=5, sampler=rademacher) for _ in range(2))
    assert torch.equal(first.density, again.density)


def test_a_grid_too_coarse_to_integrate_is_refused() -> None:
    operator = matrix_operator(symmetric(torch.linspace(0, 1, 30)))
    with pytest.raises(UserError, match=r"take at least \d+"):
        spectral_density(operator, sigma=1e-4)
    with pytest.raises(UserError, match="positive"):
        spectral_density(operator, sigma=0.0)


def test_a_probe_that_is_known_is_not_drawn_once_more(dense: Tensor) -> None:
    known = trace(matrix_operator(dense), probes=4, keep=4, seed=0).probed
    assert known is not None
    found = spectral_density(matrix_operator(dense), probed=known, probes=8, steps=6, seed=0)
    distinct = {tuple(row.tolist()) for row in found.nodes.round(decimals=9)}
    assert len(distinct) == 8


def test_all_probes_there_are_may_be_known() -> None:
    op = LambdaOperator(lambda v: 3 * v, 1, torch.float64)
    known = trace(op, probes=2, keep=2).probed
    assert spectral_density(op, probed=known, probes=4, steps=1).nodes.flatten().tolist() == [3.0] * 4
