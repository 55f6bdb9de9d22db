"""What a table shows of a run's metrics."""

import pytest

from fedscope.checkpoints.file.schema import Round
from fedscope.checkpoints.file.settings import Settings
from fedscope.records.hessian_record import HessianRecord
from fedscope.reproduce.recipes.table_quantities import Number, from_metrics, from_record


def spectrum(*values: float, stderr: float | None = 0.1) -> HessianRecord:
    """Return a record of these eigenvalues, each with the same error."""
    entries = [{"value": value, "residual": 0.0, "stderr_data": stderr} for value in values]
    return compared().edited(lambda_max=entries[0], eigenvalues=entries)


def compared(**changes: object) -> HessianRecord:
    """Return a record of three compared clients."""
    mean = {"value": 0.8, "stderr": 0.01, "resolved": True}
    both = {"tensor": mean, "parameter": mean}
    cross = {"clients": 3, "pairs": "distinct", "H_N": both, "H_D": both, **changes}
    return HessianRecord.read({
        "schema": "fedscope/hessian/1", "checkpoint": {"sha256": "0"},
        "problem": {"samples": 8, "operator": "hessian"},
        "lambda_max": {"value": 1.0, "residual": 0.0, "stderr_data": 0.1},
        "eigenvalues": [], "density": None,
        "trace": {"value": 1.0, "stderr_probe": 0.1, "stderr_data": 0.1}, "cross_client": cross,
    })  # fmt: skip


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


def test_what_all_clients_rows_say_stands_in_a_table_where_it_is_known() -> None:
    whole = {"value": 0.9, "stderr": 0.05, "resolved": True, "dof": 15}
    populations = {"H_N": None, "H_D": {"tensor": whole, "parameter": None}}
    assert from_record("H_D_tensor", compared()) == Number(0.8, 0.01)
    assert from_record("H_D_tensor", compared(populations=populations)) == Number(0.9, 0.05, 15)
    assert from_record("H_D", compared(populations=populations)) == Number(0.8, 0.01)


def test_the_fifth_eigenvalue_and_the_ratio_to_it() -> None:
    found = spectrum(8.0, 6.0, 4.0, 3.0, 2.0)
    assert from_record("lambda_5", found) == Number(2.0, 0.1)
    ratio = from_record("lambda_ratio", found)
    assert ratio.value == 4.0
    assert ratio.error == pytest.approx(4 * (0.1 / 8 + 0.1 / 2))  # at most, whatever the two have in common
    assert from_record("lambda_ratio_code", spectrum(8.0, 6.0, 4.0, 3.0, -2.0, stderr=None)) == Number(-4.0)
    batches = found.edited(eigenvalues=[
        {**one.to_json(), "batches": [1.0] * count, "bias_data": 0.5}
        for one, count in zip(found.eigenvalues, (9, 8, 7, 6, 5), strict=True)
    ])  # fmt: skip
    assert from_record("lambda_ratio", batches.edited(lambda_max=batches.eigenvalues[0].to_json())).dof == 4
    total = from_record("spectrum", batches)
    assert (total.value, total.dof) == (23.0 - 5 * 0.5, 4)
    assert total.error == pytest.approx(5 * 0.1)
    few = spectrum(8.0, 6.0)
    assert from_record("lambda_ratio", few) == from_record("lambda_5", few) == Number(None, text="–")
    nothing = from_record("lambda_ratio", spectrum(8.0, 0.0, 0.0, 0.0, 0.0))
    assert (nothing.value, nothing.text) == (None, "not finite")


def test_a_mean_over_domains_has_no_error_of_all_samples() -> None:
    metrics = [Round(round=1, accuracy=0.9, domains={"mnist": 0.95, "svhn": 0.85})]
    assert from_metrics("accuracy", Settings(rounds=1), metrics, tested=900).error is None
