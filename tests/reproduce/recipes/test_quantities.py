"""What a table shows of a run's metrics."""

import pytest

from fedscope.checkpoints.file.schema import Round, Settings
from fedscope.reproduce.recipes.quantities import from_metrics


@pytest.mark.parametrize(("name", "share"), [("accuracy", 0.9), ("best_accuracy", 0.95)])
def test_an_accuracy_has_the_binomial_error_of_its_test_samples(name: str, share: float) -> None:
    metrics = [Round(round=1, accuracy=0.95), Round(round=2, accuracy=0.9)]
    found = from_metrics(name, Settings(rounds=2), metrics, tested=900)
    assert found.value == pytest.approx(100 * share)
    assert found.error == pytest.approx(100 * (share * (1 - share) / 900) ** 0.5)  # in percent too
    assert from_metrics(name, Settings(rounds=2), metrics, tested=None).error is None


def test_a_round_takes_its_mean_time_with_its_standard_error() -> None:
    metrics = [Round(round=n, seconds=seconds) for n, seconds in enumerate((1.0, 2.0, 6.0), 1)]
    found = from_metrics("seconds_per_round", Settings(rounds=3), metrics, tested=None)
    assert found.value == pytest.approx(3)
    assert found.error == pytest.approx((7 / 3) ** 0.5)
    assert from_metrics("seconds_per_round", Settings(), metrics[:1], tested=None).error is None
