"""The picture of how few samples make λ_max: curves, images, bars."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from fedscope.errors import UserError
from fedscope.figures import style
from fedscope.figures.spectrum.hessian_figures import draw
from fedscope.figures.spectrum.sample_shares import Concentration, influence_figure
from fedscope.records.hessian_record import HessianRecord
from fedscope.records.influence_entry import Holders, influence_entry
from tests.figures.records import curvature

PARTS = np.random.default_rng(0).pareto(1.5, 300).tolist()


def record(name: str = "one", method: str = "fedavg", *, listed: int = 10, **known: Any) -> HessianRecord:
    content = curvature(name, method)
    content["lambda_max"] = {
        **content["lambda_max"],
        "effective_samples": sum(PARTS) ** 2 / sum(q * q for q in PARTS),
        "by_sample": PARTS,
    }
    labels = [i % 12 for i in range(300)]
    known = dict[str, Any](labels=labels, names=[f"class_{c}" for c in range(12)]) | known
    entry = influence_entry(PARTS, rows=range(300), listed=listed, **known)
    return HessianRecord.read(content | {"influence": entry})


def pictures(count: int, channels: int = 3) -> Any:
    return np.random.default_rng(1).random((count, 8, 8, channels)).astype(np.float32)


def words(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.texts]


def overlapping(figure: Figure) -> bool:
    """Whether two of the texts, or a text and an image, cover each other."""
    figure.canvas.draw()
    boxes = [text.get_window_extent() for text in figure.texts]
    boxes += [image.get_window_extent() for axes in figure.axes for image in axes.images]
    return any(one.overlaps(other) for i, one in enumerate(boxes) for other in boxes[:i])


def test_the_curve_is_the_cumulative_share_of_the_sorted_parts() -> None:
    figure = draw([record(), record("two", "fedprox")], "influence", pictures(10))
    lines = figure.axes[0].lines
    ordered = np.sort(PARTS)[::-1]
    drawn = np.array(lines[0].get_xydata())
    assert drawn[:, 0].tolist() == pytest.approx((np.arange(1, 301) / 300).tolist())
    assert drawn[:, 1].tolist() == pytest.approx((ordered.cumsum() / ordered.sum()).tolist())
    mark = float(np.ravel(lines[1].get_xdata())[0]), float(np.ravel(lines[1].get_ydata())[0])
    assert mark == pytest.approx((0.01, ordered[:3].sum() / ordered.sum()))
    legend = figure.axes[0].get_legend()
    assert legend is not None
    texts = [text.get_text() for text in legend.get_texts()]
    assert [text.split(":")[0] for text in texts] == ["FedAvg", "FedProx", "equal parts of all samples"]
    share = f"{100 * ordered[:3].sum() / ordered.sum():.3g} %"
    effective = f"{ordered.sum() ** 2 / (ordered**2).sum():.3g} of 300"
    assert share in texts[0]
    assert effective in texts[0]
    assert "samples that carry most: FedAvg" in words(figure)


@pytest.mark.parametrize(("count", "channels"), [(1, 1), (10, 3), (12, 1), (24, 3), (40, 3)])
def test_the_images_stand_in_their_order_and_nothing_overlaps(count: int, channels: int) -> None:
    images = pictures(count, channels)
    figure = draw([record(listed=count)], "influence", images)
    shown = [axes.images[0] for axes in figure.axes if axes.images]
    assert len(shown) == min(count, 24)
    for image, expected in zip(shown, images, strict=False):
        np.testing.assert_array_equal(np.squeeze(np.array(image.get_array())), np.squeeze(expected))
    first = int(np.argmax(PARTS))
    assert f"class {first % 12}" in words(figure)
    assert f"{100 * max(PARTS) / sum(PARTS):#.3g} %" in words(figure)
    assert not overlapping(figure)


def test_long_names_are_cut() -> None:
    names = [f"a_very_long_name_of_the_class_{c}" for c in range(12)]
    figure = draw([record(names=names, listed=24)], "influence", pictures(24))
    assert any(text.endswith("…") for text in words(figure))
    assert not overlapping(figure)
    bars = draw([record(names=names)], "influence").axes[1]
    assert all(text.get_text().endswith("…") for text in bars.get_yticklabels())


def test_without_images_there_are_bars_of_classes_or_clients() -> None:
    found = record()
    bars = draw([found], "influence").axes[1]
    largest = found.influence.by_class[:10]  # type: ignore[union-attr,index]
    assert [bar.get_width() for bar in bars.patches] == pytest.approx([one.share for one in largest])  # type: ignore[attr-defined]
    assert [text.get_text() for text in bars.get_yticklabels()] == [f"class {one.number}" for one in largest]
    holders = Holders([[i % 3] for i in range(300)])
    clients = draw([record(labels=None, holders=holders)], "influence").axes[1]
    assert len(clients.patches) == 3
    assert "by client" in clients.get_xlabel()
    alone = draw([record(labels=None)], "influence")
    assert (len(alone.axes), alone.get_size_inches()[0]) == (1, pytest.approx(style.SINGLE_COLUMN))


def test_the_same_record_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a.svg", "b.svg"):
        style.save(draw([record()], "influence", pictures(10)), tmp_path / name, record={})
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_what_cannot_be_drawn_is_refused() -> None:
    with pytest.raises(UserError, match=r"one@4 has no parts of the samples.*--influence"):
        draw([HessianRecord.read(curvature("one"))], "influence")
    flat = record().to_json()
    flat["lambda_max"] = flat["lambda_max"] | {"by_sample": [1.0, -2.0]}
    with pytest.raises(UserError, match="not positive"):
        draw([HessianRecord.read(flat)], "influence")
    with pytest.raises(UserError, match="1 to 6"):
        draw([record()] * 7, "influence")


def test_a_curve_above_100_percent_says_why() -> None:
    said = "samples whose part is negative take off the rest"
    for parts, above in (([3.0, 2.0, -1.0], True), ([3.0, 2.0, 1.0], False)):
        figure = influence_figure([Concentration("x", parts, 2.0)])
        assert any(said in text for text in words(figure)) is above
