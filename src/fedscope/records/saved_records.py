"""Readers of saved records, which are checked whole, and which of several that answer one question counts."""

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypeVar

from pydantic import Field, TypeAdapter, ValidationError

from fedscope.errors import UserError
from fedscope.records.clients_record import CLIENTS_SCHEMA, ClientsRecord
from fedscope.records.hessian_record import HESSIAN_SCHEMA, HessianRecord
from fedscope.records.landscape_record import LANDSCAPE_SCHEMA, LandscapeRecord, ObjectiveRecord
from fedscope.records.outcomes import OUTCOMES_SCHEMA, OutcomesRecord
from fedscope.records.sharpness_record import SHARPNESS_SCHEMA, SharpnessRecord
from fedscope.validation import Plain, refusal

Analysis = HessianRecord | LandscapeRecord
Reported = Analysis | ClientsRecord
Kept = Analysis | ObjectiveRecord | OutcomesRecord | SharpnessRecord | ClientsRecord

Record = TypeVar("Record", bound=Plain)

_ANALYSIS: TypeAdapter[Analysis] = TypeAdapter(Annotated[Analysis, Field(discriminator="schema_name")])
_REPORTED: TypeAdapter[Reported] = TypeAdapter(Annotated[Reported, Field(discriminator="schema_name")])
_OTHERS: Mapping[str, type[OutcomesRecord | SharpnessRecord | ClientsRecord]] = {
    OUTCOMES_SCHEMA: OutcomesRecord,
    SHARPNESS_SCHEMA: SharpnessRecord,
    CLIENTS_SCHEMA: ClientsRecord,
}
Rank = tuple[float, ...]


def read(content: Any, what: str) -> list[Reported]:
    """Return the record, or the records, in ``content``."""
    found = []
    for record in content if isinstance(content, list) else [content]:
        try:
            found.append(_REPORTED.validate_python(record))
        except ValidationError as error:
            raise UserError(
                f"{what} is no record of 'fedscope hessian --json', 'plot-landscape --json' or "
                f"'clients --json': {refusal(error, _REPORTED.json_schema())}"
            ) from error
    if not found:
        raise UserError(f"{what} holds no record of fedscope; give what --json wrote")
    return found


def stored_record(content: Mapping[str, Any]) -> Kept | None:
    """Return the record that ``content`` is; None where it is none, or not whole."""
    try:
        if kind := _OTHERS.get(str(content.get("schema"))):
            return kind.read(content)
        return _ANALYSIS.validate_python(content) if "schema" in content else ObjectiveRecord.read(content)
    except (ValidationError, UserError):
        return None


def hessians(contents: Sequence[Mapping[str, Any]]) -> list[HessianRecord]:
    """Return records of ``fedscope hessian --json``.

    Raises:
        UserError: one has another schema, or is not whole.
    """
    return read_as(HessianRecord, HESSIAN_SCHEMA, "hessian", contents)


def landscapes(contents: Sequence[Mapping[str, Any]]) -> list[LandscapeRecord]:
    """Return records of ``fedscope plot-landscape --json``."""
    return read_as(LandscapeRecord, LANDSCAPE_SCHEMA, "plot-landscape", contents)


def read_as(
    model: type[Record], schema: str, command: str, contents: Sequence[Mapping[str, Any]]
) -> list[Record]:
    """Return the records of one command's ``--json``."""
    for found in (content.get("schema") for content in contents):
        if found != schema:
            raise UserError(
                f"a record has the schema {found!r}, not {schema!r}: "
                f"make it with 'fedscope {command} --json FILE'"
            )
    return [model.read(content, f"a record of 'fedscope {command} --json'") for content in contents]


def precision(record: HessianRecord) -> Rank:
    """Return a rank that is the highest for the most precise of several results on the same samples.

    That is the one with the narrowest 95 % interval of the trace; where none is known, with the most probes.
    """
    trace, residual = record.trace, record.lambda_max.residual
    low, high = (trace and trace.interval) or (-math.inf, math.inf)
    widths = (high - low, -trace.probes if trace else 0, residual)
    return tuple(-math.inf if math.isnan(width) else -width for width in widths)


def rank(record: HessianRecord | ClientsRecord, samples: int | None = None) -> Rank:
    """Return :func:`precision`, before which come results on ``samples`` samples, and then those on more."""
    own = record.problem.samples
    how = precision(record) if isinstance(record, HessianRecord) else (record.probes, -record.tol)
    return (own == samples, own, *how)


def most_precise(records: Sequence[HessianRecord]) -> HessianRecord:
    """Return one record for several of one checkpoint on as many samples: the most precise.

    Layers and an adaptive server's λ_max, which not every request asks for, are those of the most precise
    record that has them.
    """
    *others, best = sorted(records, key=precision)
    for one in reversed(others):
        lacking = {
            name: part
            for name in ("layers", "preconditioned")
            if not getattr(best, name) and (part := one.to_json().get(name))
        }
        best = best.edited(**lacking) if lacking else best
    return best
