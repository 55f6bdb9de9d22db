"""Sums, differences, multiples and damped operators against dense matrices, with their batches' parts."""

from operator import add, mul, sub, truediv

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fedscope.errors import UserError
from fedscope.landscape import Batches, GaussNewton, Hessian, LambdaOperator, Operator, trace
from tests import tiers
from tests.landscape.cases import Case, matrix_operator, mlp, symmetric

_numbers = st.floats(-10, 10)
_matrix = st.lists(_numbers, min_size=3, max_size=3)


def _vectors(count: int, n: int = 51) -> Tensor:
    return torch.randn(count, n, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


@settings(max_examples=tiers.examples(), deadline=None)
@given(a=_numbers, b=_numbers, c=_numbers, entries=_matrix, vector=_matrix)
def test_operators_add_and_scale_as_matrices(
    a: float, b: float, c: float, entries: list[float], vector: list[float]
) -> None:
    A, B = symmetric(torch.tensor([3.0, 1.0, -2.0])), torch.tensor(entries, dtype=torch.float64).diag()
    one, other, v = matrix_operator(A), matrix_operator(B), torch.tensor(vector, dtype=torch.float64)
    eye = torch.eye(3, dtype=torch.float64)
    for operator, matrix in [
        (a * one + other * b, a * A + b * B),
        (one - other, A - B),
        (-(one - other.damped(c)) / 4, (B + c * eye - A) / 4),
        ((a * one).damped(c) - other - one, (a - 1) * A + c * eye - B),
        (sum([one, other, one]), 2 * A + B),
        (np.float64(a) * one, a * A),
    ]:
        assert isinstance(operator, Operator)
        torch.testing.assert_close(operator @ v, matrix @ v, rtol=1e-9, atol=1e-9)


def test_an_operator_that_comes_twice_is_multiplied_once() -> None:
    calls = []
    operator = LambdaOperator(lambda v: calls.append(1) or v, 3)  # type: ignore[func-returns-value]
    combined = 2 * operator - operator / 2 + operator.damped(1)
    assert torch.equal(combined @ torch.ones(3), torch.full((3,), 3.5, dtype=torch.float64))
    assert len(calls) == 1


@pytest.fixture(scope="module")
def parts() -> tuple[list[Tensor], list[Tensor]]:
    """Each batch's dense Hessian, and each sample's."""
    case = mlp()
    return (
        [_dense(case, inputs, targets) for inputs, targets in case.batches],
        [_dense(case, case.inputs[i : i + 1], case.targets[i : i + 1]) for i in range(23)],
    )


def _dense(case: Case, inputs: Tensor, targets: Tensor) -> Tensor:
    return Case("part", case.model, case.loss_fn, inputs, targets, 8).dense()


def test_what_batches_and_samples_say_goes_along(parts: tuple[list[Tensor], list[Tensor]]) -> None:
    operator = -2 * mlp().operator.damped(0.5)
    eye = torch.eye(51, dtype=torch.float64)
    batches, samples = ([-2 * (part + 0.5 * eye) for part in of] for of in parts)
    v, *onto = _vectors(3)
    found = operator.product(v, onto=torch.stack(onto))
    torch.testing.assert_close(found.forms, torch.stack([v @ part @ v for part in batches]))
    wanted = torch.stack([torch.stack([u @ part @ v for u in onto]) for part in batches])
    torch.testing.assert_close(found.onto, wanted)
    torch.testing.assert_close(operator.sample_forms(v), torch.stack([v @ part @ v for part in samples]))


def test_what_batches_say_of_the_diagonal_goes_along(parts: tuple[list[Tensor], list[Tensor]]) -> None:
    case = mlp()
    operator, probes = (case.operator * 3).damped(0.5), _vectors(2).sign()
    eye = torch.eye(51, dtype=torch.float64)
    diagonals = torch.stack([probes * (probes @ (3 * part + 0.5 * eye)) for part in parts[0]], 1)  # (m, B, n)
    found = operator.diagonal_parts(probes, 3)
    assert found is not None
    torch.testing.assert_close(found, diagonals)
    few = operator.diagonal_parts(probes, 2)
    last = (8 * diagonals[:, 1] + 7 * diagonals[:, 2]) / 15
    torch.testing.assert_close(few, torch.stack([diagonals[:, 0], last], 1))
    doubled = case.operator + operator
    torch.testing.assert_close(
        doubled.diagonal_parts(probes, 3), found + case.operator.diagonal_parts(probes, 3)
    )


def test_a_sum_has_forms() -> None:
    case = mlp()
    H, G = case.operator, GaussNewton(case.model, case.loss_fn, case.batches)
    v, w = _vectors(2)
    found, expected = (H - G).product(v, onto=w[None]), [op.product(v, onto=w[None]) for op in (H, G)]
    for what in ("vector", "forms", "onto"):
        one, other = (getattr(product, what) for product in expected)
        torch.testing.assert_close(getattr(found, what), one - other)
    forms, each = (H - G).sample_forms(v), [op.sample_forms(v) for op in (H, G)]
    assert each[0] is not None
    assert each[1] is not None
    torch.testing.assert_close(forms, each[0] - each[1])


def test_sums_keep_forms_and_blocks_only_where_they_agree() -> None:
    H = mlp().operator
    v = torch.ones(51, dtype=torch.float64)
    plain = H + LambdaOperator(lambda v: v, 51)
    assert plain.product(v).forms is None
    assert plain.sample_forms(v) is None
    assert plain.weights is None
    assert plain.blocks == (("all", 51),)
    torch.testing.assert_close(plain.matvec(v), H.matvec(v) + v)
    reshaped = H + LambdaOperator(lambda v: v, 51, blocks=H.blocks)
    assert reshaped.shapes == (torch.Size([51]),)
    case = mlp()
    whole = Hessian(case.model, case.loss_fn, Batches(case.inputs, case.targets, 8, population=99))
    assert (H + whole).population is None
    assert (2 * whole).population == 99
    assert (2 * H).blocks == H.blocks
    assert (H - 3 * H).shapes == H.shapes == case.operator.shapes


def test_damping_moves_eigenvalues_and_the_trace_by_what_it_says() -> None:
    H = mlp().operator
    plain, damped = (trace(op, probes=4) for op in (H, H.damped(2)))
    assert damped.value == pytest.approx(plain.value + 2 * 51)
    assert damped.stderr_data == pytest.approx(plain.stderr_data)
    assert damped.matvecs == plain.matvecs


def test_what_does_not_fit_is_refused() -> None:
    one = LambdaOperator(lambda v: v, 2)
    with pytest.raises(UserError, match="shape"):
        one + LambdaOperator(lambda v: v, 3)
    with pytest.raises(UserError, match="dtype"):
        one - LambdaOperator(lambda v: v, 2, torch.float32)
    with pytest.raises(UserError, match=r"H\.damped\(0\.1\)"):
        one + 0.1  # type: ignore[operator]
    for act, other in [(add, "a"), (sub, 1), (mul, one), (truediv, one)]:
        with pytest.raises(TypeError, match="unsupported operand"):
            act(one, other)
