"""Clients along rounds: the numbers of the records in curves, in the table and in the frames of a film."""

from pathlib import Path

import numpy as np
import pytest
from matplotlib.collections import PolyCollection
from PIL import Image

from fedscope.errors import UserError
from fedscope.figures.animation import save_film
from fedscope.figures.clients.round_figures import frame_figures, rounds_figure
from fedscope.figures.digits import format_entry
from fedscope.figures.embedded_record import made_from, read_record
from fedscope.figures.text.client_tables import rounds_tables
from fedscope.records.clients_record import ClientsRecord
from fedscope.records.run_curves import RunCurves
from fedscope.statistics.standard_errors import interval
from tests.figures.runs.test_drawings import record as curves

from .records import record


def rounds(*numbers: int, run: str = "a", clients: int = 3) -> list[ClientsRecord]:
    found = []
    for number in numbers:
        one = record(clients, seed=number, run=run)
        found.append(one.edited(checkpoint={**one.checkpoint.to_json(), "round": number}))
    return found


def accuracy(run: str = "a") -> RunCurves:
    return RunCurves.read(curves(rounds=5, run=run))


def test_a_line_has_the_means_of_the_rounds_and_a_band_of_95_percent() -> None:
    found = rounds(1, 3, 5)
    above, loss, *_ = rounds_figure(found[::-1], [accuracy()], "gap").axes
    assert np.asarray(above.lines[0].get_ydata()) == pytest.approx(
        100 * np.array(accuracy().metrics.accuracy)
    )
    gaps = [one.of("loss").gap("discrepancy").mean for one in found]  # type: ignore[union-attr]
    line, band = loss.lines[0], loss.collections[0]
    np.testing.assert_array_equal(line.get_xdata(), [1, 3, 5])
    assert np.asarray(line.get_ydata()) == pytest.approx([one.value for one in gaps])
    assert isinstance(band, PolyCollection)
    ends = {round(float(y), 9) for y in np.asarray(band.get_paths()[0].vertices)[:, 1]}
    wanted = [one.interval or interval(one.value, one.stderr, one.dof) for one in gaps]
    assert {round(float(y), 9) for pair in wanted for y in pair} <= ends
    assert [axes.get_ylabel() for axes in rounds_figure(found, [], "drift").axes] == [
        "cost of F", "cost of own $f_k$"
    ]  # fmt: skip


def test_several_runs_have_a_panel_for_each_number() -> None:
    both = rounds(1, 2) + rounds(1, 2, run="b")
    figure = rounds_figure(both, [accuracy(), accuracy("b")], "alignment")
    assert len(figure.axes) == 5
    assert [len(axes.lines) for axes in figure.axes] == [2] * 5
    (first, second) = rounds_tables(both)
    assert (first.title, second.title) == ("a: clients by round", "b: clients by round")
    cost = both[0].averaging
    assert cost
    row = dict(zip(first.columns, first.rows[0], strict=True))
    assert row["cost of F: measured"] == format_entry(cost.overall.mean.measured)


def test_a_round_without_a_number_leaves_a_gap() -> None:
    first, second, third = rounds(1, 2, 3)
    lacking = second.edited(alignment=None)
    axes = rounds_figure([first, lacking, third], [], "alignment").axes[0]
    assert np.isnan(np.asarray(axes.lines[0].get_ydata())).tolist() == [False, True, False]


def test_what_is_no_curve_is_refused() -> None:
    with pytest.raises(UserError, match="two rounds or more of each run"):
        rounds_figure(rounds(1, 2) + rounds(1, run="b"), [])
    with pytest.raises(UserError, match="--only diagonals"):
        rounds_figure(rounds(1, 2), [], "diagonals")


def test_frames_share_their_axes_and_are_one_film(tmp_path: Path) -> None:
    found = rounds(2, 1, 3)
    frames = frame_figures(found, "gap")
    for same in zip(*(frame.axes for frame in frames), strict=True):
        assert len({axes.get_ylim() for axes in same}) == 1
        low, high = same[0].get_ylim()
        values = np.concatenate([np.asarray(line.get_ydata()) for axes in same for line in axes.lines])
        assert low <= values.min() <= values.max() <= high
    save_film(frames, tmp_path / "a.gif", record=made_from(found), seconds=0.1)
    with Image.open(tmp_path / "a.gif") as film:
        assert film.n_frames == 3  # type: ignore[attr-defined]
    assert len(read_record(tmp_path / "a.gif")["analyses"]) == 3


def test_matrices_of_a_film_have_one_order_and_one_scale() -> None:
    first, last = rounds(1, 2, clients=5)
    frames = frame_figures([first, last], "matrix")
    for place in range(2):
        names = [[text.get_text() for text in one.axes[place].get_xticklabels()] for one in frames]
        assert names[0] == names[1]
    colors = [one.axes[0].collections[0].norm for one in frames]
    assert (colors[0].vmin, colors[0].vmax) == (colors[1].vmin, colors[1].vmax)
    highest = max(np.nanmax(np.array(one.overlap.matrix, dtype=float)) for one in (first, last))  # type: ignore[union-attr]
    assert colors[0].vmax == pytest.approx(highest)


def test_rounds_of_unlike_clients_are_no_film() -> None:
    with pytest.raises(UserError, match="the rounds have 3 and 4 clients"):
        frame_figures(rounds(1) + rounds(2, clients=4))
    with pytest.raises(UserError, match="of one run"):
        frame_figures(rounds(1) + rounds(1, run="b"))


def test_a_band_is_the_interval_of_the_record_even_without_the_value() -> None:
    found = []
    for one in rounds(1, 3):
        plain = one.to_json()
        for quantity in plain["flatness"]:
            for gap in quantity["gaps"]:
                gap["mean"] |= {
                    "bias": 30.0,
                    "interval": [gap["mean"]["value"] - 50, gap["mean"]["value"] - 10],
                }
        found.append(ClientsRecord.read(plain))
    _, lambda_max, *_ = rounds_figure(found, [], "gap").axes
    band = lambda_max.collections[0]
    assert isinstance(band, PolyCollection)
    ends = {round(float(y), 6) for y in np.asarray(band.get_paths()[0].vertices)[:, 1]}
    gaps = [one.of("lambda_max").gap("discrepancy").mean for one in found]  # type: ignore[union-attr]
    assert {round(one.value - d, 6) for one in gaps for d in (50, 10)} <= ends
