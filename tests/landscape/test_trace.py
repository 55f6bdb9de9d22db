import math
from itertools import islice

import pytest
import torch
from torch import Tensor

from fedscope.errors import UserError
from fedscope.landscape import Batches, Hessian, LambdaOperator, orthogonal, rademacher, trace
from fedscope.landscape.errorbars import data_stderr, jackknife_variance
from fedscope.landscape.probes import LARGEST_ORTHOGONAL

from .cases import Case, matrix_operator, mlp, symmetric

CPU = torch.device("cpu")


def _generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


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
    loose, tight = trace(operator, rtol=0.05), trace(operator, rtol=0.01)
    assert loose.stderr_probe <= 0.05 * loose.value
    assert tight.stderr_probe <= 0.01 * tight.value
    assert 10 <= loose.probes < tight.probes < 1000
    assert abs(tight.value - 30) < 3 * tight.stderr_probe
    assert trace(operator) == loose


def test_the_minimum_holds_even_where_the_error_vanishes() -> None:
    assert trace(matrix_operator(torch.eye(5).double()), rtol=0.5, min_probes=17).probes == 17


def test_a_zero_trace_ends_at_max_probes() -> None:
    matrix = torch.tensor([[0.0, 1.0], [1.0, 0.0]], dtype=torch.float64)
    found = trace(matrix_operator(matrix), rtol=1e-3, max_probes=64)
    assert found.probes == 64
    assert abs(found.value) < 4 * found.stderr_probe


def test_a_non_finite_product_ends_the_run_and_shows() -> None:
    found = trace(LambdaOperator(lambda v: v * torch.inf, 3), max_probes=50)
    assert found.value == float("inf")
    assert found.probes == 1


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


def test_the_jackknife_of_a_mean_is_its_squared_standard_error() -> None:
    values = torch.randn(12, dtype=torch.float64, generator=_generator())
    left_out = (values.sum() - values) / 11
    assert float(jackknife_variance(left_out)) == pytest.approx(float(values.var() / 12))


def test_progress_knows_the_total_only_with_fixed_probes() -> None:
    operator, seen = matrix_operator(torch.eye(4).double()), list[tuple[int, int | None]]()
    trace(operator, probes=2, progress=lambda done, total: seen.append((done, total)))
    trace(operator, rtol=1.0, min_probes=2, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(1, 2), (2, 2), (1, None), (2, None)]


def test_contradictory_requests_are_refused() -> None:
    operator = matrix_operator(torch.eye(4).double())
    with pytest.raises(UserError, match="not both"):
        trace(operator, rtol=0.1, probes=3)
    with pytest.raises(UserError, match="at least 1"):
        trace(operator, probes=0)
