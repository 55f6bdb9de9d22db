import io
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

from fedscope.errors import UserError
from fedscope.figures import style
from fedscope.figures.spectrum.matrices import client_matrix_figure
from fedscope.records.cross_client_entry import CrossClientEntry
from tests.figures.cases import crossing


def _figure(entries: list[dict[str, Any]], labels: list[str]) -> Figure:
    return client_matrix_figure([CrossClientEntry.read(entry) for entry in entries], labels)


def _drawn(figure: Figure) -> Figure:
    with style.paper_style():
        figure.savefig(io.BytesIO(), format="png", dpi=100)
    return figure


def _mesh(axes: Axes) -> QuadMesh:
    return next(part for part in axes.collections if isinstance(part, QuadMesh))


def _matrices(figure: Figure) -> list[Axes]:
    return [axes for axes in figure.axes if axes.get_xlabel() == "client"]


def test_cells_are_the_pairs_and_self_pairs_are_left_out() -> None:
    entry = crossing(4)
    H_N, H_D = _matrices(_figure([entry], ["a"]))
    for axes, symbol in ((H_N, "H_N"), (H_D, "H_D")):
        cells: Any = np.ma.asarray(_mesh(axes).get_array())
        expected = np.array(entry["matrices"][symbol]["parameter"], dtype=float)
        off = ~np.eye(4, dtype=bool)
        np.testing.assert_allclose(cells.data[off], expected[off])
        assert np.ma.getmaskarray(cells).diagonal().all()
        assert len(axes.lines) == 4  # the crossed out self-pairs
    assert [text.get_text() for text in H_N.get_xticklabels()] == ["0", "2", "4", "6"]


def test_values_stand_in_the_cells_where_they_fit() -> None:
    figure = _drawn(_figure([crossing(6)], ["a"]))
    (axes, _) = _matrices(figure)
    assert len(axes.texts) == 30
    assert axes.texts[0].get_position() == (1, 0)
    cell = axes.get_window_extent().width / 6
    assert all(text.get_window_extent().width < cell for text in axes.texts)
    crowded = _matrices(_figure([crossing(40)], ["a"]))[0]
    assert len(crowded.texts) == 0
    assert len(crowded.get_xticks()) <= 14


def test_checkpoints_share_both_scales() -> None:
    entries = [crossing(5), crossing(5, seed=9)]
    axes = _matrices(_figure(entries, ["a", "b"]))
    assert len(axes) == 4
    for place in (0, 1):
        norms = [_mesh(one).norm for one in axes[place::2]]
        assert norms[0].vmin == norms[1].vmin
        assert norms[0].vmax == norms[1].vmax
    assert isinstance(_mesh(axes[0]).norm, LogNorm)
    assert _mesh(axes[1]).norm.vmax == 1


def test_pairs_below_the_noise_are_hatched() -> None:
    figure = _drawn(_figure([crossing(4, unresolved=True)], ["a"]))
    assert [len([p for p in axes.patches if p.get_hatch()]) for axes in _matrices(figure)] == [2, 2]
    entry = crossing(3)
    entry["H_N"]["parameter"] = {**entry["H_N"]["parameter"], "value": None}
    texts = [text.get_text() for text in _figure([entry], ["a"]).texts]
    assert "$H_N$ over distinct pairs: unresolved" in texts


def test_what_a_pair_cannot_be_is_hatched_and_neither_written_nor_part_of_the_scale() -> None:
    entry = {**crossing(4), "matrices_resolved": {}}
    for symbol, value in (("H_N", -16.0), ("H_D", -11.0)):
        own, said = entry["matrices"][symbol]["parameter"], [[True] * 4 for _ in range(4)]
        own[0][1] = own[1][0] = value
        said[0][1] = said[1][0] = False
        entry["matrices_resolved"][symbol] = {"parameter": said}
    figure = _drawn(_figure([entry], ["a"]))
    for axes in _matrices(figure):
        assert len([patch for patch in axes.patches if patch.get_hatch()]) == 2
        assert not [text for text in axes.texts if text.get_text().startswith("−1")]
        low = _mesh(axes).norm.vmin
        assert low is not None
        assert float(np.min(low)) >= -1
    assert "hatched: unresolved" in " ".join(text.get_text() for text in figure.texts)
    stated = {name: {"parameter": [[True] * 4] * 4} for name in ("H_N", "H_D")}
    stated["H_D"]["parameter"] = [[False] * 4] * 4
    _, H_D = _matrices(_figure([{**crossing(4), "matrices_resolved": stated}], ["a"]))
    assert len([patch for patch in H_D.patches if patch.get_hatch()]) == 12


def test_a_record_without_the_matrices_is_told() -> None:
    old = crossing(3)
    del old["matrices"]
    with pytest.raises(UserError, match="--recompute"):
        _figure([old], ["a"])
    with pytest.raises(UserError, match="1 to 6"):
        _figure([], [])


def test_clients_of_which_no_pair_is_resolved_are_not_drawn() -> None:
    entry = crossing(4)
    nothing = [[False] * 4 for _ in range(4)]
    entry["matrices_resolved"] = {
        symbol: {"tensor": nothing, "parameter": nothing} for symbol in ("H_N", "H_D")
    }
    with pytest.raises(UserError, match="nothing to draw: measure again with a larger --client-probes"):
        _figure([entry], ["a"])
