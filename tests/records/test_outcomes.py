import math

import numpy as np
import pytest

from fedscope.errors import UserError
from fedscope.records.outcomes import OUTCOMES_SCHEMA, OutcomesRecord, packed


def record(right: list[bool], samples: str = "s") -> OutcomesRecord:
    return OutcomesRecord.read(
        {
            "schema": OUTCOMES_SCHEMA,
            "checkpoint": {"sha256": "ab"},
            "problem": {"samples": len(right)},
            "samples_sha256": samples,
            "right": packed(right),
        }
    )


@pytest.mark.parametrize("count", [1, 7, 8, 13])
def test_answers_come_back_in_order(count: int) -> None:
    right = [bool(bit) for bit in np.random.default_rng(count).integers(0, 2, count)]
    assert f"{record(right).bits:0{count}b}" == "".join("1" if one else "0" for one in right)
    assert record(right).accuracy == pytest.approx(sum(right) / count)


def test_the_paired_error_is_mcnemars() -> None:
    """Of 200 samples 30 are right in the first alone, 10 in the second alone."""
    first = [True] * 130 + [False] * 70
    second = [False] * 30 + [True] * 100 + [True] * 10 + [False] * 60
    variance = (30 + 10 - (30 - 10) ** 2 / 200) / 199
    assert record(first).stderr(record(second)) == pytest.approx(math.sqrt(variance / 200))
    assert record(first).stderr(record(first)) == 0
    assert math.isnan(record([True]).stderr(record([False])))


def test_the_paired_error_covers_the_spread_of_draws() -> None:
    """Draws of 400 samples of a population of answers that agree on most of them."""
    rng = np.random.default_rng(0)
    hard = rng.random(100_000)
    ours, theirs = hard < 0.5, (hard + 0.1 * rng.standard_normal(100_000)) < 0.55
    gaps, errors = [], []
    for _ in range(400):
        rows = rng.integers(0, 100_000, 400)
        mine, yours = record(ours[rows].tolist()), record(theirs[rows].tolist())
        gaps.append(mine.accuracy - yours.accuracy)
        errors.append(mine.stderr(yours))
    assert np.std(gaps) == pytest.approx(np.mean(errors), rel=0.1)


def test_only_the_same_samples_pair() -> None:
    assert record([True]).pairs(record([False]))
    assert not record([True]).pairs(record([True], "other"))


def test_a_record_with_too_few_answers_is_refused() -> None:
    content = record([True] * 9).to_json()
    with pytest.raises(UserError, match="right has not a bit for each of 17 samples"):
        OutcomesRecord.read({**content, "problem": {"samples": 17}})
