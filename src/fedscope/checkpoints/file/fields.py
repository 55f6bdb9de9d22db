"""What the descriptions of a run share: their base, the types of their fields, and how they are validated."""

import operator
import re
from datetime import datetime
from functools import partial
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from fedscope.errors import UserError
from fedscope.validation import refusal

OPTION = "option"  # where the fields are what the user typed
UNKNOWN = "unknown"  # the method and the partition of a run that was added without
# no path, no device of any system
NAME = re.compile(r"(?!(?i:con|prn|aux|nul|com[0-9]|lpt[0-9])(\.|$))[A-Za-z0-9][A-Za-z0-9._+-]{0,99}")
_MOMENT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?\+00:00")

Positive = Annotated[int, Field(ge=1)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Finite = Annotated[float, Field(allow_inf_nan=False)]


def _plain_name(name: str) -> str:
    if not NAME.fullmatch(name):
        raise ValueError(f"{name[:100]!r} is no run name")
    return name


Name = Annotated[str, AfterValidator(_plain_name)]


def _moment(text: str) -> str:
    if not _MOMENT.fullmatch(text):
        raise ValueError(f"{text[:100]!r} is no time such as 2026-01-31T12:00:00+00:00")
    datetime.fromisoformat(text)
    return text


Moment = Annotated[str, AfterValidator(_moment)]  # ISO 8601, UTC: such texts sort as their times do


def checked_name(name: str, kind: str = "run name") -> str:
    if not NAME.fullmatch(name):
        raise UserError(
            f"{name!r} is no {kind}; use up to 100 letters, digits and . _ + - after a letter or digit"
        )
    return name


def later(default: Any) -> Any:
    """Declare a field that is written only where it is not its default, so that hashes of others stay."""
    return Field(default, exclude_if=partial(operator.eq, default))


class StrictModel(BaseModel):
    """Base of all records: immutable, and an unknown field is an error rather than ignored."""

    model_config = ConfigDict(frozen=True, extra="forbid")


R = TypeVar("R", bound=BaseModel)


def parse(kind: type[R], data: object, what: str) -> R:
    """Validate ``data`` as a record; ``what`` names its origin in the error, ``OPTION`` the command line."""
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        if what == OPTION:
            raise UserError(refusal(error, kind.model_json_schema(), flags=True)) from error
        raise UserError(f"{what}: {refusal(error, kind.model_json_schema())}") from error
