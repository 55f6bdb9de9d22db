import math
import weakref
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from fedscope.choices import AtMost
from fedscope.errors import UserError
from fedscope.landscape import Batches, Hessian, LambdaOperator, top_eigenpairs
from fedscope.landscape.spectral.data_error import eigenvalue_errors
from fedscope.landscape.spectral.eigenpairs import starting_vector
from fedscope.landscape.spectral.krylov.ritz import Which
from tests import tiers
from tests.landscape.cases import Case, matrix_operator, mlp, symmetric
from tests.landscape.coverage import BatchMatrices
from tests.landscape.features import Features

SPREAD = torch.cat([torch.linspace(0, 1, 180) ** 3, torch.linspace(1.2, 4, 20)])


def _descending(matrix: Tensor) -> Tensor:
    values: Tensor = torch.linalg.eigvalsh(matrix)
    return values.flip(0)


@pytest.mark.parametrize("k", [1, 5])
def test_the_largest_eigenvalues_of_a_net(case: Case, dense: Tensor, k: int) -> None:
    found = top_eigenpairs(case.operator, k=k, tol=1e-8)
    assert found.converged
    torch.testing.assert_close(found.values, _descending(dense)[:k], rtol=1e-6, atol=1e-12)
    torch.testing.assert_close(dense @ found.vectors, found.vectors * found.values, rtol=0, atol=1e-7)
    torch.testing.assert_close(found.vectors.T @ found.vectors, torch.eye(k, dtype=torch.float64))


def test_the_whole_spectrum(case: Case, dense: Tensor) -> None:
    n = len(dense)
    found = top_eigenpairs(case.operator, k=n, tol=1e-8)
    assert found.converged
    assert found.matvecs == n
    torch.testing.assert_close(found.values, _descending(dense), rtol=1e-6, atol=1e-10)


def test_the_residual_bounds_the_error_and_is_the_true_one() -> None:
    spectrum = torch.linspace(0, 1, 200).double() ** 4
    matrix = symmetric(spectrum)
    found = top_eigenpairs(matrix_operator(matrix), k=3, tol=1e-2)
    assert found.converged
    assert bool((found.residuals <= 1e-2 * found.values[0]).all())
    assert bool((found.residuals > 0).all())
    remainder = matrix @ found.vectors - found.vectors * found.values
    torch.testing.assert_close(remainder.norm(dim=0), found.residuals)
    nearest = (found.values[:, None] - spectrum).abs().min(1).values
    assert bool((nearest <= found.residuals).all())
    assert found.matvecs < 60


def test_algebraically_largest_not_largest_in_size() -> None:
    found = top_eigenpairs(matrix_operator(symmetric(torch.linspace(-9, 2, 50))), k=2, tol=1e-6)
    torch.testing.assert_close(found.values, torch.linspace(-9, 2, 50).double()[-2:].flip(0))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "spectrum",
    [[5.0, 5, 5, 1, 1, 1], [2.0] * 6, [0.0] * 6, [-1.0, -1, -1, -1, -3, -3], [7.0, 7, 4, 4, 4, 0, 0, 0]],
)
def test_multiple_eigenvalues_are_counted_with_their_multiplicity(
    spectrum: list[float], dtype: torch.dtype
) -> None:
    matrix = symmetric(torch.tensor(spectrum)).to(dtype)
    expected = torch.tensor(sorted(spectrum, reverse=True), dtype=torch.float64)
    for k in range(1, len(spectrum) + 1):
        found = top_eigenpairs(matrix_operator(matrix), k=k)
        assert found.converged
        torch.testing.assert_close(found.values, expected[:k], rtol=1e-4, atol=1e-5)
        gram = found.vectors.T @ found.vectors
        torch.testing.assert_close(gram, torch.eye(k, dtype=dtype), rtol=0, atol=1e-5)


