"""The numbers of clients by round: means over the clients, as a table."""

from collections.abc import Iterator, Sequence

from fedscope.figures.digits import format_entry
from fedscope.figures.text.client_tables import MEANS
from fedscope.figures.text.hessian_table import Table
from fedscope.records.client_quantities import CLIENT_QUANTITIES, ROUNDS_KINDS, ClientQuantity, RoundsKind
from fedscope.records.clients_record import ClientsRecord


def by_run(records: Sequence[ClientsRecord]) -> dict[str, list[ClientsRecord]]:
    found: dict[str, list[ClientsRecord]] = {}
    for record in sorted(records, key=lambda one: one.checkpoint.round or 0):
        found.setdefault(str(record.checkpoint.run), []).append(record)
    return found


def measured(records: Sequence[ClientsRecord], kind: RoundsKind) -> list[ClientQuantity]:
    return [one for one in CLIENT_QUANTITIES if one.kind == kind and any(map(one.of, records))]


def rounds_tables(records: Sequence[ClientsRecord]) -> Iterator[Table]:
    shown = [one for kind in ROUNDS_KINDS for one in measured(records, kind) if one.main]
    for run, own in by_run(records).items():
        rows = [(str(at.checkpoint.round), *(format_entry(one.of(at)) for one in shown)) for at in own]
        yield Table(
            f"{run}: clients by round", ("round", *(one.name for one in shown)), tuple(rows), (MEANS,)
        )
