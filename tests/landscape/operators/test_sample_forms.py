"""Each sample's own vᵀA_i v: against operators on that sample alone, and means against products."""

import gc
import weakref

import pytest
import torch
from torch import Tensor, nn

from fedscope.landscape import Batches, EmpiricalFisher, GaussNewton, Hessian, LambdaOperator, top_eigenpairs
from fedscope.landscape.operators.empirical_risk import LossOperator
from tests.landscape.cases import Case

KINDS = [Hessian, GaussNewton, EmpiricalFisher]


def direction(op: LossOperator) -> Tensor:
    v = torch.randn(op.shape[0], generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    unit: Tensor = v / v.norm()
    return unit


@pytest.mark.parametrize("kind", KINDS)
def test_each_is_that_of_the_sample_alone(case: Case, kind: type[LossOperator]) -> None:
    whole = kind(case.model, case.loss_fn, case.batches)
    v = direction(whole)
    alone = [
        v @ kind(case.model, case.loss_fn, Batches(x[None], y[None])).matvec(v)
        for x, y in zip(case.inputs, case.targets, strict=True)
    ]
    found = whole.sample_forms(v)
    assert found is not None
    torch.testing.assert_close(found, torch.stack(alone), rtol=1e-8, atol=1e-12)
    torch.testing.assert_close(found.mean(), v @ whole.matvec(v))


def test_sums_and_multiples_have_them(case: Case) -> None:
    H, G = (kind(case.model, case.loss_fn, case.batches) for kind in (Hessian, GaussNewton))
    v = direction(H)
    both, one, other = ((H + 0.5 * G).sample_forms(v), H.sample_forms(v), G.sample_forms(v))
    assert both is not None
    assert one is not None
    assert other is not None
    torch.testing.assert_close(both, one + 0.5 * other)


def test_there_are_none_where_samples_depend_on_each_other() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, 2)).double()
    batches = Batches(torch.randn(8, 4).double(), torch.randint(2, (8,)))
    op = Hessian(model, nn.functional.cross_entropy, batches, bn="batch")
    assert op.sample_forms(direction(op)) is None
    assert LambdaOperator(lambda v: v, 3).sample_forms(torch.ones(3)) is None


@pytest.mark.parametrize(("size", "asked"), [(1, 0), (2, 1)])
def test_batches_of_one_sample_tell_them(
    case: Case, size: int, asked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their vᵀH_b v are the samples', known from the products."""
    H = Hessian(case.model, case.loss_fn, Batches(case.inputs, case.targets, size))
    samples_of, calls = H.sample_forms, []

    def counted(v: Tensor) -> Tensor | None:
        calls.append(v)
        return samples_of(v)

    monkeypatch.setattr(H, "sample_forms", counted)
    pairs = top_eigenpairs(H, tol=1e-6)
    assert len(calls) == asked
    expected = samples_of(pairs.vectors[:, 0])
    assert pairs.samples is not None
    assert expected is not None
    torch.testing.assert_close(pairs.samples[0], expected, rtol=1e-5, atol=1e-5 * float(pairs.values[0]))


def test_a_loss_that_looks_at_its_values_is_taken_sample_by_sample(case: Case) -> None:
    def picky(output: Tensor, target: Tensor) -> Tensor:
        return case.loss_fn(output, target) if float(output.detach().sum()) < 1e9 else output.sum()

    plain, looking = (Hessian(case.model, loss, case.batches) for loss in (case.loss_fn, picky))
    v = direction(plain)
    expected, found = plain.sample_forms(v), looking.sample_forms(v)
    assert expected is not None
    assert found is not None
    torch.testing.assert_close(found, expected)


class NoForwardMode(nn.Module):
    """A network with an operation that has no derivative in forward mode."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = _Twice.apply(self.linear(x))  # type: ignore[no-untyped-call]
        return found


class _Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, x: Tensor) -> Tensor:
        return 2 * x

    @staticmethod
    def backward(ctx: object, u: Tensor) -> Tensor:
        return 2 * u


def test_there_are_none_where_an_operation_has_no_derivative_in_forward_mode() -> None:
    torch.manual_seed(0)
    batches = Batches(torch.randn(6, 4), torch.randint(3, (6,)))
    op = Hessian(NoForwardMode(), nn.functional.cross_entropy, batches)
    assert op.sample_forms(torch.ones(op.shape[0])) is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_group_norm_has_them_whatever_the_order_in_memory(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 2)
    ).to(dtype)
    inputs, targets = torch.randn(8, 3, 6, 6, dtype=dtype), torch.randint(2, (8,))
    last = inputs.contiguous(memory_format=torch.channels_last)
    both = [Hessian(model, nn.functional.cross_entropy, Batches(x, targets)) for x in (inputs, last)]
    both.append(Hessian(model, nn.functional.cross_entropy, Batches(last, targets)))
    both[-1].loss.give_up_form("as it is")
    v = direction(both[0]).to(dtype)
    for op in both:
        found = op.sample_forms(v)
        assert found is not None
        torch.testing.assert_close(found.mean(), (v @ op.matvec(v)).double(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_an_operator_lets_its_graphs_go_with_itself(kind: type[LossOperator]) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2)).double()
    batches = Batches(torch.randn(8, 4).double(), torch.randint(2, (8,)))
    op = kind(model, nn.functional.cross_entropy, batches)
    op.matvec(direction(op))
    gc.disable()
    try:
        graphs = weakref.ref(op._graphs())
        del op
        assert graphs() is None
    finally:
        gc.enable()