@pytest.mark.parametrize("k", [1, 6])
def test_either_end_or_both(case: Case, dense: Tensor, k: int) -> None:
    expected = _descending(dense)
    low = top_eigenpairs(case.operator, k=k, which="smallest", tol=1e-9)
    torch.testing.assert_close(low.values, expected[-k:], rtol=1e-6, atol=1e-10)
    both = top_eigenpairs(case.operator, k=k, which="both", tol=1e-9)
    torch.testing.assert_close(both.values, torch.cat([expected[:k], expected[-k:]]), rtol=1e-6, atol=1e-10)
    torch.testing.assert_close(dense @ both.vectors, both.vectors * both.values, rtol=0, atol=1e-7)
    assert low.converged
    assert both.converged


@pytest.mark.parametrize("spectrum", [[5.0, 5, 1, 1, 1, 1], [2.0] * 6, [7.0, 7, 4, 4, 0, 0]])
def test_multiple_eigenvalues_at_both_ends(spectrum: list[float]) -> None:
    for k in (1, 2, 3):
        found = top_eigenpairs(matrix_operator(symmetric(torch.tensor(spectrum))), k=k, which="both")
        expected = torch.tensor(sorted(spectrum, reverse=True), dtype=torch.float64)
        torch.testing.assert_close(
            found.values, torch.cat([expected[:k], expected[-k:]]), rtol=1e-4, atol=1e-5
        )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("which", ["largest", "smallest", "both"])
def test_a_short_basis_is_restarted(which: Which, dtype: torch.dtype) -> None:
    spectrum = torch.cat([SPREAD, -SPREAD / 2]).double()
    operator = matrix_operator(symmetric(spectrum).to(dtype))
    whole = top_eigenpairs(operator, k=4, which=which, tol=1e-5, max_matvecs=2000)
    short = top_eigenpairs(operator, k=4, which=which, tol=1e-5, max_basis=14, max_matvecs=2000)
    assert whole.converged
    assert short.converged
    torch.testing.assert_close(short.values, whole.values, rtol=1e-5, atol=1e-5)
    assert short.matvecs > whole.matvecs
    assert short.subspace is not None
    assert len(short.subspace.basis) <= 14
    gram = short.subspace.basis @ short.subspace.basis.T
    torch.testing.assert_close(
        gram, torch.eye(len(gram), dtype=dtype), rtol=0, atol=30 * torch.finfo(dtype).eps
    )


