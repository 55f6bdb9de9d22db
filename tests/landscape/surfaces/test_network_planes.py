"""Slices through points: against known planes, and dense singular value decompositions."""

import math
from collections.abc import Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fedscope.errors import UserError
from fedscope.landscape.surfaces import network_planes
from fedscope.landscape.surfaces.directions import Directions
from fedscope.landscape.surfaces.network_planes import Networks, best_plane, line_between, plane_through
from tests import tiers

S = 3  # coordinates that are no parameters


def cloud(points: Tensor | Sequence[Tensor], n: int | None = None) -> Networks:
    rows = list(points)
    return Networks(rows, [f"w{i}" for i in range(len(rows))], n if n is not None else len(rows[0]))


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def places(found: Directions) -> Tensor:
    return torch.tensor([mark.at for mark in found.marks], dtype=torch.float64)


def distances(found: Directions) -> Tensor:
    return torch.tensor([mark.distance for mark in found.marks], dtype=torch.float64)


def rebuilt(found: Directions) -> Tensor:
    """The points of the slice at the marks' coordinates, in all coordinates."""
    assert found.origin is not None
    return found.origin + places(found) @ torch.stack(found.vectors)


def test_points_of_a_plane_are_recovered_with_what_each_axis_explains() -> None:
    basis = torch.linalg.qr(draw(40, 2)).Q.T
    at = torch.tensor([[8.0, -1.0], [5.0, 3.0], [2.0, 1.0], [0.0, 0.0]], dtype=torch.float64)
    # What is no parameter is linear in the parameters, as statistics between the points are.
    rows = torch.cat([basis, draw(2, S, seed=1)], dim=1)
    points = 10 + at @ rows
    found = best_plane(cloud(points, 40), path=True)
    assert float(distances(found).max()) < 1e-12
    torch.testing.assert_close(rebuilt(found), points, rtol=0, atol=1e-12)
    singular = torch.linalg.svdvals(at)
    shares = [f"{100 * share:.3g} %" for share in (singular**2 / (singular**2).sum()).tolist()]
    assert [axis.split("(")[1][:-1] for axis in found.axes] == shares
    assert (found.path, found.name, found.marks[-1].at) == (True, "pca", (0.0, 0.0))
    assert places(found)[0, 0] > 0  # the far end is on the right, whatever sign the eigenvector had


@settings(max_examples=tiers.examples(30), deadline=None)
@given(st.integers(3, 8), st.integers(4, 20), st.integers(0, 10**6))
def test_the_best_plane_is_the_dense_decomposition(count: int, n: int, seed: int) -> None:
    points = draw(count, n + S, seed=seed) * torch.logspace(0, -2, n + S, dtype=torch.float64)
    origin = seed % count
    found = best_plane(cloud(points, n), origin)
    differences = (points - points[origin])[:, :n]
    singular = torch.linalg.svdvals(differences)
    axes = torch.stack(found.vectors)[:, :n]
    torch.testing.assert_close(axes @ axes.T, torch.eye(2).double(), rtol=0, atol=1e-12)
    left = differences - differences @ axes.T @ axes
    assert float(left.square().sum()) == pytest.approx(float((singular[2:] ** 2).sum()), rel=1e-9, abs=1e-12)
    torch.testing.assert_close(distances(found), left.norm(dim=1))
    torch.testing.assert_close(places(found), differences @ axes.T)
    torch.testing.assert_close(places(found).norm(dim=0), singular[:2], rtol=1e-9, atol=0)


def test_what_is_no_parameter_does_not_enter_the_geometry() -> None:
    points = draw(5, 12)
    loud = points.clone()
    loud[:, 9:] *= 1e6
    plain, other = best_plane(cloud(points, 9)), best_plane(cloud(loud, 9))
    assert (plain.marks, plain.axes, plain.limits) == (other.marks, other.axes, other.limits)
    for mine, theirs in zip(plain.vectors, other.vectors, strict=True):
        assert torch.equal(mine[:9], theirs[:9])
        torch.testing.assert_close(1e6 * mine[9:], theirs[9:])


def test_the_plane_through_three_is_an_undistorted_picture_of_them() -> None:
    points = draw(3, 30 + S)
    found = plane_through(cloud(points, 30))
    assert float(distances(found).max()) < 1e-12
    torch.testing.assert_close(rebuilt(found), points, rtol=0, atol=1e-12)
    torch.testing.assert_close(
        torch.cdist(places(found), places(found)), torch.cdist(points[:, :30], points[:, :30])
    )
    assert found.marks[0].at == (0, 0)
    assert found.marks[1].at[1] == pytest.approx(0, abs=1e-12)
    assert found.marks[2].at[1] > 0
    assert found.limits is not None
    widths = [high - low for low, high in found.limits]
    assert widths[0] == pytest.approx(widths[1])


