import numpy as np
import pytest

from fedscope.figures import style
from fedscope.figures.label_placement import Place, Points, place, samples, text_size

PAGE = (130.0, 130.0)
RADIUS = 2.4


def _boxes(places: list[Place | None], sizes: Points) -> Points:
    rows = [
        [*(np.array(one.middle) - size / 2), *(np.array(one.middle) + size / 2)]
        for one, size in zip(places, sizes, strict=True)
        if one
    ]
    return np.array(rows)


@pytest.mark.parametrize("spread", [30.0, 8.0])
def test_labels_cover_no_point_no_label_and_stay_inside(spread: float) -> None:
    points = 65 + spread * np.random.default_rng(2).standard_normal((20, 2)).clip(-1.9, 1.9)
    sizes = np.tile([6.0, 5.0], (20, 1))
    found = place(points, sizes, page=PAGE, radius=RADIUS)
    assert sum(one is not None for one in found) >= 18
    boxes = _boxes(found, sizes)
    for i, (left, low, right, high) in enumerate(boxes):
        assert min(left, low) >= 0
        assert max(right, high) <= 130
        nearest = np.clip(points, (left, low), (right, high))
        assert (np.hypot(*(points - nearest).T) > RADIUS - 1e-9).all()
        for other in boxes[:i]:
            assert left > other[2] or right < other[0] or low > other[3] or high < other[1]


def test_a_lone_label_stands_at_the_right_without_a_leader() -> None:
    (found,) = place(np.array([[50.0, 60.0]]), np.array([[10.0, 6.0]]), page=PAGE, radius=2.0)
    assert found
    assert found.leader is None
    assert found.middle[0] - 5 > 52
    assert found.middle[1] == pytest.approx(60)


def test_a_crowded_label_moves_out_with_a_leader_to_its_point() -> None:
    ring = 60 + 7 * np.stack([np.cos(np.arange(12) * np.pi / 6), np.sin(np.arange(12) * np.pi / 6)], axis=1)
    points = np.vstack([[60.0, 60.0], ring])
    (found,) = place(points, np.array([[12.0, 6.0]]), page=PAGE, radius=1.0)
    assert found
    assert found.leader is not None
    assert np.hypot(*(found.leader[0] - 60)) == pytest.approx(1.0)


def test_no_room_is_said() -> None:
    assert place(np.array([[5.0, 5.0]]), np.array([[20.0, 6.0]]), page=(12.0, 12.0), radius=2.0) == [None]


def test_lines_are_avoided_where_it_costs_little() -> None:
    line = samples(np.array([[50.0, 60.0], [120.0, 60.0]]))
    (found,) = place(np.array([[50.0, 60.0]]), np.array([[10.0, 6.0]]), page=PAGE, radius=2.0, lines=line)
    assert found
    assert abs(found.middle[1] - 60) > 3


def test_samples_are_dense_and_hold_the_corners() -> None:
    line = np.array([[0.0, 0.0], [10.0, 0.0], [10.0, 7.0]])
    dense = samples(line)
    assert np.hypot(*np.diff(dense, axis=0).T).max() <= 1.5
    assert all((dense == corner).all(axis=1).any() for corner in line)


def test_text_is_measured_as_it_is_drawn() -> None:
    with style.paper_style():
        assert text_size("global", 6.0)[0] == pytest.approx(2 * text_size("global", 3.0)[0], rel=0.05)
        assert text_size("11", 6.0)[0] == pytest.approx(6.0, rel=0.05)  # Times' digits are half an em wide
