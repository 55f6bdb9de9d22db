import io
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from matplotlib.text import Text

from fedscope.errors import UserError
from fedscope.figures import style
from fedscope.figures.surface.profiles import profile_figure
from fedscope.landscape.surfaces.surface_results import Axis
from fedscope.records.landscape_record import BarrierEntry
from tests.figures.cases import bowl, profile


def _drawn(figure: Figure) -> Figure:
    with style.paper_style():
        figure.savefig(io.BytesIO(), format="png", dpi=60)
    return figure


def _texts(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.findobj(Text) if isinstance(text, Text)]


def test_loss_with_its_band_above_accuracy_in_percent() -> None:
    surface = profile()
    figure = _drawn(profile_figure([surface], ["x"]))
    loss, accuracy = figure.axes
    np.testing.assert_allclose(np.ravel(loss.lines[0].get_ydata()), surface.loss)
    np.testing.assert_allclose(np.ravel(accuracy.lines[0].get_ydata()), 100 * surface.metrics["accuracy"])
    assert accuracy.get_ylabel() == "accuracy (%)"
    assert loss.get_xlim() == accuracy.get_xlim() == (-0.25, 1.25)
    corners = loss.collections[0].get_paths()[0].vertices
    assert surface.stderr is not None
    top = float((surface.loss + 1.959964 * surface.stderr).max())
    assert np.asarray(corners)[:, 1].max() == pytest.approx(top)


def test_ends_are_named_and_the_barrier_rises_from_the_straight_line() -> None:
    surface = profile(height=2.0)
    figure = _drawn(profile_figure([surface], ["x"], barriers=[BarrierEntry(height=2.0, at=0.5)]))
    axes = figure.axes[0]
    assert {"a", "b", "barrier 2"} <= set(_texts(figure))
    straight = next(line for line in axes.lines if len(np.ravel(line.get_xdata())) == 50)
    x, y = np.ravel(straight.get_xdata()), np.ravel(straight.get_ydata())
    ends = np.interp([0, 1], surface.axes[0].values, surface.loss)
    assert (x[0], x[-1]) == (0, 1)
    assert (y[0], y[-1]) == pytest.approx(tuple(ends))
    arrow = next(text for text in axes.texts if getattr(text, "arrow_patch", None))
    foot, top = arrow.xyann[1], arrow.xy[1]  # type: ignore[attr-defined]
    assert foot == pytest.approx(ends.mean())
    assert top - foot == pytest.approx(2.0)


def test_several_lines_differ_and_the_legend_has_the_barriers() -> None:
    lines = [profile(height=2), profile(height=0.5), profile(height=-0.2)]
    barriers = [
        BarrierEntry(height=2.0, at=0.5),
        BarrierEntry(height=0.5, at=0.5),
        BarrierEntry(height=0.0, at=0.5),
    ]
    figure = _drawn(profile_figure(lines, ["p", "q", "r"], barriers=barriers))
    legend = figure.axes[0].get_legend()
    assert legend is not None
    assert [t.get_text() for t in legend.get_texts()] == ["p, barrier 2", "q, barrier 0.5", "r, no barrier"]
    curves = [line for line in figure.axes[0].lines if len(np.ravel(line.get_xdata())) == 41]
    assert len({str(line._dash_pattern) for line in curves}) == 3  # type: ignore[attr-defined]
    named = [t for t in figure.findobj(Text) if isinstance(t, Text) and t.get_text() in ("a", "b")]
    assert not any(t.get_window_extent().overlaps(legend.get_window_extent()) for t in named)


def test_lines_to_several_ends_share_what_their_axes_have_in_common() -> None:
    surface = profile()
    lines = [replace(surface, axes=(Axis(f"α (a → {end})", surface.axes[0].values),)) for end in "bc"]
    assert profile_figure(lines[:1], ["p"]).axes[-1].get_xlabel() == "α (a → b)"
    assert profile_figure(lines, ["p", "q"]).axes[-1].get_xlabel() == "α"


def test_long_names_of_the_ends_do_not_meet() -> None:
    names = ("fedavg-cifar100@client3 (round 30)", "fedavg+man-cifar100@client3 (round 30)")
    figure = _drawn(profile_figure([profile(ends=names)], ["x"], title="a title", caption="a caption"))
    first, second = (t for t in figure.texts if t.get_text() in names)
    assert not first.get_window_extent().overlaps(second.get_window_extent())
    for text in figure.texts:
        box = text.get_window_extent()
        assert box.x0 >= 0
        assert box.x1 <= figure.bbox.x1


def test_wide_ranges_are_logarithmic_and_losses_below_zero_are_not() -> None:
    assert profile_figure([profile(height=100)], ["x"]).axes[0].get_yscale() == "log"
    assert profile_figure([profile(height=1)], ["x"]).axes[0].get_yscale() == "linear"
    surface = profile(height=100)
    figure = profile_figure([replace(surface, loss=surface.loss - 3)], ["x"])
    assert figure.axes[0].get_yscale() == "linear"


def test_points_that_are_not_finite_are_hatched_and_counted() -> None:
    figure = _drawn(profile_figure([profile(bad=3)], ["x"]))
    hatched = [patch for patch in figure.axes[0].patches if patch.get_hatch()]
    assert len(hatched) == 3
    assert "3 of 41 points not finite (hatched)" in _texts(figure)


def test_what_cannot_be_drawn() -> None:
    with pytest.raises(UserError, match="plane"):
        profile_figure([bowl()], ["x"])
    with pytest.raises(UserError, match="--grid"):
        profile_figure([profile(points=1)], ["x"])
    nothing = replace(profile(), loss=torch.full((41,), math.nan))
    with pytest.raises(UserError, match="finite"):
        profile_figure([nothing], ["x"])
    with pytest.raises(UserError, match="loss, accuracy"):
        profile_figure([profile()], ["x"], metrics=["f1"])
    with pytest.raises(UserError, match="1 to 10"):
        profile_figure([], [])
    with pytest.raises(ValueError):
        profile_figure([profile()], ["x"], barriers=[None, None])