def test_the_line_between_two_runs_from_0_to_1() -> None:
    points = draw(2, 7 + S)
    found = line_between(cloud(points, 7))
    assert [mark.at for mark in found.marks] == [(0.0,), (1.0,)]
    assert float(distances(found).max()) < 1e-14
    torch.testing.assert_close(rebuilt(found), points)
    assert found.limits == ((-1 / 8, 9 / 8),)
    length = float((points[1] - points[0])[:7].norm())
    assert found.axes == (f"α (w0 → w1, distance {length:.3g})",)


def test_clients_around_their_mean() -> None:
    drifts = draw(6, 20)
    drifts -= drifts.mean(0)
    center = draw(20, seed=3)
    found = best_plane(cloud([center, *(center + drifts)]), origin=0, name="clients")
    assert (found.name, found.path, found.marks[0].at, found.marks[0].distance) == (
        "clients",
        False,
        (0, 0),
        0,
    )
    torch.testing.assert_close(places(found).sum(0), torch.zeros(2).double(), rtol=0, atol=1e-12)
    # Eckart and Young: no plane through the mean leaves less.
    singular = torch.linalg.svdvals(drifts)
    assert float(distances(found).square().sum()) == pytest.approx(float((singular[2:] ** 2).sum()))
    share = 100 * float(singular[0] ** 2 / (singular**2).sum())
    assert found.axes[0] == f"axis 1 ({share:.3g} %)"


def test_a_few_points_at_a_time_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    points = draw(7, 11)
    whole = best_plane(cloud(points))
    for size in (1, 3):
        monkeypatch.setattr(network_planes, "BLOCK", 8 * 11 * size)
        torch.testing.assert_close(
            cloud(points).gram(points[2]), (points - points[2]) @ (points - points[2]).T
        )
        torch.testing.assert_close(torch.stack(best_plane(cloud(points)).vectors), torch.stack(whole.vectors))


def test_a_small_second_axis_is_at_right_angles_all_the_same() -> None:
    basis = torch.linalg.qr(draw(50, 2)).Q.T
    at = torch.tensor([[1.0, 1e-5], [0.5, -2e-5], [0.2, 3e-5], [0.0, 0.0]], dtype=torch.float64)
    found = best_plane(cloud(at @ basis))
    assert abs(float(found.vectors[0] @ found.vectors[1])) < 1e-14
    assert float(distances(found).max()) < 1e-14


ONE = draw(9)


@pytest.mark.parametrize(
    ("make", "points", "message"),
    [
        (best_plane, [ONE], "a plane needs three networks or more, and here are 1"),
        (best_plane, [ONE, 2 * ONE], "here are 2"),
        (best_plane, [ONE, ONE, ONE], "w0, w1, w2 have the same weights"),
        (best_plane, [ONE, 2 * ONE, 3 * ONE, 5 * ONE], "w0, w1, w2, … lie on one line"),
        (plane_through, [ONE, 2 * ONE], "takes three, not 2"),
        (plane_through, [ONE, ONE, 2 * ONE], "w0, w1 have the same weights"),
        (plane_through, [ONE, 2 * ONE, 4 * ONE], "lie on one line"),
        (plane_through, [ONE, 2 * ONE, ONE], "lie on one line"),
        (line_between, [ONE, ONE], "w0, w1 have the same weights"),
        (line_between, [ONE, 2 * ONE, 3 * ONE], "takes two, not 3"),
        (line_between, [math.nan * ONE, ONE], "w0 has weights or statistics that are not finite"),
        (best_plane, [ONE, draw(9, seed=5), math.inf * ONE], "w2 has weights"),
        (plane_through, [ONE, draw(9, seed=5), math.nan * ONE], "w2 has weights"),
    ],
)
def test_what_spans_no_slice_is_refused(make: object, points: list[Tensor], message: str) -> None:
    assert callable(make)
    with pytest.raises(UserError, match=message) as refused:
        make(cloud(points))
    assert "\n" not in str(refused.value)


def test_float32_roundings_do_not_make_a_plane() -> None:
    start, step = draw(2000), draw(2000, seed=1)
    points = [(start + k * 1e-2 * step).float().double() for k in (0, 1, 2)]
    with pytest.raises(UserError, match="one line"):
        plane_through(cloud(points))
    nearly = [*points[:2], (start + 0.02 * step + 0.01 * draw(2000, seed=2)).float().double()]
    assert len(plane_through(cloud(nearly)).vectors) == 2
