"""The quantities of a round's clients, and of sharpness: name, title, measure, entry in its record."""

import math
from collections.abc import Callable, Iterator

from fedscope.figures.text.sharpness import GAPS, SYMBOLS
from fedscope.records.clients import Amount, ClientsRecord, Quantity
from fedscope.records.estimates import Entry, Estimate
from fedscope.records.numbers import or_null
from fedscope.records.sharpness import SharpnessRecord

Row = tuple[str, str, str, Callable[..., Entry | None]]
ONE_ROUND, SHARPNESS = "one_round", "sharpness"  # the measures' names


def _gap(quantity: Quantity) -> Callable[[ClientsRecord], Amount | None]:
    def entry(record: ClientsRecord) -> Amount | None:
        found = record.of(quantity)
        return found.gap("discrepancy").mean if found else None

    return entry


def _cost(term: str) -> Callable[[ClientsRecord], Amount | None]:
    def entry(record: ClientsRecord) -> Amount | None:
        return getattr(record.averaging.overall.mean, term) if record.averaging else None

    return entry


def _drift(record: ClientsRecord) -> Estimate | None:
    """Return Σ p_k ‖w_k − w̄‖², which has no error."""
    found = record.alignment
    if found is None or found.anchor != "global":
        return None
    lengths = [one.length for one in found.clients]
    shares = [one.share for one in record.clients]
    total = math.fsum(share * length**2 for share, length in zip(shares, lengths, strict=True))
    return Estimate(value=total, stderr=0.0)


def _along(record: ClientsRecord) -> Amount | None:
    return record.alignment.overall.rayleigh if record.alignment else None


def _barrier(*, matched: bool) -> Callable[[ClientsRecord], Estimate | None]:
    def entry(record: ClientsRecord) -> Estimate | None:
        found = record.barriers and (record.barriers.matched if matched else record.barriers.plain)
        return found.mean if found else None

    return entry


def _sharpness(name: str) -> Callable[[SharpnessRecord], Entry | None]:
    return lambda record: record.quantity(name)


def _generalisation(record: SharpnessRecord) -> Estimate | None:
    if record.gap is None:
        return None
    return Estimate.read({"value": or_null(record.gap.loss), "stderr": or_null(record.gap.stderr)})


def _rows() -> Iterator[Row]:
    yield "drift", "drift", ONE_ROUND, _drift
    yield "gap_loss", "gap of the loss", ONE_ROUND, _gap("loss")
    yield "gap_lambda_max", "gap of λ_max", ONE_ROUND, _gap("lambda_max")
    yield "gap_trace", "gap of the trace", ONE_ROUND, _gap("trace")
    yield "along_updates", "curvature along updates", ONE_ROUND, _along
    yield "averaging", "cost of averaging", ONE_ROUND, _cost("measured")
    yield "averaging_second", "its second order", ONE_ROUND, _cost("second")
    yield "averaging_remainder", "its remainder", ONE_ROUND, _cost("remainder")
    yield "barrier", "barrier of two clients", ONE_ROUND, _barrier(matched=False)
    yield "barrier_matched", "barrier, matched", ONE_ROUND, _barrier(matched=True)
    yield "generalisation_gap", GAPS["gap"], SHARPNESS, _generalisation
    for name, symbol in SYMBOLS.items():
        yield f"sharpness_{name}", symbol, SHARPNESS, _sharpness(name)


QUANTITIES: tuple[Row, ...] = tuple(_rows())
