import io
import math

import pytest
from matplotlib.figure import Figure

from fedscope.errors import UserError
from fedscope.figures import style
from fedscope.figures.spectrum.densities import density_figure
from fedscope.records.hessian_record import DensityEntry
from tests.figures.cases import spectrum


def _spectrum(**shape: float) -> DensityEntry:
    return DensityEntry.read(spectrum(**shape))


def _draw(figure: Figure) -> None:
    with style.paper_style():
        figure.savefig(io.BytesIO(), format="png", dpi=60)


def _labels(figure: Figure) -> list[str]:
    return list(figure.axes[0].get_legend_handles_labels()[1])


def test_curves_share_the_axes_and_differ_in_colour_and_line() -> None:
    figure = density_figure([_spectrum(top=top) for top in (50, 20, 10, 5)], list("abcd"))
    _draw(figure)
    (axes,) = figure.axes
    assert axes.get_yscale() == "log"
    assert axes.get_xscale() == "symlog"
    assert _labels(figure) == list("abcd")
    assert len({line.get_color() for line in axes.lines}) == 4
    assert len({str(line._dash_pattern) for line in axes.lines}) == 4  # type: ignore[attr-defined]


def test_a_single_outlying_eigenvalue_stays_on_the_page() -> None:
    outlier = 1e-8
    figure = density_figure([_spectrum(outlier=outlier)], ["a"])
    peak = outlier / (0.5 * math.sqrt(2 * math.pi))
    low, high = figure.axes[0].get_ylim()
    assert peak / 10 < low < peak
    assert high > 1 / (0.5 * math.sqrt(2 * math.pi))


def test_the_linear_stretch_covers_the_broadening() -> None:
    figure = density_figure([_spectrum(sigma=0.5), _spectrum(sigma=0.02)], ["a", "b"])
    assert figure.axes[0].xaxis.get_transform().linthresh == 1.0  # type: ignore[attr-defined]
    linear = density_figure([_spectrum()], ["a"], x_scale="linear")
    assert linear.axes[0].get_xscale() == "linear"


def test_largest_eigenvalues_are_marked_and_named() -> None:
    figure = density_figure([_spectrum(), _spectrum(top=20)], ["a", "b"], lambda_max=[50.0, math.nan])
    assert _labels(figure) == [r"a, $\lambda_{\max}$ = 50.0", r"b"]
    marked = [line for line in figure.axes[0].lines if line.get_marker() == "v"]
    assert [line.get_xdata() for line in marked] == [[50.0]]


def test_points_that_are_not_finite_are_counted() -> None:
    broken = spectrum()
    broken["density"][:7] = [None] * 7
    assert _labels(density_figure([DensityEntry.read(broken)], ["a"])) == ["a (7 of 801 points not finite)"]


def test_what_cannot_be_drawn_is_an_error() -> None:
    with pytest.raises(UserError, match="--density"):
        density_figure([], [])
    empty = spectrum() | {"density": [None] * 801}
    with pytest.raises(UserError, match="more probes"):
        density_figure([DensityEntry.read(empty)], ["a"])
    with pytest.raises(ValueError):
        density_figure([_spectrum()], ["a"], lambda_max=[1.0, 2.0])
