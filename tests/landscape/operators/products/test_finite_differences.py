"""Products by finite differences against exact ones: their bounds hold, and are of the size of the error."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from fedscope.errors import UserError
from fedscope.landscape import Batches, EmpiricalFisher, GaussNewton, Hessian
from fedscope.landscape.operators.product_cache import Journaled
from tests.landscape.cases import Case
from tests.landscape.zoo_odd import OnceCube


def differences(model: nn.Module, batches: Batches, **options: Any) -> Hessian:
    return Hessian(model, nn.CrossEntropyLoss(), batches, products="finite-differences", **options)


def vectors(exact: Hessian, count: int = 6) -> Tensor:
    """Random directions, and those of a power iteration: of large curvature."""
    rows = torch.randn(count, exact.shape[0], generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    for i in range(1, count, 2):
        rows[i] = exact @ (exact @ rows[i - 1])
    return rows


class Attention(nn.Module):
    """Attention by a chosen kernel, in a chosen precision, and a head."""

    def __init__(self, kernel: SDPBackend, rounded: bool = False) -> None:
        super().__init__()
        self.inner, self.outer, self.head = nn.Linear(6, 48), nn.Linear(16, 6), nn.Linear(6, 3)
        self.kernel, self.rounded = kernel, rounded

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.rounded), sdpa_kernel(self.kernel):
            q, k, v = (part[:, None] for part in self.inner(x).chunk(3, -1))
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)[:, 0]
            logits: Tensor = self.head(torch.tanh(x + self.outer(mixed)).mean(1))
        return logits.to(x.dtype)


@pytest.fixture
def sequences() -> Batches:
    torch.manual_seed(0)
    return Batches(2 * torch.randn(48, 5, 6), torch.randint(3, (48,)), 16)


def check(H: Hessian, exact: Hessian) -> float:
    """Check the bounds of some products, and return the largest bound relative to its product."""
    relative = []
    for v in vectors(exact):
        product, expected = H.product(v.to(H.dtype)), exact @ v.to(H.dtype).double()
        away = float((product.vector.double() - expected).norm())
        assert 0 < away <= product.error
        relative.append(product.error / float(expected.norm()))
    return max(relative)


@pytest.mark.parametrize(("dtype", "most"), [(torch.float32, 1e-2), (torch.float64, 1e-7)])
def test_the_bounds_hold(case: Case, dtype: torch.dtype, most: float) -> None:
    H = Hessian(
        copy.deepcopy(case.model).to(dtype), case.loss_fn, case.batches, products="finite-differences"
    )
    assert check(H, case.operator) < most


def test_the_bounds_hold_where_a_second_derivative_is_missing(sequences: Batches) -> None:
    torch.manual_seed(1)
    model = Attention(SDPBackend.FLASH_ATTENTION)
    with pytest.raises(UserError, match=r"FlashAttention.*--products finite-differences"):
        Hessian(model, nn.CrossEntropyLoss(), sequences).matvec(torch.ones(459))
    exact = copy.deepcopy(model).double()
    exact.kernel = SDPBackend.MATH
    assert check(differences(model, sequences), Hessian(exact, nn.CrossEntropyLoss(), sequences)) < 1e-2


def test_the_bounds_hold_in_bfloat16(sequences: Batches) -> None:
    torch.manual_seed(1)
    model = Attention(SDPBackend.MATH, rounded=True)
    exact = copy.deepcopy(model).double()
    exact.rounded = False
    H = differences(model, sequences)
    assert check(H, Hessian(exact, nn.CrossEntropyLoss(), sequences)) < 10
    assert H.differences
    assert H.differences.step.length > 1e-2  # eight bits are not seen to move by less


def test_a_once_differentiable_function_is_offered_differences() -> None:
    torch.manual_seed(0)

    class Cube(nn.Module):
        def __init__(self, cube: Any) -> None:
            super().__init__()
            self.inner, self.outer, self.cube = nn.Linear(4, 5), nn.Linear(5, 3), cube

        def forward(self, x: Tensor) -> Tensor:
            logits: Tensor = self.outer(self.cube(self.inner(x)))
            return logits

    once = Cube(OnceCube.apply).double()
    plain = Cube(lambda x: x**3).double()
    plain.load_state_dict(once.state_dict())
    data = Batches(torch.randn(30, 4), torch.randint(3, (30,)), 10)
    for kind, offered in ((Hessian, True), (GaussNewton, False)):
        with pytest.raises(UserError, match="once_differentiable") as refused:
            kind(once, nn.CrossEntropyLoss(), data).matvec(torch.ones(43, dtype=torch.float64))
        assert ("finite-differences" in str(refused.value)) is offered
    assert check(differences(once, data), Hessian(plain, nn.CrossEntropyLoss(), data)) < 1e-6


@pytest.mark.parametrize("kind", [GaussNewton, EmpiricalFisher])
def test_other_operators_are_no_derivatives_of_gradients(kind: type[GaussNewton], sequences: Batches) -> None:
    with pytest.raises(UserError, match="the Hessian alone"):
        kind(Attention(SDPBackend.MATH), nn.CrossEntropyLoss(), sequences, products="finite-differences")


def test_parts_make_no_difference_and_none_is_kept(sequences: Batches) -> None:
    model = Attention(SDPBackend.MATH).double()
    whole, cut = differences(model, sequences), differences(model, sequences, memory=1 << 12)
    assert whole.plan.kept == cut.plan.kept == 0
    assert cut.plan.graphs > whole.plan.graphs == 3
    v = torch.randn(whole.shape[0], dtype=torch.float64)
    one, other = whole.product(v), cut.product(v)
    torch.testing.assert_close(one.vector, other.vector, atol=one.error + other.error, rtol=0)
    assert one.forms is not None
    assert other.forms is not None
    torch.testing.assert_close(one.forms, other.forms, atol=1e-6, rtol=1e-6)
    mean = torch.tensor(whole.weights, dtype=torch.float64) / 48 @ one.forms
    torch.testing.assert_close(mean, v @ one.vector)


def test_the_weights_are_put_back_and_the_bits_repeat(sequences: Batches) -> None:
    model = Attention(SDPBackend.MATH)
    before = copy.deepcopy(model.state_dict())
    H = differences(model, sequences)
    rows = torch.randn(2, H.shape[0])
    first = H.products(rows)
    assert all(torch.equal(now, before[name]) for name, now in model.state_dict().items())
    assert torch.equal(torch.cat([p.flatten() for p in H.loss.parameters]), H.loss.center)
    H.products(torch.randn(1, H.shape[0]))
    for one, again, alone in zip(first, H.products(rows), map(H.product, rows), strict=True):
        assert torch.equal(one.vector, again.vector)
        assert torch.equal(one.vector, alone.vector)
        assert (one.error, one.form_error) == (again.error, again.form_error)
    assert differences(model, sequences).fingerprint == H.fingerprint
    assert Hessian(model, nn.CrossEntropyLoss(), sequences).fingerprint != H.fingerprint


def test_a_zero_vector_has_no_product_and_no_error(sequences: Batches) -> None:
    H = differences(Attention(SDPBackend.MATH), sequences)
    product = H.product(torch.zeros(H.shape[0]))
    assert float(product.vector.norm()) == product.error == product.form_error == 0


def test_weights_that_a_step_does_not_move_are_in_the_bound() -> None:
    """Beside a weight of 1e6 a step of 0.1 moves no 1e-3 of it: what it would have changed is bounded."""
    torch.manual_seed(0)

    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.cat([torch.full((4,), 1e6), torch.randn(4)]))

        def forward(self, x: Tensor) -> Tensor:
            low, high = self.weight[:4] - 1e6, self.weight[4:]
            return torch.stack([x @ low, x @ high, (x @ high).tanh()], 1)

    data = Batches(torch.randn(20, 4), torch.randint(3, (20,)), 10)
    H, exact = differences(Scaled(), data), Hessian(Scaled().double(), nn.CrossEntropyLoss(), data)
    exact.loss.center.copy_(H.loss.center)
    exact.loss.load(exact.loss.center)
    assert H.differences
    v = torch.ones(8)
    v[:4] = 1e-4 / H.differences.step.length  # with ‖v‖ near 2: below the last place of 1e6
    product = H.product(v)
    away = float((product.vector.double() - exact @ v.double()).norm())
    assert 0 < away <= product.error


def test_errors_go_along(sequences: Batches, tmp_path: Path) -> None:
    H = differences(Attention(SDPBackend.MATH), sequences)
    v = torch.randn(H.shape[0])
    one = H.product(v)
    twice = (-2 * H).damped(0.5).product(v)
    assert twice.error == pytest.approx(2 * one.error)
    assert twice.form_error == pytest.approx(-2 * one.form_error)
    for _ in range(2):
        kept = Journaled(H, tmp_path / "products").product(v)
        assert (kept.error, kept.form_error) == (one.error, one.form_error)
