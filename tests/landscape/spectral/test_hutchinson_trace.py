import math
from itertools import islice

import pytest
import torch
from torch import Tensor

from fedscope.errors import UserError
from fedscope.landscape import Batches, Hessian, LambdaOperator, orthogonal, rademacher, top_eigenpairs, trace
from fedscope.landscape.operators.base import Operator
from fedscope.landscape.operators.basis.krylov_basis import Remainder, Subspace
from fedscope.landscape.operators.probes import LARGEST_ORTHOGONAL
from fedscope.landscape.spectral.deflation import deflate_further, variance_saved
from fedscope.landscape.spectral.krylov.lanczos import Lanczos
from fedscope.statistics.standard_errors import (
    combined,
    data_stderr,
    interval,
    jackknife_variance,
    probed_data_error,
)
from tests.landscape.cases import Case, matrix_operator, mlp, symmetric

CPU = torch.device("cpu")


def _generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def _signs(n: int, count: int) -> list[Tensor]:
    return list(islice(rademacher(n, _generator(), torch.float64, CPU), count))


def _process(operator: Operator, steps: int) -> Lanczos:
    start = torch.randn(operator.shape[0], generator=_generator(5), dtype=torch.float64)
    process = Lanczos(operator, start, generator=_generator(), by_batch=True)
    for _ in range(steps):
        process.step()
    return process


def _krylov(operator: Operator, steps: int) -> Subspace:
    return _process(operator, steps).subspace()


def test_rademacher_probes_are_signs_and_do_not_depend_on_the_dtype() -> None:
    double = torch.stack(list(islice(rademacher(100, _generator(), torch.float64, CPU), 50)))
    single = torch.stack(list(islice(rademacher(100, _generator(), torch.float32, CPU), 50)))
    assert set(double.flatten().tolist()) == {-1.0, 1.0}
    assert torch.equal(double.float(), single)
    assert abs(float(double.mean())) < 4 / 5000**0.5


def test_orthogonal_probes_are_a_complete_set() -> None:
    probes = torch.stack(list(orthogonal(9, _generator(), torch.float64, CPU)))
    assert probes.shape == (9, 9)
    torch.testing.assert_close(probes.T @ probes / 9, torch.eye(9, dtype=torch.float64))
    with pytest.raises(UserError, match="rademacher"):
        next(orthogonal(LARGEST_ORTHOGONAL + 1, _generator(), torch.float64, CPU))


def test_a_full_orthogonal_set_is_exact(case: Case, dense: Tensor) -> None:
    found = trace(case.operator, probes=len(dense), sampler=orthogonal)
    assert found.value == pytest.approx(float(dense.trace()), rel=1e-9)
    assert found.stderr_probe == 0
    assert found.matvecs == found.probes == len(dense)


def test_a_part_of_the_orthogonal_set_is_not_called_exact(dense: Tensor) -> None:
    found = trace(matrix_operator(dense), probes=len(dense) - 1, sampler=orthogonal)
    assert found.stderr_probe > 0


def test_one_rademacher_probe_is_exact_for_a_diagonal_matrix() -> None:
    found = trace(matrix_operator(torch.diag(torch.tensor([1.0, -4.0, 2.5])).double()), probes=1)
    assert found.value == -0.5
    assert found.stderr_probe != found.stderr_probe  # one sample has no standard error


def test_the_probe_error_covers_the_truth(dense: Tensor) -> None:
    truth = float(dense.trace())
    scores = []
    for seed in range(40):
        found = trace(matrix_operator(dense), probes=30, generator=_generator(seed))
        scores.append((found.value - truth) / found.stderr_probe)
    # Were the errors twice or half what is claimed, the mean square would be 4 or 0.25.
    assert 0.5 < sum(score**2 for score in scores) / len(scores) < 2


def test_it_stops_on_its_standard_error() -> None:
    operator = matrix_operator(symmetric(torch.linspace(0, 1, 60)))
    loose, tight = (trace(operator, rtol=rtol, max_basis=0) for rtol in (0.03, 0.01))
    assert loose.stderr_probe <= 0.03 * loose.value
    assert tight.stderr_probe <= 0.01 * tight.value
    assert 10 < loose.probes < tight.probes < 1000
    low, high = tight.interval(0.997)
    assert low < 30 < high
    assert trace(operator, rtol=0.03, max_basis=0) == loose


def test_the_variance_of_sign_probes_is_that_of_the_entries_off_the_diagonal() -> None:
    matrix = symmetric(torch.tensor([9.0, 4.0, 1.0, -2.0, 0.5, 0.1]))
    found = trace(matrix_operator(matrix), probes=4000)
    off = matrix - torch.diag(matrix.diagonal())
    assert found.stderr_probe**2 * 4000 == pytest.approx(float(2 * off.square().sum()), rel=0.03)
    assert found.dof_probe > 3999  # better known than from the values of zᵀHz


