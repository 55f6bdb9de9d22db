"""The table of the clients of each checkpoint: what was measured of each one."""

from collections.abc import Iterator, Sequence

from fedscope.figures.numbers import format_estimate
from fedscope.report.cells import Cell, SortableTable
from fedscope.report.subjects import Record, Subject

Shown = Sequence[tuple[Subject, Record]]


def clients_table(shown: Shown) -> SortableTable | None:
    """Tabulate each client's trace, λ_max and overlap with the global model, where the records have them."""
    columns = ("trace ± probe", "λ_max ± data", "overlap")
    found = [(subject, row) for subject, record in shown for row in _rows(record.get("cross_client"))]
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


def _rows(cross: Record | None) -> Iterator[dict[str, Cell]]:
    if not cross:
        return
    count = cross["clients"]
    numbers = cross.get("numbers") or range(count)
    for i in range(count):
        row = {"client": Cell(str(numbers[i]), numbers[i])}
        if rounds := cross.get("rounds"):
            row["round"] = Cell(str(rounds[i]), rounds[i])
        if traces := cross.get("traces"):
            row["trace ± probe"] = _cell(traces[i], "stderr")
        if tops := cross.get("lambda_max"):
            row["λ_max ± data"] = _cell(tops[i], "stderr_data")
        if overlaps := cross.get("overlap"):
            row["overlap"] = Cell(format_estimate(overlaps[i]), overlaps[i])
        yield row


def _cell(entry: Record, error: str) -> Cell:
    return Cell(format_estimate(entry["value"], entry.get(error)), entry["value"])
