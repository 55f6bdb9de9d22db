import io

import numpy as np
import pytest
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.figure import Figure
from scipy.stats import t

from fedscope.errors import UserError
from fedscope.figures import style
from fedscope.figures.spectrum.densities import eigenvalue_figure
from fedscope.records.estimates import Eigenvalue
from tests.figures.cases import eigenvalues

NOT_FINITE = Eigenvalue.read({"value": None, "residual": None, "stderr_data": None})


def _drawn(figure: Figure) -> Figure:
    with style.paper_style():
        figure.savefig(io.BytesIO(), format="png", dpi=60)
    return figure


def test_few_eigenvalues_have_bars_many_a_band() -> None:
    few = _drawn(eigenvalue_figure([eigenvalues(5)], ["a"])).axes[0]
    (bars,) = few.collections
    assert isinstance(bars, LineCollection)
    ends = [np.asarray(segment)[:, 1] for segment in bars.get_segments()]
    np.testing.assert_allclose(ends[0], [45, 55], rtol=1e-5)
    np.testing.assert_allclose(np.ravel(few.lines[0].get_ydata()), [entry.value for entry in eigenvalues(5)])
    np.testing.assert_allclose(np.ravel(few.lines[0].get_xdata()), [1, 2, 3, 4, 5])
    (band,) = _drawn(eigenvalue_figure([eigenvalues(200)], ["a"])).axes[0].collections
    assert isinstance(band, PolyCollection)


def test_bars_are_students_interval_of_the_batches() -> None:
    entry = Eigenvalue(value=5.0, residual=0.0, stderr_data=0.5, batches=(4.0, 5.0, 6.0))
    (bars,) = eigenvalue_figure([[entry]], ["a"]).axes[0].collections
    assert isinstance(bars, LineCollection)
    (segment,) = bars.get_segments()
    reach = float(t.ppf(0.975, 2)) * 0.5
    np.testing.assert_allclose(np.asarray(segment)[:, 1], [5 - reach, 5 + reach])


def test_bars_of_several_spectra_stand_side_by_side() -> None:
    axes = eigenvalue_figure([eigenvalues(3)] * 3, ["a", "b", "c"]).axes[0]
    at = np.array([np.ravel(line.get_xdata()) for line in axes.lines])
    np.testing.assert_allclose(at.mean(axis=0), [1, 2, 3])
    assert len(np.unique(at.round(9))) == 9
    for line, bars in zip(axes.lines, axes.collections, strict=True):
        assert isinstance(bars, LineCollection)
        np.testing.assert_allclose(
            [segment[0][0] for segment in bars.get_segments()], np.ravel(line.get_xdata())
        )


def test_several_methods_share_a_logarithmic_axis() -> None:
    figure = eigenvalue_figure([eigenvalues(200), eigenvalues(50, top=20)], ["FedAvg", "$x"])
    (axes,) = figure.axes
    assert axes.get_yscale() == "log"
    assert len({line.get_color() for line in axes.lines}) == 2
    assert len({line.get_marker() for line in axes.lines}) == 2
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["FedAvg", r"\$x"]  # type: ignore[union-attr]
    close = eigenvalue_figure([eigenvalues(3, decay=0.1)], ["a"])
    assert close.axes[0].get_yscale() == "linear"


def test_the_smallest_are_counted_from_their_own_end_on_a_symmetric_axis() -> None:
    below = [
        Eigenvalue.read({"value": -value, "residual": 0.0, "stderr_data": None})
        for value in (3.0, 2.0, 0.001)
    ]
    figure = _drawn(eigenvalue_figure([eigenvalues(3)], ["a"], smallest=[below]))
    (axes,) = figure.axes
    assert axes.get_yscale() == "symlog"
    np.testing.assert_allclose(np.ravel(axes.lines[1].get_xdata()), [1, 2, 3])
    np.testing.assert_allclose(np.ravel(axes.lines[1].get_ydata()), [-3, -2, -0.001])
    assert axes.lines[0].get_color() == axes.lines[1].get_color()
    assert len(axes.get_legend_handles_labels()[1]) == 1


def test_values_that_are_not_finite_are_counted() -> None:
    broken = [*eigenvalues(2), NOT_FINITE]
    labels = eigenvalue_figure([broken], ["a"]).axes[0].get_legend_handles_labels()[1]
    assert labels == ["a (1 of 3 not finite)"]


def test_what_cannot_be_drawn() -> None:
    with pytest.raises(UserError, match="no eigenvalue is finite"):
        eigenvalue_figure([[NOT_FINITE]], ["a"])
    with pytest.raises(UserError, match="1 to 10"):
        eigenvalue_figure([], [])
    with pytest.raises(ValueError):
        eigenvalue_figure([eigenvalues(2)], ["a", "b"])
