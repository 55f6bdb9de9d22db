import io
import math
from collections.abc import Callable

import numpy as np
import pytest
from matplotlib.figure import Figure
from scipy.stats import norm

from fedscope.errors import UserError
from fedscope.figures import style
from fedscope.figures.runs import drawings
from fedscope.figures.spectrum import hessian_figures
from fedscope.figures.spectrum.hessian_figures import CheckpointBar, bar_figure, checkpoint_bars, client_bars
from fedscope.figures.surface import landscape_figures
from fedscope.records.cross_client_entry import CrossClientEntry
from fedscope.records.hessian_record import HessianRecord
from fedscope.records.landscape_record import LandscapeRecord
from fedscope.records.run_curves import run_curves
from tests.figures.cases import crossing
from tests.figures.records import curvature, landscape
from tests.figures.runs.test_drawings import record

NORMAL = float(norm.ppf(0.975))  # half a 95 % interval, in standard errors


def _drawn(figure: Figure) -> Figure:
    with style.paper_style():
        figure.savefig(io.BytesIO(), format="png", dpi=100)
    return figure


def test_clients_have_their_numbers_traces_and_errors() -> None:
    entry = crossing(4)
    bars = client_bars(CrossClientEntry.read(entry))
    assert [bar.name for bar in bars] == ["0", "2", "4", "6"]
    assert list(bars[1].values["trace"]) == pytest.approx([entry["traces"][1]["value"], 5.0 * NORMAL])
    entry["lambda_max"] = [{"value": 3.0, "residual": 0.0, "stderr_data": 0.5}] * 4
    assert list(client_bars(CrossClientEntry.read(entry))[0].values["λ_max"]) == pytest.approx(
        [3.0, 0.5 * NORMAL]
    )
    figure = _drawn(bar_figure(client_bars(CrossClientEntry.read(entry)), axis="client"))
    assert [axes.get_ylabel() for axes in figure.axes] == [r"$\lambda_{\max}$", "trace"]
    heights = [patch.get_height() for patch in figure.axes[1].patches]  # type: ignore[attr-defined]
    np.testing.assert_allclose(heights, [found["value"] for found in entry["traces"]])
    with pytest.raises(UserError, match="--recompute"):
        client_bars(CrossClientEntry.read({**entry, "traces": None}))


def test_the_error_of_a_trace_holds_probes_and_data() -> None:
    record = curvature(
        lambda_max={"value": 2.0, "residual": 0.0, "stderr_data": None},
        trace={"value": 7.0, "stderr_probe": 3.0, "stderr_data": 4.0},
    )
    (bar,) = checkpoint_bars([HessianRecord.read(record)], ["x"])
    assert list(bar.values["trace"]) == pytest.approx([7.0, 5.0 * NORMAL])
    assert bar.values["λ_max"][0] == 2.0
    assert math.isnan(bar.values["λ_max"][1])


def test_long_names_slant_and_stay_on_the_page() -> None:
    names = ["fedavg-cifar100@30", "fedavg+man-cifar100@30", "scaffold-cifar100@30"]
    figure = _drawn(bar_figure([CheckpointBar(name, {"trace": (1.0, 0.1)}) for name in names], title="t"))
    boxes = [label.get_window_extent() for label in figure.axes[0].get_xticklabels()]
    assert all(box.y0 >= 0 for box in boxes)
    assert figure.axes[0].get_xticklabels()[0].get_rotation() == pytest.approx(30)
    many = _drawn(
        bar_figure([CheckpointBar(str(i), {"trace": (1.0, 0.1)}) for i in range(100)], axis="client")
    )
    assert len(many.axes[0].get_xticks()) <= 20


def test_what_is_not_finite_is_said() -> None:
    values = {"trace": (math.nan, math.nan)}
    figure = _drawn(bar_figure([CheckpointBar("a", {"trace": (1.0, 0.1)}), CheckpointBar("b", values)]))
    assert [text.get_text() for text in figure.axes[0].texts] == [" not finite"]
    with pytest.raises(UserError, match="finite"):
        bar_figure([CheckpointBar("b", values)])
    with pytest.raises(UserError, match="1 to 100"):
        bar_figure([])


def test_a_bar_without_an_error_says_so() -> None:
    nan = float("nan")
    figure = bar_figure(
        [CheckpointBar("a", {"trace": (3.0, 0.5)}), CheckpointBar("b", {"trace": (2.0, nan)})]
    )
    assert [text.get_text() for text in figure.axes[0].texts] == ["±?"]
    assert [text.get_text() for text in figure.texts] == [
        "± 95 % intervals; ±?: not known, from one batch or by this engine"
    ]
    whole = bar_figure([CheckpointBar("a", {"trace": (3.0, 0.5)})])
    assert [text.get_text() for text in whole.texts] == ["± 95 % intervals"]


@pytest.mark.parametrize(
    "drawn",
    [
        lambda: hessian_figures.draw([HessianRecord.read(curvature())], "nosuch"),  # type: ignore[arg-type]
        lambda: landscape_figures.draw([LandscapeRecord.read(landscape())], kind="heats"),  # type: ignore[arg-type]
        lambda: drawings.draw(run_curves([record()]), "nosuch"),  # type: ignore[arg-type]
    ],
)
def test_an_unknown_kind_is_told_the_known(drawn: Callable[[], Figure]) -> None:
    with pytest.raises(UserError, match=r"there is no kind '(nosuch|heats)' of these figures; choose .*, "):
        drawn()
