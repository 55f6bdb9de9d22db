"""What several sharpness records say together."""

import math

import pytest

from fedscope.errors import UserError
from fedscope.records.sharpness_compared import compared, correlated, differences
from fedscope.records.sharpness_record import SharpnessRecord
from fedscope.statistics.standard_errors import interval

DRAWS, BATCHES = [1.0, 2.0, 4.0, 3.0], [1.0, 3.0, 2.0]


def quantity(name: str, shift: float, **more: object) -> dict[str, object]:
    draws, batches = [d + shift for d in DRAWS], [b + shift for b in BATCHES]
    value = sum(draws) / 4
    return {
        "name": name, "settings": {"rho": 0.1}, "value": value, "stderr_draws": 0.6, "dof_draws": 3,
        "stderr_data": 0.5, "dof_data": 2, "draws": draws, "batches": batches,
        "batch_sizes": [8, 8, 8], **more,
    }  # fmt: skip


def record(shift: float = 0.0, gap: float | None = None, **more: object) -> SharpnessRecord:
    entry = {
        "train_loss": 0.1, "test_loss": 0.1 + (gap or 0), "train_accuracy": 0.9, "test_accuracy": 0.8,
        "train_samples": 24, "test_samples": 24, "loss": gap, "stderr": 0.01, "accuracy": 0.1,
    }  # fmt: skip
    return SharpnessRecord.read(
        {
            "schema": "fedscope/sharpness/1",
            "checkpoint": {"sha256": f"{abs(hash((shift, gap))) % 10**9:09d}", "run": "r", "round": 3},
            "problem": {"samples": 24},
            "samples_sha256": "1",
            "quantities": [quantity("average_l2", shift), quantity("trace", -shift)],
            "gap": None if gap is None else entry,
            **more,
        }
    )


def test_a_difference_of_shared_draws_has_their_common_noise_in_neither() -> None:
    first, other = record(), record(0.5)
    found = {one.quantity: one for one in differences(first, other)}
    assert found["average_l2"].value == pytest.approx(0.5)
    assert found["average_l2"].stderr == pytest.approx(0, abs=1e-7)
    assert found["average_l2"].verdict == "higher"
    joined = compared([first, other])
    assert joined[0].differences == ()
    assert [one.verdict for one in joined[1].differences] == ["higher", "lower"]
    assert joined[1].differences[0].to == first.checkpoint.sha256


def test_other_draws_add_their_errors() -> None:
    other = record(quantities=[quantity("average_l2", 1.0, draws=[], dof_draws=None)])
    (found,) = differences(record(quantities=[quantity("average_l2", 0.0, draws=[])]), other)
    assert found.probe[0] == pytest.approx(math.hypot(0.6, 0.6))
    uneven = record(quantities=[quantity("average_l2", 1.0, batch_sizes=[24])])
    assert math.isnan(differences(record(), uneven)[0].stderr)


def test_samples_of_a_finite_population_have_less_error() -> None:
    """Of all of them none is left, as in each record; but the worst case depends on the batches, too."""

    def stderr(population: int | None, **settings: float) -> float:
        ours, theirs = (
            record(
                problem={"samples": 24, "population": population},
                quantities=[quantity("sam", 0, draws=[], stderr_draws=0, batches=b, settings=settings)],
            )
            for b in ([1.0, 3.0, 2.0], [1.0, 4.0, 4.0])
        )
        return differences(ours, theirs)[0].stderr

    assert stderr(None) == pytest.approx(1 / 3**0.5)  # the differences are 0, 1 and 2
    assert stderr(96) == pytest.approx(0.75**0.5 * stderr(None))
    assert stderr(24) == 0
    assert stderr(24, m=8) == stderr(None)


def test_other_settings_or_samples_are_not_compared() -> None:
    other = record(quantities=[quantity("average_l2", 1.0, settings={"rho": 0.2})])
    assert differences(record(), other) == []
    with pytest.raises(UserError, match="not measured on the same samples"):
        differences(record(), record(samples_sha256="2"))
    assert compared([record(), record(samples_sha256="2")])[1].differences == ()


def test_tau_of_each_quantity_with_the_gap() -> None:
    records = [
        record(shift, gap) for shift, gap in ((0, 0.1), (1, 0.2), (2, 0.4), (3, 0.3), (4, 0.5), (5, 0.6))
    ]
    found = correlated(records, "gap")
    sharp, flat = found.correlations
    assert sharp.tau == pytest.approx(1 - 2 / 15)
    assert flat.tau == pytest.approx(-1 + 2 / 15)
    # of 720 orders 1 + 5 have at most one pair that is out of order
    assert sharp.p == pytest.approx(2 * 6 / 720)
    assert sharp.joint_p == pytest.approx(4 * 6 / 720)
    assert sharp.interval
    assert sharp.interval[0] > 0
    assert sharp.count == 6
    flat_accuracy = correlated(records, "accuracy").correlations[0]
    assert flat_accuracy.tau == 0
    assert flat_accuracy.p == pytest.approx(1)


def test_too_few_checkpoints_or_none_with_a_gap_are_refused() -> None:
    with pytest.raises(UserError, match="at least 4 checkpoints, not 3"):
        correlated([record(i, 0.1 * i) for i in range(3)], "gap")
    with pytest.raises(UserError, match="no checkpoint has a generalisation gap"):
        correlated([record(i) for i in range(5)], "gap")
    some = [record(i, 0.1 * i) for i in range(4)]
    assert correlated([*some, record(9)], "gap").correlations[0].count == 4


def test_differences_of_lambda_max_are_without_its_bias_and_have_its_residual() -> None:
    """As those of Hessian records: the interval's centre has no bias, its width a bound beside the error."""

    def top(shift: float, low: float, high: float) -> SharpnessRecord:
        one = quantity("lambda_max", shift, population_interval=[low, high], stderr_draws=0, draws=[])
        return record(quantities=[one])

    reach = interval(0.0, 0.5, 2)[1]
    first, other = top(0.0, 2.0 - reach - 0.3, 2.0 + reach + 0.3), top(1.0, 2.4 - reach, 2.4 + reach)
    (found,) = differences(first, other)
    assert [found.value, found.bound] == pytest.approx([0.4, 0.3])
