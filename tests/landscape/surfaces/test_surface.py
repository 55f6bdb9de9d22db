import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss

from fedscope.errors import UserError
from fedscope.landscape import Batches, Directions, eigen_directions, surface, top_eigenpairs
from fedscope.landscape.surfaces.directions import grid_values
from fedscope.landscape.surfaces.point_metrics import accuracy
from tests.landscape.cases import Case, convnet, mlp


def _plane(n: int) -> tuple[Tensor, Tensor]:
    d0, d1 = torch.randn(2, n, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    return d0, d1


def test_every_point_is_the_loss_of_the_moved_model(case: Case) -> None:
    d0, d1 = _plane(len(case.weights))
    found = surface(
        case.model, case.loss_fn, case.batches, directions=(d0, d1), values=([-0.5, 0.0, 1.0], [0.0, 0.2])
    )
    assert found.loss.shape == (3, 2)
    for i, a in enumerate(found.axes[0].values.tolist()):
        for j, b in enumerate(found.axes[1].values.tolist()):
            moved = float(case.loss_at(case.weights + a * d0 + b * d1))
            assert float(found.loss[i, j]) == pytest.approx(moved, rel=1e-12)
    assert found.center_loss == float(found.loss[1, 0])
    assert found.non_finite == 0


def test_a_quadratic_has_its_closed_form_surface() -> None:
    model = nn.Linear(2, 1, bias=False).double()
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[1.0, 2.0]]))
    batches = Batches(torch.eye(2).double(), torch.zeros(2, 1).double(), 1)
    d0, d1 = torch.eye(2).double()
    found = surface(model, nn.functional.mse_loss, batches, directions=(d0, d1), span=2.0, grid=5)
    a, b = torch.linspace(-2, 2, 5).double()[:, None], torch.linspace(-2, 2, 5).double()
    torch.testing.assert_close(found.loss, ((1 + a) ** 2 + (2 + b) ** 2) / 2)
    assert found.center_loss == 2.5
    plain = surface(model, nn.functional.mse_loss, batches, directions=(d0, d1), grid=3)
    assert [axis.values.tolist() for axis in plain.axes] == [[-1, 0, 1]] * 2


@pytest.mark.parametrize("grid", [5, 25, 41, 59])
def test_the_middle_of_an_odd_grid_is_the_model_itself(grid: int) -> None:
    directions = Directions("random", _plane(3), ("a", "b"))
    for axis in grid_values(directions, grid=grid, span=0.7):
        assert float(axis[grid // 2]) == 0
        assert torch.equal(axis, -axis.flip(0))


def test_the_second_difference_along_an_eigenvector_is_its_eigenvalue(case: Case) -> None:
    pairs = top_eigenpairs(case.operator, k=2, tol=1e-9)
    h = 1e-3
    found = surface(
        case.model,
        case.loss_fn,
        case.batches,
        directions=eigen_directions(pairs),
        values=([-h, 0, h], [-h, 0, h]),
    )
    along_first = (found.loss[2, 1] - 2 * found.loss[1, 1] + found.loss[0, 1]) / h**2
    along_second = (found.loss[1, 2] - 2 * found.loss[1, 1] + found.loss[1, 0]) / h**2
    assert float(along_first) == pytest.approx(float(pairs.values[0]), rel=1e-4)
    assert float(along_second) == pytest.approx(float(pairs.values[1]), rel=1e-4)
    assert [axis.name for axis in found.axes] == ["eigenvector 1", "eigenvector 2"]
    assert found.directions == "eigen"


def test_non_finite_losses_are_kept_and_counted() -> None:
    model = nn.Linear(1, 1, bias=False).double()
    with torch.no_grad():
        model.weight.fill_(1.0)
    one, zero = torch.ones(1).double(), torch.zeros(1).double()
    found = surface(
        model,
        lambda output, _: output.log().mean(),
        Batches(torch.ones(2, 1), torch.ones(2)),
        directions=(one, zero),
        values=([-2.0, -1.0, 0.0], [0.0]),
    )
    assert bool(found.loss[0, 0].isnan())
    assert float(found.loss[1, 0]) == -float("inf")
    assert found.non_finite == 2
    assert found.center_loss == 0


def test_the_model_is_untouched_and_bn_modes_differ() -> None:
    case = convnet()
    before = {name: tensor.clone() for name, tensor in case.model.state_dict().items()}
    whole = Batches(case.inputs, case.targets, 26)
    centers = {
        surface(case.model, case.loss_fn, whole, directions=_plane(81), grid=1, bn=bn).center_loss
        for bn in ("eval", "recalibrate", "batch")
    }
    assert len(centers) == 3
    assert case.model.training
    assert all(torch.equal(before[name], tensor) for name, tensor in case.model.state_dict().items())


def test_names_and_progress() -> None:
    case, seen = mlp(), list[tuple[int, int | None]]()
    d0, d1 = _plane(51)
    found = surface(
        case.model,
        case.loss_fn,
        case.batches,
        directions=Directions("pca", (d0, d1), ("first", "second")),
        grid=2,
        names=("x", "y"),
        progress=lambda done, total: seen.append((done, total)),
    )
    assert ([axis.name for axis in found.axes], found.directions) == (["x", "y"], "pca")
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_directions_and_axes_that_do_not_fit_are_refused() -> None:
    case = mlp()
    with pytest.raises(UserError, match=r"\(51,\)"):
        surface(case.model, case.loss_fn, case.batches, directions=_plane(50))
    with pytest.raises(UserError, match="points"):
        surface(case.model, case.loss_fn, case.batches, directions=_plane(51), values=([], [1.0]))


def test_the_accuracy_of_places_is_their_share() -> None:
    logits = torch.tensor([[[1.0, 0.0, 0.0], [0.0, 2.0, 3.0]]])  # one sample, two classes, three places
    assert accuracy(logits, torch.tensor([[0, 1, 0]])).tolist() == [pytest.approx(2 / 3)]


def test_an_accuracy_that_is_none_is_refused_by_the_shapes() -> None:
    model, batches = nn.Linear(2, 3), Batches(torch.ones(4, 2), torch.ones(4, 3))
    line = (torch.ones(9, dtype=torch.float64),)
    with pytest.raises(UserError, match=r"\(4, 3\) and \(4, 3\)"):
        surface(model, mse_loss, batches, directions=line, grid=3, metrics=["accuracy"])
