"""A value and its errors in the digits that the errors support.

The value is rounded to the second significant digit of its largest error, each error to two significant
digits of its own. ``None`` is JSON's null, as is NaN.
"""

import math
import re
from decimal import ROUND_HALF_EVEN, Decimal
from typing import TYPE_CHECKING

from fedscope.statistics.resolution import UNRESOLVED

if TYPE_CHECKING:  # numbers are written without any record
    from fedscope.records.estimates import Entry

ABSENT = "–"
DIGITS = 4  # significant digits of a value whose error is not known
EXACT_DIGITS = 7  # of a value whose error is zero, or too small to show beside it
PLAIN = range(-3, 5)  # decimal exponents that are written out

SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_PLAIN_AGAIN = str.maketrans("−⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "--0123456789")
_LEADING = re.compile(r"\(?([-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?)")
_POWER = re.compile(r"×10(-?\d+)")


def format_estimate(value: float | None, *stderrs: float | None, within: float = 0.0) -> str:
    """Return "12.34 ± 0.56", or "(1.234 ± 0.056)×10⁹" for magnitudes beyond 10⁻³ … 10⁵.

    Several errors follow each other: "12.34 ± 0.56 ± 0.078"; those at the end that are 0, of an exact number,
    are left out. A value of ``None`` or NaN reads "not finite", an error "–"; infinities read "inf", "-inf".
    A text to read: its minus is no hyphen. ``within`` is how far the value may be off beside its errors: not
    shown, but the value's digits end there. NaN: not known.
    """
    known = [error for error in stderrs if error is not None and math.isfinite(error)]
    exponent = _exponent([abs(value), *known] if value is not None and math.isfinite(value) else known)
    shift = 0 if exponent in PLAIN else exponent
    off = [*known, within] if known and math.isfinite(within) else known
    parts = [_value(value, max(off, default=None), shift)]
    shown = list(stderrs)
    while shown and shown[-1] == 0:
        shown.pop()
    parts += [_error(error, shift) for error in shown]
    text = " ± ".join(parts)
    if not shift:
        return text
    power = "×10" + str(shift).translate(SUPERSCRIPTS)
    return f"({text}){power}" if len(parts) > 1 else text + power


def format_entry(entry: "Entry | None") -> str:
    """Return a number with its errors; "unresolved" where it says nothing, "–" where there is none."""
    if entry is None:
        return ABSENT
    stderrs = (stderr for stderr, _ in entry.stated_errors)
    return format_estimate(entry.value, *stderrs, within=entry.within) if entry.is_resolved else UNRESOLVED


def three_digits(value: float) -> str:
    """Return a number in three significant digits, zeros at its end too: "15.0" beside "16.1"."""
    digits = f"{value:#.3g}".rstrip(".")
    return digits.replace("-", "−") if "e" not in digits else format_estimate(float(f"{value:.3g}"))


def leading_number(text: str) -> float | None:
    """Return the value that a text begins with, as :func:`format_estimate` writes it; None: there is none."""
    plain = text.translate(_PLAIN_AGAIN)
    found, power = _LEADING.match(plain), _POWER.search(plain)
    if not found:
        return None
    return float(found[1].replace(",", "") + (f"e{power[1]}" if power else ""))


def _exponent(magnitudes: list[float]) -> int:
    largest = max(magnitudes, default=0.0)
    return Decimal(repr(largest)).adjusted() if largest else 0


def _value(value: float | None, error: float | None, shift: int) -> str:
    if value is None or math.isnan(value):
        return "not finite"
    if not math.isfinite(value):
        return str(value)
    number = _shifted(value, shift)
    if error is None:
        return _significant(number, DIGITS)
    last = _last_place(_shifted(error, shift), 2) if error else None
    if last is None or last < _last_place(number, EXACT_DIGITS):
        return _significant(number, EXACT_DIGITS)
    return _plain(_round(number, last))


def _error(error: float | None, shift: int) -> str:
    if error is None or math.isnan(error):
        return "–"
    if not math.isfinite(error):
        return str(error)
    return _significant(_shifted(error, shift), 2) if error else "0"


def _shifted(number: float, shift: int) -> Decimal:
    # repr is the shortest text that gives the same float: rounding then is exact
    return Decimal(repr(number)).scaleb(-shift)


def _significant(number: Decimal, digits: int) -> str:
    if not number:
        return "0"
    exponent = number.adjusted()
    if exponent < -EXACT_DIGITS:
        power = str(exponent).translate(SUPERSCRIPTS)
        return f"{_significant(number.scaleb(-exponent), digits)}×10{power}"
    return _plain(_round(number, _last_place(number, digits)))


def _last_place(number: Decimal, digits: int) -> int:
    rounded = _round(number, number.adjusted() - digits + 1)
    return rounded.adjusted() - digits + 1


def _round(number: Decimal, place: int) -> Decimal:
    return number.quantize(Decimal(1).scaleb(place), rounding=ROUND_HALF_EVEN)


def _plain(number: Decimal) -> str:
    return f"{number if number else abs(number):f}".replace("-", "−")