def test_a_known_subspace_is_exact_and_the_probes_see_the_rest(case: Case, dense: Tensor) -> None:
    known = _krylov(case.operator, 8)
    complete = trace(case.operator, known=known, probes=len(dense), sampler=orthogonal)
    assert complete.value == pytest.approx(float(dense.trace()), rel=1e-9)
    plain = trace(case.operator, probes=len(dense), sampler=orthogonal)
    assert complete.stderr_data == pytest.approx(plain.stderr_data, rel=1e-6)
    few, fewer = (trace(case.operator, known=space, probes=12) for space in (None, known))
    assert (few.deflated, fewer.deflated, fewer.matvecs) == (0, 8, 12)
    projector = torch.eye(len(dense)).double() - known.basis.T @ known.basis
    left = projector @ dense @ projector
    off = left - torch.diag(left.diagonal())
    assert fewer.stderr_probe == pytest.approx(float((off.square().sum() / 6).sqrt()), rel=0.5)
    assert fewer.stderr_probe < 0.7 * few.stderr_probe


def test_more_of_a_basis_turns_old_products_into_those_with_the_smaller_remainder(dense: Tensor) -> None:
    operator, probes = matrix_operator(dense), torch.stack(_signs(len(dense), 3))
    process = _process(operator, 4)
    images = torch.stack([p.vector for p in Remainder(operator, process.subspace().basis).products(probes)])
    for _ in range(5):
        process.step()
    deflate_further(images, probes, process.subspace(), 4)
    expected = [p.vector for p in Remainder(operator, process.subspace().basis).products(probes)]
    torch.testing.assert_close(images, torch.stack(expected))


def test_the_variance_that_steps_save_is_that_of_the_dense_remainders(dense: Tensor) -> None:
    process = _process(matrix_operator(dense), 4)
    norms = []
    for known in (process.subspace(), _process(matrix_operator(dense), 9).subspace()):
        projector = torch.eye(len(dense)).double() - known.basis.T @ known.basis
        norms.append(float((projector @ dense @ projector).square().sum()))
    assert variance_saved(known, 5) == pytest.approx(2 * (norms[0] - norms[1]) / 5)


@pytest.mark.parametrize("begun", [0, 12])
def test_a_basis_grows_as_long_as_that_saves_products(begun: int) -> None:
    spectrum = torch.cat([torch.linspace(-1, 1, 380) ** 3, torch.linspace(5, 60, 20)])
    operator = matrix_operator(symmetric(spectrum))
    known = _krylov(operator, begun) if begun else None
    plain = trace(operator, rtol=0.01, max_basis=0, max_probes=10**4)
    found = trace(operator, rtol=0.01, known=known)
    assert found.stderr_probe <= 0.01 * found.value
    assert found.matvecs == found.probes + found.deflated - begun
    assert found.matvecs < plain.matvecs / 7
    assert abs(found.value - float(spectrum.double().sum())) < 4 * found.stderr_probe
    capped = trace(operator, rtol=0.01, known=known, max_basis=16)
    assert begun < capped.deflated <= 16
    assert capped.probes > found.probes


def test_probes_of_a_flat_spectrum_are_not_deflated() -> None:
    found = trace(matrix_operator(symmetric(1 + torch.linspace(0, 1, 300))), rtol=0.02)
    assert (found.deflated, found.probes) == (0, 10)


def test_the_minimum_holds_even_where_the_error_vanishes() -> None:
    assert trace(matrix_operator(torch.eye(5).double()), rtol=0.5, min_probes=17).probes == 17


def test_a_zero_trace_ends_at_max_probes() -> None:
    matrix = torch.tensor([[0.0, 1.0], [1.0, 0.0]], dtype=torch.float64)
    found = trace(matrix_operator(matrix), rtol=1e-3, max_probes=64, max_basis=0)
    assert found.probes == 64
    assert trace(matrix_operator(matrix), rtol=1e-3).value == pytest.approx(0, abs=1e-12)  # two steps suffice
    assert abs(found.value) < 4 * found.stderr_probe


def test_a_non_finite_product_ends_the_run_and_shows() -> None:
    found = trace(LambdaOperator(lambda v: v * torch.inf, 3), max_probes=50)
    assert found.value == float("inf")
    assert found.probes == 1
    later = LambdaOperator(lambda v: torch.where(v.abs() == 1, v, torch.nan), 3)  # spoils Lanczos only
    assert math.isnan(trace(later + matrix_operator(torch.ones(3, 3).double()), rtol=1e-3).value)


def test_the_data_error_is_that_of_the_batches_traces() -> None:
    case = mlp()
    found = trace(case.operator, probes=51, sampler=orthogonal)
    traces = torch.tensor(
        [
            trace(Hessian(case.model, case.loss_fn, Batches(x, y)), probes=51, sampler=orthogonal).value
            for x, y in case.batches
        ]
    )
    assert found.stderr_data == pytest.approx(data_stderr(traces, case.batches.sizes), rel=1e-6)
    assert math.isnan(trace(matrix_operator(torch.eye(2).double()), probes=2).stderr_data)  # no batches


