"""The numbers that figures of runs are made of: errors, samples that are shared, and what is one point."""

import numpy as np
import pytest
from scipy.stats import t

from fedscope.records.run_curves import accuracy_at, curvature_at, run_curves
from tests.figures.runs.test_drawings import curvature, draw, groups, record

NORMAL = float(t.ppf(0.975, np.inf))  # half a 95 % interval, in standard errors


def spans(axes: object) -> list[list[float]]:
    """Return how long the error bars of a panel are: along it, and up."""
    bars = [path for lines in axes.collections for path in lines.get_paths()]  # type: ignore[attr-defined]
    return [[float(side) for side in np.ptp(np.asarray(path.vertices), axis=0)] for path in bars]


def test_the_error_of_an_accuracy_is_that_of_a_share_of_the_test_samples() -> None:
    assert accuracy_at(*run_curves([record()])) == pytest.approx((0.5, np.sqrt(0.5 * 0.5 / 100)))
    left, _ = draw([record()], "sharpness").axes
    assert sorted(spans(left)) == [
        pytest.approx([0, 2 * NORMAL * 5]), pytest.approx([2 * NORMAL * 0.1, 0]),
    ]  # fmt: skip


def test_the_interval_of_a_curvature_is_students_of_its_batches() -> None:
    one = record()
    for entry in one["curvature"]:
        entry["lambda_max"] = {**entry["lambda_max"], "dof": 7}
    left, right = (sorted(spans(axes))[1][0] for axes in draw([one], "sharpness").axes)
    assert (left, right) == pytest.approx((2 * float(t.ppf(0.975, 7)) * 0.1, 2 * NORMAL * 0.1))


def test_bars_of_several_seeds_are_students_interval_of_their_mean() -> None:
    runs = [record(seed=seed) for seed in range(3)]
    for one, accuracy, value in zip(runs, (0.4, 0.5, 0.6), (4.0, 5.0, 6.0), strict=True):
        one["at"]["accuracy"] = accuracy
        one["curvature"] = [curvature(one["at"]["sha256"], 1, value=value)]
    left, _ = draw(runs, "sharpness").axes
    half = float(t.ppf(0.975, 2)) / np.sqrt(3)
    assert sorted(spans(left)) == [pytest.approx([0, 2 * half * 10]), pytest.approx([2 * half, 0])]


def test_of_several_numbers_of_samples_the_largest_that_all_have_is_taken() -> None:
    both = [curvature("fedavg04", 4, samples=9), curvature("fedavg04", 4, value=7.0)]
    samples, (found,) = curvature_at(run_curves([record(curvature=both)]))
    assert (samples, found.lambda_max.value) == (64, 28)


def test_checkpoints_of_other_rounds_are_no_seeds_of_one_point() -> None:
    early = record(seed=1)
    early["at"] = {**early["at"], "round": 2}
    assert [len(group.records) for group in groups([record(), early])] == [1, 1]


def test_seeds_of_unequal_length_are_averaged_as_far_as_all_go() -> None:
    (axes,) = draw([record(seed=0), record(seed=2, rounds=3, at=record()["at"])], "accuracy").axes
    assert np.asarray(axes.lines[0].get_ydata()) == pytest.approx([11, 21, 31])
