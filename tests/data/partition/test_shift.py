import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedscope.data.partition.shift import label_maps, mean_best_since_shift, mean_current, shift_rounds
from fedscope.errors import UserError
from tests import tiers

quick = settings(max_examples=tiers.examples(50), deadline=None)
seeds = st.integers(0, 2**32 - 1)


def drawn(seed: int, classes: int = 10, rounds: int = 200, **options: object) -> np.ndarray:
    return label_maps(classes, rounds, generator=np.random.default_rng(seed), **options)  # type: ignore[arg-type]


@given(
    seed=seeds, classes=st.integers(2, 20), rounds=st.integers(1, 60), probability=st.floats(0, 1)
)  # fmt: skip
@quick
def test_at_most_one_class_changes_per_round(
    seed: int, classes: int, rounds: int, probability: float
) -> None:
    maps = drawn(seed, classes, rounds, probability=probability)
    assert maps.shape == (rounds, classes)
    assert maps.dtype == np.int64
    assert (maps.min() >= 0, maps.max() < classes) == (True, True)
    before, changes = list(range(classes)), []
    for round, after in enumerate(maps.tolist()):
        changed = [c for c in range(classes) if after[c] != before[c]]
        assert len(changed) <= 1
        changes += [round] * len(changed)
        before = after
    assert shift_rounds(maps) == changes
    assert np.array_equal(maps, drawn(seed, classes, rounds, probability=probability))


@given(seed=seeds, classes=st.integers(2, 20))
@quick
def test_without_shifts_every_class_keeps_its_name(seed: int, classes: int) -> None:
    assert (drawn(seed, classes, probability=0.0) == np.arange(classes)).all()


@given(seed=seeds, rounds=st.integers(10, 200))
@quick
def test_fixed10_shifts_ten_times(seed: int, rounds: int) -> None:
    assert len(shift_rounds(drawn(seed, rounds=rounds, schedule="fixed10"))) == 10


def test_ten_shifts_are_expected_in_200_rounds() -> None:
    counts = [len(shift_rounds(drawn(seed))) for seed in range(400)]
    assert np.mean(counts) == pytest.approx(10, abs=4 * np.sqrt(200 * 0.05 * 0.95 / 400))
    assert np.var(counts) == pytest.approx(200 * 0.05 * 0.95, rel=0.3)


def test_classes_and_labels_are_uniform_and_never_the_current_one() -> None:
    maps = np.vstack([np.arange(4), drawn(1, classes=4, rounds=12_000, probability=1.0)])
    classes = (maps[1:] != maps[:-1]).argmax(1)
    steps = (maps[np.arange(1, 12_001), classes] - maps[np.arange(12_000), classes]) % 4
    assert abs(np.bincount(classes, minlength=4) / 3000 - 1).max() < 0.08
    assert steps.min() > 0
    assert abs(np.bincount(steps)[1:] / 4000 - 1).max() < 0.08
    assert any(len(set(row)) < 4 for row in maps.tolist())  # two classes may share a label


def test_metrics_by_hand() -> None:
    accuracies = [0.2, 0.5, 0.4, 0.1, 0.3, 0.2]
    assert mean_current(accuracies, [3]) == pytest.approx(1.7 / 6)
    assert mean_best_since_shift(accuracies, [3]) == pytest.approx((0.2 + 0.5 + 0.5 + 0.1 + 0.3 + 0.3) / 6)
    assert mean_best_since_shift(accuracies, []) == pytest.approx((0.2 + 5 * 0.5) / 6)
    assert mean_best_since_shift(accuracies, [5, 0, 3]) == pytest.approx((0.2 + 1 + 0.1 + 0.3 + 0.2) / 6)


@given(data=st.data(), accuracies=st.lists(st.floats(0, 1), min_size=1, max_size=30))
@quick
def test_the_best_since_a_shift_is_looked_up_round_by_round(
    data: st.DataObject, accuracies: list[float]
) -> None:
    shifts = data.draw(st.lists(st.integers(0, len(accuracies) - 1), unique=True))
    best = []
    for round in range(len(accuracies)):
        last = max([s for s in shifts if s <= round], default=0)
        best.append(max(accuracies[last : round + 1]))
    value = mean_best_since_shift(accuracies, shifts)
    assert value == pytest.approx(sum(best) / len(best))
    assert value >= mean_current(accuracies, shifts) - 1e-12
    every = list(range(len(accuracies)))
    assert mean_best_since_shift(accuracies, every) == mean_current(accuracies, shifts)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"classes": 1}, "at least 2 classes, not 1"),
        ({"schedule": "fixed10", "rounds": 9}, "10 shifts need as many rounds, not 9"),
        ({"schedule": "weekly"}, "unknown schedule of shifts 'weekly'"),
        ({"probability": 1.1}, "between 0 and 1, not 1.1"),
        ({"probability": float("nan")}, "between 0 and 1"),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        drawn(0, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(("accuracies", "shifts"), [([], []), ([0.5], [1]), ([0.5], [-1])])
def test_metrics_need_rounds(accuracies: list[float], shifts: list[int]) -> None:
    for metric in (mean_current, mean_best_since_shift):
        with pytest.raises(ValueError, match="accuracies with shifts"):
            metric(accuracies, shifts)