def test_data_stderr_recovers_the_error_of_a_sample_mean() -> None:
    sizes, draws = (40, 40, 40, 40, 40, 10), 2000
    samples = 3 * torch.randn(draws, sum(sizes), dtype=torch.float64, generator=_generator())
    forms = torch.stack([part.mean(1) for part in torch.split(samples, list(sizes), dim=1)], dim=1)
    variances = torch.tensor([data_stderr(row, sizes) ** 2 for row in forms])
    assert float(variances.mean()) == pytest.approx(9 / sum(sizes), rel=0.06)  # 3 standard errors
    assert math.isnan(data_stderr(forms[0, :1], sizes[:1]))  # one batch has no spread


def test_the_data_error_leaves_out_the_noise_of_probes() -> None:
    sizes, draws = (20,) * 6 + (10,), 3000
    counts, noise = torch.tensor(sizes, dtype=torch.float64), 0.6
    spread, probes = (3 / counts).sqrt(), 8
    normal = torch.randn(draws, 1 + probes, len(sizes), dtype=torch.float64, generator=_generator())
    estimates = spread * normal[:, :1] + noise * normal[:, 1:]
    variances = torch.tensor([probed_data_error(each, sizes)[0] ** 2 for each in estimates])
    assert float(variances.mean()) == pytest.approx(3 / sum(sizes), rel=0.08)
    alone = torch.tensor([probed_data_error(each[:1], sizes)[0] ** 2 for each in estimates])
    assert float(alone.mean()) > 2 * 3 / sum(sizes)  # one probe: its noise cannot be told apart
    assert probed_data_error(estimates[0], sizes)[1] == 6
    assert math.isnan(probed_data_error(estimates[0, :, :1], sizes[:1])[0])


def test_errors_and_their_degrees_of_freedom_combine() -> None:
    assert combined((3.0, 8.0), (0.0, 0.0)) == (3.0, 8.0)
    stderr, dof = combined((1.0, 5.0), (1.0, 5.0))
    assert stderr == pytest.approx(2**0.5)
    assert dof == pytest.approx(10)
    assert math.isnan(combined((1.0, math.inf), (math.nan, math.nan))[0])
    assert combined((1.0, math.inf)) == (1.0, math.inf)


def test_the_population_interval_holds_both_errors() -> None:
    found = trace(mlp().operator, probes=20)
    reach, probes_alone = (high - found.value for _, high in (found.population_interval(), found.interval()))
    data_alone = interval(0, found.stderr_data, found.dof_data)[1]
    assert max(probes_alone, data_alone) < reach < probes_alone + data_alone


def test_all_there_is_in_one_batch_has_no_error_over_the_data() -> None:
    case = mlp()
    inputs, targets = (torch.cat(side) for side in zip(*case.batches, strict=True))
    every = len(targets)
    op = Hessian(case.model, case.loss_fn, Batches(inputs, targets, every, population=every))
    found = trace(op, probes=8)
    assert (found.stderr_data, found.population_interval()) == (0.0, found.interval())
    pairs = top_eigenpairs(op)
    value, residual = float(pairs.values[0]), float(pairs.residuals[0])
    assert float(pairs.stderr_data[0]) == 0.0
    assert pairs.interval() == pytest.approx((value - residual, value + residual))


def test_the_jackknife_of_a_mean_is_its_squared_standard_error() -> None:
    values = torch.randn(12, dtype=torch.float64, generator=_generator())
    left_out = (values.sum() - values) / 11
    assert float(jackknife_variance(left_out)) == pytest.approx(float(values.var() / 12))


def test_progress_knows_the_total_of_fixed_probes_and_from_the_second_stage_on() -> None:
    operator, seen = matrix_operator(torch.eye(4).double()), list[tuple[int, int | None]]()
    trace(operator, probes=2, progress=lambda done, total, *_: seen.append((done, total)))
    trace(operator, rtol=1.0, min_probes=2, progress=lambda done, total, *_: seen.append((done, total)))
    assert seen == [(1, 2), (2, 2), (1, None), (2, None)]
    seen.clear()
    matrix = symmetric(torch.linspace(0, 3, 60, dtype=torch.float64).exp())
    found = trace(
        matrix_operator(matrix),
        rtol=0.05,
        min_probes=4,
        max_basis=3,
        progress=lambda done, total, *_: seen.append((done, total)),
    )
    assert found.probes > 5
    assert seen[:4] == [(1, None), (2, None), (3, None), (4, None)]
    assert seen[-2:] == [(found.matvecs - 1, found.matvecs), (found.matvecs, found.matvecs)]


def test_the_last_estimate_of_the_progress_is_the_result() -> None:
    said = list[str]()
    matrix = symmetric(torch.linspace(0, 3, 60, dtype=torch.float64).exp())
    found = trace(matrix_operator(matrix), rtol=0.01, progress=lambda _done, _total, text: said.append(text))
    assert found.deflated
    assert said[-1] == f"{found.value:.5g} ± {found.stderr_probe:.2g}"


def test_contradictory_requests_are_refused() -> None:
    operator = matrix_operator(torch.eye(4).double())
    with pytest.raises(UserError, match="at least 2"):
        trace(operator, rtol=0.1, min_probes=1)
    with pytest.raises(UserError, match="not both"):
        trace(operator, rtol=0.1, probes=3)
    with pytest.raises(UserError, match="at least 1"):
        trace(operator, probes=0)