def test_a_restart_keeps_the_copies_that_a_breakdown_found() -> None:
    spectrum = torch.zeros(60, dtype=torch.float64)
    spectrum[:9] = torch.tensor([9.0, 9, 9, 6, 6, 6, 4, 4, 4])
    found = top_eigenpairs(matrix_operator(symmetric(spectrum)), k=6, max_basis=9)
    assert found.converged
    torch.testing.assert_close(found.values, spectrum[:6], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("k", [1, 5])
def test_float32_residuals_and_values_are_honest(k: int) -> None:
    matrix = symmetric(SPREAD).float()
    truth = torch.linalg.eigvalsh(matrix.double()).flip(0)[:k]
    found = top_eigenpairs(matrix_operator(matrix), k=k, tol=1e-6)
    wide = found.vectors.double()
    true = (matrix.double() @ wide - wide * found.values).norm(dim=0)
    assert bool((true <= found.residuals + 1e-6).all())  # the products' own rounding
    assert bool((found.residuals <= true + 1e-5).all())
    assert bool(((found.values - truth).abs() <= found.residuals + found.noise).all())
    assert 1e-9 < found.noise < 1e-5


def test_a_start_from_a_neighbour_saves_products() -> None:
    matrix = symmetric(SPREAD)
    near = matrix + 0.02 * symmetric(torch.linspace(-1, 1, 200), seed=1)
    cold = top_eigenpairs(matrix_operator(near))
    for start in (
        before := top_eigenpairs(matrix_operator(matrix)),
        before.vectors[:, 0],
        before.vectors.T.float(),
    ):
        warm = top_eigenpairs(matrix_operator(near), start=start)
        assert warm.converged
        torch.testing.assert_close(warm.values, cold.values, rtol=1e-4, atol=1e-6)
        assert warm.matvecs < 0.8 * cold.matvecs


def test_the_subspace_is_that_of_the_products() -> None:
    case = mlp()
    found, dense = top_eigenpairs(case.operator, k=3), case.dense()
    known = found.subspace
    assert known is not None
    assert known.matvecs == len(known.basis) < found.matvecs  # others looked for what one start cannot see
    torch.testing.assert_close(known.basis @ dense @ known.basis.T, known.projected, rtol=0, atol=1e-10)


def test_float32_reaches_its_rounding_and_stops_there() -> None:
    matrix = symmetric(torch.linspace(0, 1, 80) ** 3).float()
    assert top_eigenpairs(matrix_operator(matrix), k=4, tol=1e-5).converged
    hopeless = top_eigenpairs(matrix_operator(matrix * 1e-3 - torch.eye(80)), k=1, tol=1e-9)
    assert float(hopeless.residuals[0]) < 1e-5
    assert hopeless.matvecs <= 80 + 20


def test_the_budget_is_kept_and_reported() -> None:
    operator = matrix_operator(symmetric(torch.linspace(0, 1, 300)))
    found = top_eigenpairs(operator, k=3, tol=1e-10, max_matvecs=20)
    assert not found.converged
    assert found.matvecs == 20
    assert float(found.residuals.max()) > 1e-10


def test_every_product_is_counted_and_announced() -> None:
    matrix, calls, seen = symmetric(torch.linspace(0, 1, 50)), [0], list[int]()

    def matvec(v: Tensor) -> Tensor:
        calls[0] += 1
        return matrix @ v

    found = top_eigenpairs(LambdaOperator(matvec, 50), k=2, progress=lambda done, *_: seen.append(done))
    assert found.matvecs == calls[0] == seen[-1]
    assert seen == sorted(seen)


def test_the_generator_decides_and_the_default_repeats() -> None:
    operator = matrix_operator(symmetric(torch.linspace(0, 1, 50)))
    first, again = top_eigenpairs(operator), top_eigenpairs(operator)
    other = top_eigenpairs(operator, generator=torch.Generator().manual_seed(7))
    assert torch.equal(first.vectors, again.vectors)
    assert not torch.equal(first.vectors, other.vectors)
    assert (first.seed, other.seed) == (0, 7)


def test_the_data_error_is_at_most_that_of_the_mean_over_batches() -> None:
    case = mlp()
    found = top_eigenpairs(case.operator, k=2, by_sample=False)
    forms = torch.stack(
        [
            v @ Hessian(case.model, case.loss_fn, Batches(x, y)).matvec(v)
            for v in found.vectors.T
            for x, y in case.batches
        ]
    ).view(2, 3)
    counts = torch.tensor([8.0, 8.0, 7.0]).double()
    spread = (counts * (forms - found.values[:, None]) ** 2).sum(1) / (2 * 23)
    assert found.forms is not None
    torch.testing.assert_close(found.forms, forms)
    assert bool((found.stderr_data <= spread.sqrt() * (1 + 1e-6)).all())
    alone = Hessian(case.model, case.loss_fn, Batches(case.inputs, case.targets))
    single = top_eigenpairs(alone, by_sample=False)
    assert bool(single.stderr_data.isnan())
    assert bool(single.bias_data.isnan())
    assert all(math.isnan(end) for end in single.interval())


def test_non_finite_curvature_comes_out_as_nan() -> None:
    case = mlp()
    with torch.no_grad():
        case.model[0].weight[0, 0] = torch.nan  # type: ignore[index]
    found = top_eigenpairs(case.operator, k=2)
    assert not found.converged
    assert bool(found.values.isnan().all())
    assert found.vectors.shape == (51, 2)


def test_impossible_requests_are_refused() -> None:
    operator = matrix_operator(torch.eye(3).double())
    with pytest.raises(UserError, match="1 to 3"):
        top_eigenpairs(operator, k=4)
    with pytest.raises(UserError, match="1 to 3"):
        top_eigenpairs(operator, k=0)
    with pytest.raises(UserError, match="at least as many"):
        top_eigenpairs(operator, k=2, max_matvecs=1)
    with pytest.raises(UserError, match="1 to 1"):
        top_eigenpairs(operator, k=2, which="both")
    with pytest.raises(UserError, match="largest, smallest, both"):
        top_eigenpairs(operator, which="top")  # type: ignore[arg-type]
    with pytest.raises(UserError, match="at least 3"):
        top_eigenpairs(operator, max_basis=2)
    with pytest.raises(UserError, match="length 3"):
        top_eigenpairs(operator, start=torch.ones(2, 2))
    with pytest.raises(UserError, match="zero or not finite"):
        top_eigenpairs(operator, start=torch.zeros(3))


def test_a_large_space_is_no_breakdown() -> None:
    # β₁ ≈ ‖A‖_F/√n is far below tol·λ_max here, as it is for a network of a million parameters.
    spectrum = torch.zeros(200_000, dtype=torch.float64)
    spectrum[:4] = torch.tensor([12.0, 10.0, 9.0, 8.0])
    spectrum[4:100] = torch.linspace(0, 5, 96)
    pairs = top_eigenpairs(LambdaOperator(lambda v: spectrum * v, len(spectrum)), k=2, tol=1e-2)
    assert pairs.converged
    assert pairs.values.tolist() == pytest.approx([12, 10], rel=1e-3)
    assert pairs.matvecs < 40


def test_none_of_a_crowd_is_passed_over() -> None:
    generator = torch.Generator().manual_seed(0)
    spectrum = 0.02 * torch.randn(20_000, generator=generator, dtype=torch.float64)
    spectrum[:500] += 20 * torch.arange(1, 501, dtype=torch.float64) ** -0.6
    found = top_eigenpairs(LambdaOperator(lambda v: spectrum * v, len(spectrum)), k=60, tol=1e-2)
    assert found.converged
    torch.testing.assert_close(found.values, spectrum.sort().values.flip(0)[:60], rtol=1e-3, atol=0)


def test_well_apart_the_bias_of_the_data_is_that_of_the_jackknife() -> None:
    generator = torch.Generator().manual_seed(3)
    noise = torch.randn(24, 30, 30, generator=generator, dtype=torch.float64)
    parts = symmetric(torch.linspace(-1, 1, 30) ** 5) + 0.02 * (noise + noise.mT)
    found = top_eigenpairs(BatchMatrices(parts, 5), which="both", tol=1e-12)
    values = torch.linalg.eigvalsh(parts.mean(0))
    left_out = torch.linalg.eigvalsh((24 * parts.mean(0) - parts) / 23)
    bias = (23 * (left_out.mean(0) - values)).flip(0)[[0, -1]]
    torch.testing.assert_close(found.bias_data, bias, rtol=0.1, atol=0)
    assert found.bias_data[0] > 0 > found.bias_data[-1]  # the ends lean outward
    assert found.dof_data.tolist() == [23] * 2


def test_the_data_error_is_that_of_the_jackknife_where_that_is_smaller() -> None:
    """Each batch has a direction of its own, so that without the first one another takes its place."""
    generator = torch.Generator().manual_seed(3)
    noise = torch.randn(6, 30, 30, generator=generator, dtype=torch.float64)
    parts = 0.1 * (noise + noise.mT)
    parts[range(6), range(6), range(6)] += torch.linspace(8, 6, 6).double()
    found = top_eigenpairs(BatchMatrices(parts, 5), tol=1e-12)
    left_out = torch.linalg.eigvalsh((6 * parts.mean(0) - parts) / 5)[:, -1]
    jackknife = (5 / 6 * (left_out - left_out.mean()).square().sum()).sqrt()
    assert found.forms is not None
    assert float(jackknife) < 0.5 * float(found.forms.std()) / 6**0.5
    torch.testing.assert_close(found.stderr_data[0], jackknife, rtol=0.02, atol=0)


def test_the_data_error_is_that_of_the_mean_over_samples() -> None:
    case = mlp()
    found = top_eigenpairs(case.operator, k=2)
    alone = [
        Hessian(case.model, case.loss_fn, Batches(x[None], y[None]))
        for x, y in zip(case.inputs, case.targets, strict=True)
    ]
    forms = torch.stack([torch.stack([v @ one.matvec(v) for one in alone]) for v in found.vectors.T])
    assert found.samples is not None
    torch.testing.assert_close(found.samples, forms)
    by_batch = top_eigenpairs(case.operator, k=2, by_sample=False)
    counts, batches = torch.tensor([8.0, 8.0, 7.0]).double(), by_batch.forms
    assert batches is not None
    first_order = ((counts * (batches - found.values[:, None]) ** 2).sum(1) / (2 * 23)).sqrt()
    steadier = by_batch.stderr_data / first_order
    torch.testing.assert_close(found.stderr_data, steadier * forms.std(1) / 23**0.5)
    assert bool((found.dof_data <= 22).all())
    assert bool((found.dof_data > 2).all())


def test_the_bias_of_a_short_run_counts_what_is_outside_its_space() -> None:
    generator = torch.Generator().manual_seed(5)
    spread = 20 * torch.arange(1, 401, dtype=torch.float64) ** -0.8
    samples = torch.randn(8, 32, 400, generator=generator, dtype=torch.float64) * spread.sqrt()
    parts = samples.mT @ samples / 32
    op = BatchMatrices(parts, 32)
    found = top_eigenpairs(op, tol=1e-2)
    bias = float(top_eigenpairs(op, tol=1e-13, max_basis=400, max_matvecs=400).bias_data[0])
    assert found.subspace is not None
    assert found.matvecs < 30
    last = torch.tensor([len(found.subspace.basis) - 1])
    inside = eigenvalue_errors(op, replace(found.subspace, beyond=None), last).bias
    assert float(inside) < bias / 2
    assert float(found.bias_data[0]) == pytest.approx(bias, rel=0.25)


def test_the_interval_is_around_the_corrected_value() -> None:
    found = top_eigenpairs(mlp().operator, k=2, which="both")
    corrected = found.values - found.bias_data
    assert found.population().value == float(corrected[0])
    for i in (0, 3):
        low, high = found.interval(i)
        assert low < float(corrected[i]) < high
    wide, narrow = found.interval(), found.interval(level=0.5)
    assert wide[0] < narrow[0] < narrow[1] < wide[1]


def test_progress_ends_with_the_residuals_of_the_result() -> None:
    operator, texts, most = matrix_operator(symmetric(torch.linspace(0, 1, 60))), list[str](), set[object]()

    def seen(_done: int, total: int, text: str) -> None:
        texts.append(text)
        most.add((type(total), total))

    found = top_eigenpairs(operator, k=2, progress=seen)
    assert most == {(AtMost, 360)}  # 300 and 30 for each
    assert len(texts) == found.matvecs
    assert f"residuals up to {float(found.residuals.max()):.1e}" in texts[-1]


@pytest.mark.drawn
@pytest.mark.parametrize(("bulk", "samples"), [(1.0, 512), (1.44, 1024), (1.88, 512)])
def test_an_interval_in_a_crowd_holds_the_truth(bulk: float, samples: int) -> None:
    """Of 60 values, 59 lie close below λ_max = 2 and raise the sample's by up to 1.3."""
    spectrum = torch.cat([torch.tensor([2.0]), torch.full((59,), bulk)]).double()
    draws = tiers.draws(most=40)
    held = 0
    for seed in range(draws):
        z = torch.randn(samples, 60, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        low, high = top_eigenpairs(Features(z * spectrum.sqrt())).interval()
        held += low <= 2 <= high
    print(f"{held} of {draws}")
    assert held >= 0.92 * draws - draws * tiers.slack(draws, 0.92)


def test_the_start_is_freed_before_the_first_product(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is in float64: eight gigabytes of a billion coordinates, beside whatever a product takes."""
    starts: list[weakref.ref[Tensor]] = []

    def recorded(*given: Any) -> Tensor:
        start = starting_vector(*given)
        starts.append(weakref.ref(start))
        return start

    def product(v: Tensor) -> Tensor:
        assert starts[0]() is None
        return SPREAD * v

    monkeypatch.setattr("fedscope.landscape.spectral.eigenpairs.starting_vector", recorded)
    assert top_eigenpairs(LambdaOperator(product, len(SPREAD), SPREAD.dtype)).certified.all()
