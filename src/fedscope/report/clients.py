"""The table of the clients of each checkpoint: what was measured of each one."""

from collections.abc import Iterator

from fedscope.records.cross_client import CrossClient
from fedscope.report.cells import Cell, SortableTable, measured
from fedscope.report.subjects import Shown


def clients_table(shown: Shown) -> SortableTable | None:
    """Tabulate each client's trace, λ_max and overlap with the global model, where the records have them."""
    columns = ("trace ± probe", "λ_max ± data", "overlap")
    found = [
        (subject, row)
        for subject, record in shown
        if record.cross_client
        for row in _rows(record.cross_client)
    ]
    used = [name for name in columns if any(name in row for _, row in found)]
    if not used:
        return None
    rows = tuple(
        (
            Cell(subject.name, subject.name, subject.color),
            *(row.get(name, Cell("–")) for name in ("client", "round", *used)),
        )
        for subject, row in found
    )
    return SortableTable("clients-table", "Client by client", ("method", "client", "round", *used), rows)


def _rows(cross: CrossClient) -> Iterator[dict[str, Cell]]:
    for place, number in enumerate(cross.client_numbers):
        row = {"client": Cell(str(number), number)}
        if cross.rounds:
            row["round"] = Cell(str(cross.rounds[place]), cross.rounds[place])
        if cross.traces:
            row["trace ± probe"] = measured(cross.traces[place].value, cross.traces[place].stderr)
        if cross.lambda_max:
            row["λ_max ± data"] = measured(cross.lambda_max[place].value, cross.lambda_max[place].stderr_data)
        if cross.overlap:
            row["overlap"] = measured(cross.overlap[place])
        yield row
