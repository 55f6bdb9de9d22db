"""The numbers of clients by round: means over the clients, as curves to draw and as a table."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, get_args

from fedscope.figures.digits import format_entry
from fedscope.figures.text.client_tables import GAP_NAMES, MEANS
from fedscope.figures.text.hessian_table import Table
from fedscope.records.client_means import Side, Term, aligned, cost, gap
from fedscope.records.clients_record import QUANTITIES, SYMBOLS, Amount, ClientsRecord
from fedscope.records.estimates import SYMBOLS as OF_DIAGONALS
from fedscope.records.estimates import EstimateEntry, Symbol

RoundsKind = Literal["gap", "alignment", "drift", "diagonals"]
ROUNDS_KINDS: tuple[RoundsKind, ...] = get_args(RoundsKind)
SHOWN_GAPS = ("discrepancy", "averaging_global", "function_at_own")  # the first is the sum of the others
TERMS: Mapping[Term, str] = {
    "measured": "measured", "first": "first order", "second": "second order", "remainder": "remainder",
}  # fmt: skip
SIDES: Mapping[Side, str] = {"own": "own Hessian", "overall": "global Hessian"}
FUNCTIONS: Mapping[Side, str] = {"overall": "F", "own": "own f_k"}
NUMBERS: Mapping[Literal["rayleigh", "share"], str] = {
    "rayleigh": "curvature along Δ",
    "share": "share in top space",
}
Number = Amount | EstimateEntry


@dataclass(frozen=True)
class Curve:
    """One number of each round: the panel and the line that it is drawn in."""

    panel: str
    line: str
    of: Callable[[ClientsRecord], Number | None]
    main: bool = False  # in the table; and drawn where several runs are compared, in a panel of its own

    @property
    def name(self) -> str:
        return f"{self.panel}: {self.line}" if self.line else self.panel


def by_run(records: Sequence[ClientsRecord]) -> dict[str, list[ClientsRecord]]:
    found: dict[str, list[ClientsRecord]] = {}
    for record in sorted(records, key=lambda one: one.checkpoint.round or 0):
        found.setdefault(str(record.checkpoint.run), []).append(record)
    return found


def measured(records: Sequence[ClientsRecord], kind: RoundsKind) -> list[Curve]:
    return [curve for curve in CURVES[kind]() if any(curve.of(record) for record in records)]


def rounds_tables(records: Sequence[ClientsRecord]) -> Iterator[Table]:
    shown = [curve for kind in ROUNDS_KINDS for curve in measured(records, kind) if curve.main]
    for run, own in by_run(records).items():
        rows = [(str(one.checkpoint.round), *(format_entry(curve.of(one)) for curve in shown)) for one in own]
        columns = ("round", *(curve.name for curve in shown))
        yield Table(f"{run}: clients by round", columns, tuple(rows), (MEANS,))


def _gaps() -> Iterator[Curve]:
    for quantity in QUANTITIES:
        for name in SHOWN_GAPS:
            yield Curve(
                f"{SYMBOLS[quantity]} gap",
                GAP_NAMES[name],
                partial(gap, quantity=quantity, name=name),
                name == "discrepancy",
            )


def _alignment() -> Iterator[Curve]:
    for number, panel in NUMBERS.items():
        for side, name in SIDES.items():
            yield Curve(panel, name, partial(aligned, side=side, number=number), main=True)


def _drift() -> Iterator[Curve]:
    for side, function in FUNCTIONS.items():
        for term, said in TERMS.items():
            if (side, term) != ("overall", "first"):  # it is zero
                yield Curve(
                    f"cost of {function}", said, partial(cost, side=side, term=term), term == "measured"
                )


def _diagonals() -> Iterator[Curve]:
    for symbol in OF_DIAGONALS:
        yield Curve(symbol, "", partial(_mean, symbol), main=True)


def _mean(symbol: Symbol, record: ClientsRecord) -> EstimateEntry | None:
    return record.cross_client.mean(symbol, "parameter") if record.cross_client else None


CURVES: Mapping[RoundsKind, Callable[[], Iterator[Curve]]] = {
    "gap": _gaps,
    "alignment": _alignment,
    "drift": _drift,
    "diagonals": _diagonals,
}
