"""Landscapes of several networks along one network's directions: found once, kept until all are done."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from fedscope.landscape import Hessian
from fedscope.workflows.landscape import landscape_command, scan
from fedscope.workflows.landscape.landscape_command import kept_scans, scan_rounds
from fedscope.workflows.landscape.landscape_request import Plane
from fedscope.workflows.sources.problem import Problem
from fedscope.workflows.sources.samples import Source
from fedscope.workflows.study import Session
from tests.landscape.cases import mlp

PLANE = Plane(grid=3)


def kept(folder: Path, *, again: bool = False) -> Session:
    return Session(keep=folder, again=again)


def rounds(count: int = 3, loss: Callable[[Tensor, Tensor], Tensor] = cross_entropy) -> list[Problem]:
    found = []
    for i in range(count):
        case = mlp()
        with torch.no_grad():
            next(case.model.parameters()).mul_(1 + 0.1 * i)
        source = Source(dtype=torch.float64)
        found.append(Problem(case.model, loss, case.batches, source, Path(f"{i}.pt"), f"{i:064x}", None))
    return found


@pytest.fixture
def products(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One entry per product that is computed."""
    made, apply = list[int](), Hessian._apply

    def counted(self: Hessian, rows: Tensor, onto: Tensor | None) -> object:
        made.append(len(rows))
        return apply(self, rows, onto)

    monkeypatch.setattr(Hessian, "_apply", counted)
    return made


def test_rounds_share_the_last_ones_directions_and_leave_points_only(tmp_path: Path) -> None:
    frames = scan_rounds(rounds(), PLANE, kept(tmp_path))
    last = frames[-1].checkpoint
    assert [frame.directions_of == last for frame in frames] == [True] * 3
    assert [frame.curvature == () for frame in frames] == [True, True, False]
    assert last.sha256 == f"{2:064x}"
    assert len(list((tmp_path / "points").iterdir())) == 3
    assert not list((tmp_path / "products").iterdir())


def test_directions_are_found_once_and_again_after_an_interruption(
    tmp_path: Path, products: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    *before, center = rounds()
    kept_scans(center, [center], PLANE, kept(tmp_path / "alone"))
    once = len(products)
    scans = list[str]()

    def interrupted(problem: Problem, *args: object, **options: object) -> object:
        scans.append(problem.sha256)
        if len(scans) == 2:
            raise KeyboardInterrupt
        return scan.scan(problem, *args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(landscape_command, "scan", interrupted)
    with pytest.raises(KeyboardInterrupt):
        kept_scans(center, [center, *before], PLANE, kept(tmp_path / "all"))
    assert len(products) == 2 * once
    records = kept_scans(center, [center, *before], PLANE, kept(tmp_path / "all"))
    assert len(products) == 2 * once
    assert len(scans) == 4  # the first is a result already
    assert not list((tmp_path / "all" / "products").iterdir())
    assert [record.curvature == () for record in records] == [False, True, True]
    again = kept_scans(center, [center, *before], PLANE, kept(tmp_path / "all"))
    assert [record.to_json() for record in again] == [record.to_json() for record in records]
    assert len(scans) == 4


def test_a_loss_that_differs_far_away_only_is_another(tmp_path: Path) -> None:
    def cut(height: float) -> Callable[[Tensor, Tensor], Tensor]:
        def loss(output: Tensor, targets: Tensor) -> Tensor:
            return cross_entropy(output, targets, reduction="none").clamp(min=height).mean()

        return loss

    plane, found = Plane("random", grid=3), []
    for height in (0.0, 0.8):  # at the network no sample's loss is below 0.809
        (problem,) = rounds(1, cut(height))
        found += kept_scans(problem, [problem], plane, kept(tmp_path))
    first, second = found
    assert first.center_loss == second.center_loss
    assert first.loss != second.loss


def test_a_landscapes_eigenvectors_are_a_reports_and_the_other_way_round(
    tmp_path: Path, products: list[int]
) -> None:
    (problem,) = rounds(1)
    drawn = scan.scan(problem, Plane(grid=5), kept(tmp_path))
    once = len(products)
    (reported,) = kept_scans(problem, [problem], PLANE, kept(tmp_path))
    assert len(products) == once
    assert reported.curvature == drawn.curvature
    assert (reported.center_loss, reported.loss[1][1]) == (drawn.center_loss, drawn.loss[2][2])
    assert reported.loss[0] == drawn.loss[0][::2]
    scan.scan(problem, Plane(grid=7), kept(tmp_path))
    assert len(products) == once
    scan.scan(problem, Plane(grid=5), kept(tmp_path, again=True))
    assert len(products) == 2 * once
    (kept_file,) = (tmp_path / "vectors").glob("*/*.npz")
    kept_file.write_bytes(kept_file.read_bytes()[:-40])  # cut short
    scan.scan(problem, Plane(grid=5), kept(tmp_path))
    assert len(products) == 3 * once
    scan.scan(problem, Plane("ggn", grid=5), kept(tmp_path))  # of another operator
    assert len(list((tmp_path / "vectors").glob("*/*.npz"))) == 2
