"""Pictures of a round's clients: the numbers of the record, and no text over another."""

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from fedscope.errors import UserError
from fedscope.figures import style
from fedscope.figures.clients.round_figures import draw
from fedscope.figures.digits import format_entry
from fedscope.figures.figure_kinds import ClientsKind
from fedscope.figures.spectrum.matrices import order_of
from fedscope.figures.style import paper_style
from fedscope.figures.text.client_tables import CELL_NAMES, clients_tables
from fedscope.landscape.heterogeneity.one_round.flatness_gap import GAPS
from fedscope.records.client_quantities import GAP_NAMES

from .records import record

KINDS: tuple[ClientsKind, ...] = ("gap", "alignment", "drift", "matrix")
WIDTHS = (style.SINGLE_COLUMN, style.DOUBLE_COLUMN)


def _drawn(figure: Figure) -> list[tuple[str, Bbox]]:
    """Every text that is seen, with its box: ticks beyond the ends of an axis are not."""
    with paper_style():
        renderer = FigureCanvasAgg(figure).get_renderer()  # type: ignore[no-untyped-call]
        figure.draw(renderer)
        hidden = {
            id(tick.label1)
            for axes in figure.axes
            for axis in (axes.xaxis, axes.yaxis)
            for tick in axis.get_major_ticks()
            if not min(axis.get_view_interval()) <= tick.get_loc() <= max(axis.get_view_interval())
        }
        texts = [
            text
            for text in figure.findobj(Text)
            if text.get_text().strip() and text.get_visible() and id(text) not in hidden
        ]
        return [(text.get_text(), text.get_window_extent(renderer)) for text in texts]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("count", [2, 16])
@pytest.mark.parametrize("kind", KINDS)
def test_no_text_covers_another_or_leaves_the_page(kind: ClientsKind, count: int, width: float) -> None:
    figure = draw([record(count)], kind, width=width)
    assert figure.get_figwidth() == width
    page, boxes = figure.bbox, _drawn(figure)
    for i, (text, box) in enumerate(boxes):
        assert box.x0 >= page.x0 - 1, text
        assert box.x1 <= page.x1 + 1, text
        assert box.y0 >= page.y0 - 1, text
        for other, its in boxes[:i]:
            assert not box.shrunk(0.9, 0.7).overlaps(its.shrunk(0.9, 0.7)), (text, other)


def test_a_dumbbell_runs_from_the_clients_weights_to_the_global_ones() -> None:
    one = record(3)
    (axes, *_) = draw([one], "gap").axes
    table = one.of("loss")
    assert table is not None
    drawn = {tuple(np.round(np.asarray(line.get_ydata()), 9)) for line in axes.lines}
    for function in ("own", "global"):
        for point in ("own", "global"):
            cell = table.cell(function, point)
            assert cell is not None
            assert tuple(round(amount.value, 9) for amount in cell.clients) in drawn


def test_hollow_markers_are_at_the_global_weights() -> None:
    one = record(3)
    (axes, *_) = draw([one], "gap").axes
    table = one.of("loss")
    assert table is not None
    hollow = {
        tuple(np.round(np.asarray(line.get_ydata()), 9))
        for line in axes.lines
        if line.get_markerfacecolor() == "white"
    }
    cells = [table.cell(function, "global") for function in ("own", "global")]
    assert hollow == {tuple(round(amount.value, 9) for amount in cell.clients) for cell in cells if cell}


def test_the_cost_of_averaging_is_that_of_its_loss() -> None:
    one = record(3)
    assert one.averaging is not None
    panels = draw([one], "drift").axes
    for axes, drift in zip(panels, (one.averaging.overall, one.averaging.own), strict=True):
        heights = [bar.get_height() for bar in axes.patches if isinstance(bar, Rectangle)]
        terms = ("measured", "first", "second", "remainder")
        assert heights == pytest.approx([getattr(c, term).value for term in terms for c in drift.clients])
    assert [axes.get_ylabel() for axes in panels] == ["global loss F", "own loss $f_k$"]


def test_gaps_are_called_by_the_cells_that_they_are_of() -> None:
    assert {
        name: f"{CELL_NAMES[first]} − {CELL_NAMES[second]}" for name, (first, second) in GAPS.items()
    } == GAP_NAMES


def test_rows_of_tables_are_of_the_loss_that_they_name() -> None:
    one = record(3)
    assert one.averaging is not None
    assert one.alignment is not None
    tables = {table.title: table for table in clients_tables(one)}
    for row, drift in zip(
        tables["Cost of averaging"].rows, (one.averaging.overall, one.averaging.own), strict=True
    ):
        terms = (drift.mean.measured, drift.mean.first, drift.mean.second, drift.mean.remainder)
        assert row[1:] == tuple(map(format_entry, terms))
    for row, aligned in zip(
        tables["Updates and curvature"].rows, (one.alignment.own, one.alignment.overall), strict=True
    ):
        assert row[1:] == (format_entry(aligned.rayleigh), format_entry(aligned.share))


def test_bars_are_as_high_as_the_numbers() -> None:
    one = record(3)
    assert one.alignment is not None
    (quotient, share) = draw([one], "alignment").axes
    heights = [bar.get_height() for bar in quotient.patches if isinstance(bar, Rectangle)]
    assert heights == pytest.approx(
        [client.own.rayleigh.value for client in one.alignment.clients]
        + [client.overall.rayleigh.value for client in one.alignment.clients]
    )
    assert share.get_ylabel() == "share in the top 5"


def test_alike_clients_stand_beside_each_other() -> None:
    alike = np.full((6, 6), 0.1)
    for group in ([0, 2, 4], [1, 3, 5]):
        alike[np.ix_(group, group)] = 0.9
    order = order_of(alike)
    assert sorted(order) == list(range(6))
    assert {frozenset(order[:3]), frozenset(order[3:])} == {frozenset({0, 2, 4}), frozenset({1, 3, 5})}
    shuffled = np.random.default_rng(0).permutation(6)
    turned = order_of(alike[np.ix_(shuffled, shuffled)])
    assert {i % 2 for i in shuffled[turned[:3]]} in ({0}, {1})
    assert order_of(np.full((4, 4), np.nan)) == [0, 1, 2, 3]


def test_clients_with_low_barriers_stand_beside_each_other() -> None:
    heights = [[None if i == j else 0.1 if (i - j) % 2 == 0 else 0.9 for j in range(4)] for i in range(4)]
    nothing = {"value": 0.0, "stderr": 0.0}
    barriers = {
        "mean": nothing, "average": nothing, "matrix": heights, "stderr": heights, "similarities": heights,
    }  # fmt: skip
    one = record(4, overlap=None).edited(barriers=barriers)
    axes, _ = draw([one], "matrix").axes
    names = [int(label.get_text()) for label in axes.get_xticklabels()]
    assert sorted(names) == [0, 1, 2, 3]
    assert (names[0] - names[1]) % 2 == 0


def test_what_is_missing_is_said() -> None:
    empty = {"alignment": None, "averaging": None, "overlap": None}
    for kind, only in (("alignment", "alignment"), ("drift", "drift"), ("matrix", "overlap")):
        with pytest.raises(UserError, match=f"fedscope clients --only {only}"):
            draw([record(3, **empty)], kind)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="of one round, not 2"):
        draw([record(3), record(3)])
