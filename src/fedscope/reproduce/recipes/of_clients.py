"""The quantities of a round's clients, and of sharpness: name, title, measure, entry in its record."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial

from fedscope.figures.text.sharpness_tables import GAPS, SYMBOLS
from fedscope.records.client_means import aligned, cost, drift, gap
from fedscope.records.clients_record import ClientsRecord, Quantity
from fedscope.records.estimates import Entry, EstimateEntry
from fedscope.records.number_types import or_null
from fedscope.records.sharpness_record import SharpnessEntry, SharpnessRecord

Row = tuple[str, str, str, Callable[..., Entry | None]]
ONE_ROUND, SHARPNESS = "one_round", "sharpness"  # the measures' names
GAP_TITLES: Mapping[Quantity, str] = {"loss": "the loss", "lambda_max": "λ_max", "trace": "the trace"}


def _barrier(record: ClientsRecord, *, matched: bool) -> EstimateEntry | None:
    found = record.barriers and (record.barriers.matched if matched else record.barriers.plain)
    return found.mean if found else None


def _sharpness(record: SharpnessRecord, *, name: str) -> SharpnessEntry | None:
    return record.quantity(name)


def _generalisation(record: SharpnessRecord) -> EstimateEntry | None:
    if record.gap is None:
        return None
    found = record.gap
    numbers = {"value": found.loss, "stderr": found.stderr, "dof": found.dof}
    known = {name: or_null(number) for name, number in numbers.items()}
    return EstimateEntry.read({**known, "resolved": True})


def _rows() -> Iterator[Row]:
    yield "drift", "drift", ONE_ROUND, drift
    for quantity, said in GAP_TITLES.items():
        of = partial(gap, quantity=quantity, name="discrepancy")
        yield f"gap_{quantity}", f"gap of {said}", ONE_ROUND, of
    along = partial(aligned, side="overall", number="rayleigh")
    yield "along_updates", "curvature along updates", ONE_ROUND, along
    yield "averaging", "cost of averaging", ONE_ROUND, partial(cost, side="overall", term="measured")
    yield "averaging_second", "its second order", ONE_ROUND, partial(cost, side="overall", term="second")
    yield "averaging_remainder", "its remainder", ONE_ROUND, partial(cost, side="overall", term="remainder")
    yield "barrier", "barrier of two clients", ONE_ROUND, partial(_barrier, matched=False)
    yield "barrier_matched", "barrier, matched", ONE_ROUND, partial(_barrier, matched=True)
    yield "generalisation_gap", GAPS["gap"], SHARPNESS, _generalisation
    for name, symbol in SYMBOLS.items():
        yield f"sharpness_{name}", symbol, SHARPNESS, partial(_sharpness, name=name)


QUANTITIES: tuple[Row, ...] = tuple(_rows())
