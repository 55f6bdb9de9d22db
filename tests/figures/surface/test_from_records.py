from dataclasses import astuple, replace
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from matplotlib.text import Text

from fedscope.errors import UserError
from fedscope.figures.surface.drawn_planes import array
from fedscope.figures.surface.landscape_figures import draw
from fedscope.records.landscape_record import LandscapeRecord
from fedscope.records.saved_records import landscapes
from tests.figures.cases import bowl, drift, landscape_record, profile, recorded, trajectory


def _texts(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.findobj(Text) if isinstance(text, Text)]


def with_errors() -> Any:
    """A surface whose accuracy has an error everywhere and a value at the centre."""
    plain = bowl()
    accuracy = torch.full_like(plain.loss, 0.5)
    known = {"accuracy": accuracy}, {"accuracy": accuracy / 10}, {"accuracy": 0.36}
    return replace(plain, metrics=known[0], metrics_stderr=known[1], center_metrics=known[2])


@pytest.mark.parametrize("surface", [bowl(), drift(3), trajectory(4), profile(points=9), with_errors()])
def test_a_surface_survives_its_record(surface: Any) -> None:
    grid = surface.loss.shape
    whole = replace(surface, computed=torch.ones(grid, dtype=torch.bool), interpolation_error=0.01)
    found = recorded(whole)
    assert (found.directions, found.path, found.interpolation_error) == (
        surface.directions, surface.path, 0.01,
    )  # fmt: skip
    assert [(mark.label, mark.at, mark.distance) for mark in found.marks] == list(map(astuple, surface.marks))
    assert [axis.name for axis in found.axes] == [axis.name for axis in surface.axes]
    np.testing.assert_array_equal(array(found.loss), array(surface.loss))
    assert set(found.metrics) == set(surface.metrics)
    assert found.center_metrics == surface.center_metrics
    assert set(found.metrics_stderr) == set(surface.metrics_stderr)
    assert found.computed is not None
    assert array(found.computed).all()


def test_null_is_not_finite() -> None:
    found = recorded(bowl(bad=5))
    assert int(np.isnan(array(found.loss)).sum()) == 5


def test_a_record_from_before_marks_is_drawn() -> None:
    old = landscape_record(bowl())
    for key in ("stderr", "metrics", "marks", "path", "computed", "interpolation_error"):
        del old[key]
    texts = _texts(draw([LandscapeRecord.read(old)]))
    line = "round 5, λ$_{1}$ 10.0, λ$_{2}$ 10.0 (512\N{NO-BREAK SPACE}samples)"
    assert {"a", "centre loss 0.2", line} <= set(texts)


def test_interpolated_points_and_errors_are_said() -> None:
    computed = torch.ones(11, 11, dtype=torch.bool)
    computed[::2] = False
    surface = replace(
        bowl(), computed=computed, interpolation_error=0.013, stderr=torch.full((11, 11), 0.05).double()
    )
    texts = _texts(draw([recorded(surface)]))
    assert "55 of 121 points computed, others ≤ 1.3 % off where checked" in texts
    assert "centre loss 0.200 ± 0.050" in texts


def test_gauss_newton_eigenvalues_are_named_as_such() -> None:
    record = recorded(replace(bowl(), directions="ggn"), curvature=[123.4, 0.5])
    texts = " ".join(_texts(draw([record])))
    assert r"Gauss–Newton λ$_{1}$ 123, λ$_{2}$ 0.500" in texts


def test_a_line_becomes_a_profile_with_its_barrier() -> None:
    record = recorded(profile(), barrier={"height": 1.0, "at": 0.5})
    texts = _texts(draw([record]))
    assert {"a → b", "barrier 1", "512 samples; band: 95 % intervals over samples"} <= set(texts)
    with pytest.raises(UserError, match="apart"):
        draw([record, recorded(bowl())])


def test_what_is_no_landscape_is_refused() -> None:
    good = landscape_record(bowl())
    for broken, message in [
        ({"schema": "fedscope/hessian/1"}, "schema"),
        ({**good, "loss": [[1.0, 2.0]]}, "loss is no grid of 11 × 11"),
        ({**good, "loss": [[1.0, 2.0], [3.0]]}, "not whole"),
        ({**good, "marks": [{"label": "x"}]}, "not whole"),
        ({**good, "axes": good["axes"] * 2}, "not whole"),
    ]:
        with pytest.raises(UserError, match=message):
            landscapes([broken])
    with pytest.raises(UserError, match="no landscape"):
        draw([])
    with pytest.raises(UserError, match="it has loss"):
        draw([recorded(bowl())], metric="accuracy")
