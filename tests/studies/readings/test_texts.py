"""The texts of an inference: which readings are likely, what is settled, and what stays unexplained."""

from fedscope.records.entries import Record
from studies.readings.readings_record import ReadingsResult
from studies.readings.readings_texts import inference, likely

PRINTED = {"A": (40.0, 8000.0), "A+B": (30.0, 4000.0)}


def result(
    name: str,
    share: float,
    *,
    scale: float = 1.0,
    added: float = 1.0,
    split: str = "test",
    samples: str = "32",
    log_likelihood: float = 0.0,
) -> Record:
    entries = [
        {
            "row": row, "quantity": quantity, "measured": 1.0, "round": 5, "growth": 1.0,
            "expected": value * scale * (added if row == "A+B" else 1.0), "printed": value,
        }
        for row, values in PRINTED.items()
        for quantity, value in zip(("lambda_max", "trace"), values, strict=True)
    ]  # fmt: skip
    return {
        "name": name, "settings": {"split": split, "samples": samples}, "draws": 1,
        "entries": entries, "sampling_spread": {},
        "log_likelihood": log_likelihood, "share": share,
        "factors": {"lambda_max": 1 / scale, "trace": 1 / scale},
        "ratios_only": share, "residual": 0.1, "p": 0.5,
    }  # fmt: skip


def readings(*results: Record, axes: list[Record]) -> ReadingsResult:
    return ReadingsResult.read({
        "results": list(results), "axes": axes, "sensitivities": [], "training_spread": {},
        "spread_source": "stated", "growth_spread": 0.1, "correlation": 0.5, "common": {}, "dof": 4.0,
        "growth": {}, "grown_on": [], "incomplete": [], "open": {},
    })  # fmt: skip


AXES = [
    {"axis": "split", "value": "test", "readings": 2, "share": 0.97},
    {"axis": "split", "value": "train", "readings": 1, "share": 0.03},
    {"axis": "samples", "value": "32", "readings": 1, "share": 0.6},
    {"axis": "samples", "value": "64", "readings": 2, "share": 0.4},
]


def test_as_few_readings_as_share_95_per_cent() -> None:
    found = readings(result("a", 0.6), result("b", 0.37), result("c", 0.03), axes=AXES)
    assert [one.name for one in likely(found.results)] == ["a", "b"]


def test_an_axis_is_settled_by_a_setting_of_95_per_cent() -> None:
    both = (result("a", 0.97), result("b", 0.03, split="train", log_likelihood=-3.5))
    found = inference(readings(*both, axes=AXES))
    assert found["settled"] == ["samples of: test"]
    assert found["unsettled"] == ["number of samples"]


def test_an_axis_is_not_settled_by_what_was_tried_with_other_unlikely_settings() -> None:
    """The only one on training samples also had more of them, which may be why it is unlikely."""
    apart = result("b", 0.03, split="train", samples="64", log_likelihood=-3.5)
    found = inference(readings(result("a", 0.97), apart, axes=AXES))
    assert found["settled"] == []
    assert found["unsettled"] == ["samples of", "number of samples"]


def test_an_axis_is_not_settled_by_a_share_that_is_mostly_the_prior() -> None:
    """Nine in ten readings are of test samples; the only pair favours these by e^0.8, which is 69 %."""
    both = (result("a", 0.97), result("b", 0.03, split="train", log_likelihood=-0.8))
    assert inference(readings(*both, axes=AXES))["settled"] == []
    third = result("c", 0.0, samples="64"), result("d", 0.0, split="train", samples="64", log_likelihood=-9.0)
    assert inference(readings(*both, *third, axes=AXES))["settled"] == []
    assert inference(readings(*third, axes=AXES))["settled"] == ["samples of: test"]


def test_the_worst_method_is_that_after_the_common_factor() -> None:
    found = inference(readings(result("a", 1.0, scale=2.0, added=0.7), axes=AXES))
    assert found["worst"].row == "A+B"  # type: ignore[attr-defined]
    assert round(float(found["worst_ratio"]), 6) == 0.7  # type: ignore[arg-type]


def test_the_effect_of_what_is_added_stands_beside_the_printed_one() -> None:
    found = inference(readings(result("a", 1.0, added=0.8), axes=AXES))
    effects = [(e.what, e.quantity, e.printed, round(e.expected, 6), e.pairs) for e in found["effects"]]  # type: ignore[attr-defined]
    assert effects == [("Effect of B", "λ_max", 0.75, 0.6, 1), ("Effect of B", "trace", 0.5, 0.4, 1)]


def test_the_first_readings_stand_beside_the_printed_numbers() -> None:
    found = inference(readings(result("a", 0.9, scale=1.5), result("b", 0.1), axes=AXES))
    headings = ["λ_max, printed", "λ_max: a", "λ_max: b", "trace, printed", "trace: a", "trace: b"]
    rows = [
        ["A", "40.00", "60.00 (1.50)", "40.00 (1.00)", "8000", "12000 (1.50)", "8000 (1.00)"],
        ["A+B", "30.00", "45.00 (1.50)", "30.00 (1.00)", "4000", "6000 (1.50)", "4000 (1.00)"],
    ]
    assert found["beside"] == {"headings": headings, "rows": rows}
