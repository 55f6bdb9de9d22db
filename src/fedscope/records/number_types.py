"""The numbers of records: null in JSON is NaN in Python, and the other way round.

JSON has neither NaN nor infinity. A record writes null for a value that was not finite and for an error that
could not be formed; readers see NaN in both cases.
"""

import math
from typing import Annotated, Any, TypeVar

from pydantic import BeforeValidator, Field, ValidatorFunctionWrapHandler, WrapValidator

Item = TypeVar("Item")


def _nan_of_null(value: Any, check: ValidatorFunctionWrapHandler) -> Any:
    return math.nan if value is None else check(value)


def _infinity_of_null(value: Any, check: ValidatorFunctionWrapHandler) -> Any:
    return check(value) if value else math.inf


def _empty_of_null(value: Any) -> Any:
    return () if value is None else value


def _grid(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return tuple(_grid(part) for part in value)
    return math.nan if value is None else value


Finite = Annotated[float, Field(allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0)]

Number = Annotated[float, Field(allow_inf_nan=False), WrapValidator(_nan_of_null)]
"""A number; NaN is null in JSON."""

Freedom = Annotated[float, Field(allow_inf_nan=False), WrapValidator(_infinity_of_null)]
"""Degrees of freedom; infinity is null in JSON."""

Many = Annotated[tuple[Item, ...], Field(strict=False)]
"""A list of JSON."""

Several = Annotated[tuple[Item, ...], Field(strict=False), BeforeValidator(_empty_of_null)]
"""A list of JSON that is empty where JSON has null."""

Interval = Annotated[tuple[Number, ...], Field(strict=False, min_length=2, max_length=2)]
"""The lower and the upper end."""

Grid = Annotated[tuple[Any, ...], BeforeValidator(_grid)]
"""Numbers on a line (m,) or a plane (m₀, m₁), nested as in JSON; the model that has axes checks the shape."""


def fits(grid: Any, shape: tuple[int, ...]) -> bool:
    """Say whether a grid has this shape and holds numbers alone."""
    if not isinstance(grid, tuple) or len(grid) != shape[0]:
        return False
    if len(shape) > 1:
        return all(fits(part, shape[1:]) for part in grid)
    return all(isinstance(value, int | float) for value in grid)


def ends_or_null(interval: tuple[float, float]) -> list[float] | None:
    """Return an interval as JSON has it: null where an end is not finite."""
    return list(interval) if all(map(math.isfinite, interval)) else None


def or_null(value: float) -> float | None:
    """Return the number as JSON has it: null where it is not finite."""
    return value if math.isfinite(value) else None
