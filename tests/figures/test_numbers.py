import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedscope.figures.digits import format_estimate, three_digits
from tests import tiers

NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        ((12.3412, 0.5612), "12.34 ± 0.56"),
        ((-4.2, 0.7), "−4.20 ± 0.70"),
        ((1.0, 0.0996), "1.00 ± 0.10"),
        ((1234.0, 560.0), "1230 ± 560"),
        ((1234.0, 99.6), "1230 ± 100"),
        ((99999.6, 0.3), "99999.60 ± 0.30"),
        ((0.5, 12.0), "0 ± 12"),
        ((-0.3, 12.0), "0 ± 12"),
        ((0.0, 0.25), "0.00 ± 0.25"),
        ((12.3, 0.0), "12.30000"),
        ((0.0, 0.0), "0"),
        ((1.0, 1e-12), "1.000000 ± 1.0×10⁻¹²"),
        ((1.234e9, 5.6e6), "(1.2340 ± 0.0056)×10⁹"),
        ((1.234e-9, 5.6e-11), "(1.234 ± 0.056)×10⁻⁹"),
        ((1.0, 1e9), "(0.0 ± 1.0)×10⁹"),
        ((0.0, 1e-9), "(0.0 ± 1.0)×10⁻⁹"),
        ((12.341,), "12.34"),
        ((2e9,), "2.000×10⁹"),
        ((NAN, 0.5), "not finite ± 0.50"),
        ((-INF, NAN), "-inf ± –"),
        ((12.34, INF), "12.34 ± inf"),
        ((12.34, None), "12.34 ± –"),
        ((None, 0.5), "not finite ± 0.50"),
        ((None, None), "not finite ± –"),
        ((123.4, 0.0012, 5.61), "123.4 ± 0.0012 ± 5.6"),
        ((1.234e9, 5.6e6, None), "(1.2340 ± 0.0056 ± –)×10⁹"),
    ],
)
def test_format_estimate(numbers: tuple[float | None, ...], text: str) -> None:
    assert format_estimate(*numbers) == text


@settings(max_examples=tiers.examples(), deadline=None)
@given(st.floats(-1e4, 1e4), st.floats(1e-2, 1e4))
def test_rounding_loses_less_than_a_tenth_of_the_error(value: float, stderr: float) -> None:
    parts = format_estimate(value, stderr).replace("−", "-").split(" ± ")
    shown, error = map(float, parts)
    assert abs(shown - value) <= 0.051 * stderr
    assert error == pytest.approx(stderr, rel=0.051)


@settings(max_examples=tiers.examples(), deadline=None)
@given(st.floats(), st.floats(min_value=0))
def test_every_float_has_a_text_of_reasonable_length(value: float, stderr: float) -> None:
    assert 1 <= len(format_estimate(value, stderr)) <= 40


def test_digits_end_where_a_value_may_be_off() -> None:
    assert format_estimate(6.059252, 0.0) == "6.059252"
    assert format_estimate(6.059252, 0.0, within=0.0043) == "6.0593"
    assert format_estimate(6.059252, 0.12, within=0.0043) == "6.06 ± 0.12"
    assert format_estimate(6.059252, 0.12, within=math.nan) == "6.06 ± 0.12"
    assert format_estimate(6.059252, None, within=0.5) == "6.059 ± –"


@pytest.mark.parametrize(
    ("value", "text"),
    [(15.0, "15.0"), (16.09, "16.1"), (1.6, "1.60"), (-0.5, "−0.500"), (160, "160"), (1.5e7, "1.500×10⁷")],
)
def test_three_digits_keep_their_zeros(value: float, text: str) -> None:
    assert three_digits(value) == text
