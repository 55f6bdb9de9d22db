"""Points that are known are evaluated by nobody."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from fedscope.landscape.surfaces.point_cache import PointFile, SharedPoints


class Counted(SimpleNamespace):
    """Stands for a network: the row of a point is its coordinate, with no error."""

    def __call__(self, point: tuple[float, ...]) -> tuple[float, float]:
        self.calls.append(point)
        return point[0], 0.0


def counted(seen: dict[tuple[float, ...], tuple[float, float]]) -> Any:
    return Counted(calls=[], names=("loss",), seen=seen, device=torch.device("cpu"))


def test_the_centre_that_was_evaluated_first_is_taken_and_kept(tmp_path: Path) -> None:
    store = PointFile(tmp_path / "rows")
    points = counted({(0.0,): (7.0, 0.5)})
    assert SharedPoints(points, store)([(0.0,), (1.0,), (0.0,)]) == [(7.0, 0.5), (1.0, 0.0), (7.0, 0.5)]
    assert points.calls == [(1.0,)]
    later = counted({})
    reported: list[int] = []
    assert SharedPoints(later, store)([(0.0,), (1.0,)], reported.append) == [(7.0, 0.5), (1.0, 0.0)]
    assert (later.calls, reported) == ([], [2])
