import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fedscope.workflows.divided_data import class_counts, effective_classes, total_variation
from tests import tiers

COUNTS = np.array([[5, 0, 0, 0], [2, 2, 2, 2], [3, 1, 0, 0]])


def test_counts_by_hand() -> None:
    labels = np.array([0, 2, 2, 1])
    rows = [np.array([0, 1, 2]), np.array([3]), np.array([], dtype=np.int64)]
    assert class_counts(labels, rows, 4).tolist() == [[1, 0, 2, 0], [0, 1, 0, 0], [0, 0, 0, 0]]


def test_one_class_counts_once_and_equal_classes_all() -> None:
    binary = (4 / 3) ** 0.75 * 4**0.25  # exp of the entropy of (¾, ¼)
    assert effective_classes(COUNTS) == pytest.approx([1, 4, binary])


def test_distance_by_hand() -> None:
    everyone = np.array([1, 1, 1, 1])
    assert total_variation(COUNTS, everyone) == pytest.approx([0.75, 0, 0.5])
    assert total_variation(COUNTS[:1], np.array([0, 3, 0, 0])) == pytest.approx([1])


@settings(max_examples=tiers.examples(), deadline=None)
@given(arrays(np.int64, (4, 6), elements=st.integers(0, 50)).filter(lambda n: bool((n.sum(1) > 0).all())))
def test_bounds(counts: np.ndarray) -> None:
    effective, held = effective_classes(counts), (counts > 0).sum(1)
    assert ((effective >= 1 - 1e-9) & (effective <= held + 1e-9)).all()
    distance = total_variation(counts, counts.sum(0))
    assert ((distance >= 0) & (distance <= 1)).all()
    assert total_variation(counts[:1], counts[0]) == pytest.approx([0])
