"""Saved records that somebody hands in, read before anything is shown of them."""

from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError

from fedscope.errors import UserError
from fedscope.records.hessian import HessianRecord
from fedscope.records.landscape import LandscapeRecord
from fedscope.validation import refusal

Analysis = HessianRecord | LandscapeRecord

_ANALYSIS: TypeAdapter[Analysis] = TypeAdapter(Annotated[Analysis, Field(discriminator="schema_name")])


def read(content: Any, what: str) -> list[Analysis]:
    """Return the record, or the records, in ``content``.

    Raises:
        UserError: something in it is no record of schema fedscope/hessian/1 or fedscope/landscape/1;
            ``what`` names its origin.
    """
    found = []
    for record in content if isinstance(content, list) else [content]:
        try:
            found.append(_ANALYSIS.validate_python(record))
        except ValidationError as error:
            raise UserError(
                f"{what} is no record of 'fedscope hessian --json' or 'plot-landscape --json': "
                + refusal(error, _ANALYSIS.json_schema())
            ) from error
    return found
