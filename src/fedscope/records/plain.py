"""A record's typed, frozen view of its JSON, which it gives back as it was read."""

from collections.abc import Mapping
from typing import Any, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    ModelWrapValidatorHandler,
    PrivateAttr,
    ValidationError,
    model_validator,
)

from fedscope.errors import UserError
from fedscope.validation import refusal


class Plain(BaseModel):
    """An object of a record: its fields as attributes, and the JSON that it is of.

    Keys that no field names are kept. A field with a default may be absent, as in records of older versions;
    the default is what its absence meant.
    """

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)

    _json: Mapping[str, Any] = PrivateAttr(default_factory=dict)

    @model_validator(mode="wrap")
    @classmethod
    def _keep_json(cls, content: Any, check: ModelWrapValidatorHandler[Self]) -> Self:
        found = check(content)
        if isinstance(content, Mapping):
            found._json = content
        return found

    @classmethod
    def read(cls, content: Any, what: str = "the record") -> Self:
        """Return the model of JSON content.

        Raises:
            UserError: a field is missing or is not what it should be; the message names it and ``what``.
        """
        try:
            return cls.model_validate(content)
        except ValidationError as error:
            raise UserError(f"{what} is not whole: {refusal(error, cls.model_json_schema())}") from error

    def to_json(self) -> dict[str, Any]:
        """Return the JSON: the same keys in the same order, and null for NaN."""
        return dict(self._json)

    def edited(self, **changes: Any) -> Self:
        """Return the record with other JSON under some of its keys."""
        return type(self).model_validate({**self._json, **changes})
