import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import weight_norm

from fedscope.landscape import Batches, Directions, Hessian, eigen_directions, top_eigenpairs
from fedscope.landscape.loss.state_space import StateSpace
from fedscope.landscape.surfaces.directional_curvature import curvature_at_center, curvature_over_steps
from tests.landscape.cases import Case, convnet


def along(*vectors: Tensor) -> Directions:
    return Directions("given", vectors, tuple(f"d{i}" for i in range(len(vectors))))


def test_the_surface_bends_as_the_dense_hessian_says(case: Case, dense: Tensor) -> None:
    d0, d1 = torch.randn(2, len(dense), dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    exact = [float(d @ dense @ d) for d in (d0, d1)]
    own = (case.model, case.loss_fn, case.batches)
    assert curvature_at_center(*own, directions=along(d0, d1)) == pytest.approx(exact, rel=1e-4)
    over = curvature_over_steps(*own, directions=along(d0, d1), steps=(1e-4, 1e-3))
    assert over == pytest.approx(exact, rel=1e-2)


def test_along_eigenvectors_it_is_the_eigenvalues(case: Case) -> None:
    pairs = top_eigenpairs(case.operator, k=2, tol=1e-6)
    found = curvature_at_center(case.model, case.loss_fn, case.batches, directions=eigen_directions(pairs))
    assert found == pytest.approx(pairs.values.tolist(), rel=1e-4)


class Kink(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        return (self.w - 0.01).abs() * x


def test_a_kink_bends_the_surface_and_no_derivative() -> None:
    own = (Kink(), lambda out, _: out.mean(), Batches(torch.ones(1, 1), torch.zeros(1)))
    direction = along(torch.ones(1))
    assert curvature_at_center(*own, directions=direction) == pytest.approx([0], abs=1e-6)
    # |0.05 − 0.01| + |−0.05 − 0.01| − 2·|−0.01| = 0.08
    over = curvature_over_steps(*own, directions=direction, steps=(0.05,))
    assert over == pytest.approx([0.08 / 0.05**2], rel=1e-5)


def test_it_is_at_the_origin_of_the_directions() -> None:
    model = nn.Linear(1, 1, bias=False)
    batches = Batches(torch.ones(1, 1), torch.zeros(1))
    origin, direction = torch.tensor([2.0]), torch.tensor([3.0])
    directions = Directions("given", (direction,), ("x",), origin)
    own = (model, lambda out, _: (out**4).mean(), batches)
    assert curvature_at_center(*own, directions=directions) == pytest.approx([9 * 12 * 4.0])
    assert curvature_over_steps(*own, directions=directions, steps=(1e-2,)) == pytest.approx(
        [432.0], rel=1e-2
    )


def test_statistics_that_move_have_no_gradient() -> None:
    case = convnet()
    space = StateSpace.of(case.model)
    directions = Directions("line", (torch.ones(space.size).double(),), ("α",))
    own = (case.model, case.loss_fn, case.batches)
    assert curvature_at_center(*own, directions=directions) is None


WEIGHTS = torch.tensor([1.0, 2.0, 3.0])


def weighted(output: Tensor, targets: Tensor) -> Tensor:
    return nn.functional.cross_entropy(output, targets, weight=WEIGHTS)


def test_a_narrow_step_is_not_lost_in_rounding() -> None:
    torch.manual_seed(0)
    model, batches = nn.Linear(4, 3), Batches(torch.randn(9, 4), torch.randint(3, (9,)))
    directions = along(torch.eye(15)[0])
    loss = nn.CrossEntropyLoss(weight=WEIGHTS)
    (exact,) = curvature_at_center(model, loss, batches, directions=directions) or [math.nan]
    assert exact > 0.01
    for step in (1e-2, 1e-4):
        over = curvature_over_steps(model, loss, batches, directions=directions, steps=(step,))
        assert over == pytest.approx([exact], rel=1e-3)
    assert {tensor.dtype for tensor in (*model.parameters(), *loss.buffers())} == {torch.float32}


def test_what_cannot_be_had_in_float64_bends_by_none() -> None:
    own = (nn.Linear(4, 3), weighted, Batches(torch.randn(9, 4), torch.randint(3, (9,))))
    directions = along(torch.eye(15)[0])
    assert curvature_at_center(*own, directions=directions) is None
    assert curvature_over_steps(*own, directions=directions, steps=(1e-2,)) is None


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_a_network_that_keeps_what_it_computed_is_measured() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(weight_norm(nn.Linear(5, 4)), nn.Tanh(), nn.Linear(4, 3)).double()
    own = (model, nn.functional.cross_entropy, Batches(torch.randn(9, 5).double(), torch.arange(9) % 3))
    model(torch.randn(2, 5).double())
    op = Hessian(*own)
    d = torch.randn(len(op.loss.center), dtype=torch.float64)
    assert curvature_at_center(*own, directions=along(d)) == pytest.approx(
        [float(d @ op.matvec(d))], rel=1e-4
    )


def test_along_nothing_it_is_zero(case: Case) -> None:
    zero = torch.zeros_like(case.operator.loss.center)
    own = (case.model, case.loss_fn, case.batches)
    assert curvature_at_center(*own, directions=along(zero)) == [0.0]
