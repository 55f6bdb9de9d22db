from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text
from mpl_toolkits.mplot3d import Axes3D
from PIL import Image

from fedscope.errors import UserError
from fedscope.figures import animation as film
from fedscope.figures.embedded_record import read_record
from fedscope.figures.surface.animation_frames import frame_figures, frames, is_film, strip_figure
from tests.figures.cases import bowl, film_records, recorded, trajectory


def _texts(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.findobj(Text) if isinstance(text, Text)]


def test_rounds_become_frames_in_order_on_one_scale() -> None:
    figures = frame_figures(frames(film_records(3)[::-1]))
    assert [f"round {i + 1}" in _texts(figure) for i, figure in enumerate(figures)] == [True] * 3
    assert all("a along the eigenvectors of round 3 (512 samples)" in _texts(figure) for figure in figures)
    assert len({tuple(figure.get_size_inches()) for figure in figures}) == 1
    heights = [axes.get_zlim() for figure in figures for axes in figure.axes if isinstance(axes, Axes3D)]
    assert len(set(heights)) == 1
    assert 10 ** heights[0][0] == pytest.approx(1 / 3)
    bars = {tuple(figure.axes[-1].get_xlim()) for figure in figures}
    assert len(bars) == 1


def test_several_runs_stand_side_by_side_in_each_frame() -> None:
    found = frames(film_records(2, runs=("a", "b")))
    assert [[record.checkpoint.run for record in frame.records] for frame in found] == [["a", "b"]] * 2
    assert found[0].names == ("a, round 1", "b, round 1")
    with pytest.raises(UserError, match="one --rounds"):
        frames([*film_records(2), *film_records(3, runs=("b",))])


def test_a_trajectory_grows() -> None:
    found = frames([recorded(trajectory(4))])
    assert [frame.reached for frame in found] == [1, 2, 3, 4]
    assert [frame.names for frame in found] == [(f"round {i}",) for i in range(1, 5)]
    figures = frame_figures(found, kind="contour")
    assert len({tuple(figure.get_size_inches()) for figure in figures}) == 1


def test_a_strip_has_rows_of_up_to_six_or_a_row_per_run() -> None:
    def columns(figure: Figure) -> list[int]:
        tops = [round(axes.get_position().y0, 3) for axes in figure.axes[:-1]]
        return [tops.count(top) for top in dict.fromkeys(tops)]

    assert columns(strip_figure(frames(film_records(5)))) == [5]
    assert columns(strip_figure(frames(film_records(8)))) == [4, 4]
    assert columns(strip_figure(frames(film_records(3, runs=("a", "b"))))) == [3, 3]
    with pytest.raises(UserError, match="larger step"):
        strip_figure(frames(film_records(7, runs=("a", "b"))))
    with pytest.raises(UserError, match="larger step"):
        strip_figure(frames(film_records(37)))


def test_plain_landscapes_are_no_film() -> None:
    plain = [recorded(bowl()), recorded(bowl(), run="b")]
    assert not is_film(plain)
    with pytest.raises(UserError, match="--rounds"):
        frames(plain)
    assert is_film(film_records(2))
    assert is_film([recorded(trajectory(4))])


def test_a_gif_loops_with_the_same_bytes_and_its_record(tmp_path: Path) -> None:
    figures = frame_figures(frames(film_records(3)), kind="contour")
    for name in ("a.gif", "b.gif"):
        film.save_film(figures, tmp_path / name, record={"checkpoints": ["x" * 700]}, seconds=0.2)
    assert (tmp_path / "a.gif").read_bytes() == (tmp_path / "b.gif").read_bytes()
    with Image.open(tmp_path / "a.gif") as image:
        assert image.n_frames == 3  # type: ignore[attr-defined]
        assert image.info["loop"] == 0
        durations, pictures = [], []
        for place in range(3):
            image.seek(place)
            durations.append(image.info["duration"])
            pictures.append(np.asarray(image.convert("RGB"), dtype=np.int16))
    assert durations == [200, 200, 800]
    assert (pictures[0][0] == 255).all()  # the page is white
    assert abs(pictures[0] - pictures[2]).max() > 30
    assert read_record(tmp_path / "a.gif") == {"checkpoints": ["x" * 700]}
    assert (tmp_path / "a.gif").stat().st_size < 300_000


def test_frames_of_different_sizes_are_refused_and_nothing_is_left(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="one size"):
        film.save_film([Figure((1, 1)), Figure((1, 2))], tmp_path / "a.gif", record={}, seconds=1)
    with pytest.raises(ValueError, match="a figure"):
        film.save_film([], tmp_path / "a.gif", record={}, seconds=1)
    assert list(tmp_path.iterdir()) == []
