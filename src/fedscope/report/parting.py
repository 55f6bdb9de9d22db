"""The clients of rounds on the page: the tables that `fedscope clients` prints, and its pictures."""

from collections.abc import Mapping, Sequence
from typing import Any

from fedscope.figures import style
from fedscope.figures.clients.matrices import matrices_of
from fedscope.figures.clients.round_figures import MOST_CLIENTS, draw
from fedscope.figures.figure_kinds import ClientsKind
from fedscope.figures.text.client_tables import clients_tables
from fedscope.figures.text.hessian_table import Table
from fedscope.figures.text.labels import label
from fedscope.records.clients_record import ClientsRecord
from fedscope.report import html_page
from fedscope.report.sortable_table import SortableTable, told

ALTS: Mapping[ClientsKind, str] = {
    "gap": "Loss, λ_max and trace of each client, at its own weights and at the global ones.",
    "alignment": "Curvature along each client's update, and the update's share in the top eigenspace.",
    "drift": "The cost of averaging by orders, client by client.",
    "matrix": "A matrix of the pairs of clients, in the order of a clustering.",
}


def round_parts(records: Sequence[ClientsRecord]) -> list[dict[str, Any]]:
    return [
        {
            "title": label(record.checkpoint),
            "tables": [
                _sortable(table, f"round-{place}-{index}")
                for index, table in enumerate(clients_tables(record))
            ],
            "pictures": [
                {"src": html_page.picture(draw([record], kind, width=style.DOUBLE_COLUMN)), "alt": ALTS[kind]}
                for kind in _kinds(record)
            ],
        }
        for place, record in enumerate(records)
    ]


def _kinds(record: ClientsRecord) -> list[ClientsKind]:
    if len(record.clients) > MOST_CLIENTS:
        return []
    there: Mapping[ClientsKind, object] = {
        "gap": record.flatness,
        "alignment": record.alignment,
        "drift": record.averaging,
        "matrix": matrices_of(record),
    }
    return [kind for kind, part in there.items() if part]


def _sortable(table: Table, name: str) -> SortableTable:
    rows = tuple(tuple(map(told, row)) for row in table.rows)
    return SortableTable(name, table.title, table.columns, rows, table.notes)
