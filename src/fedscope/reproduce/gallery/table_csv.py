"""An artefact as CSV: its cells with full digits, or the points of what its figure draws."""

import csv
import io
from collections.abc import Iterator, Sequence

from fedscope.records.artefact import ArtefactRecord
from fedscope.records.hessian_record import HessianRecord
from fedscope.reproduce.gallery.cell_texts import NOT_RUN, grid
from fedscope.reproduce.gallery.drawing import surfaces

CSV_COLUMNS = (
    "row", "column", "quantity", "value", "std", "standard_error", "seeds", "rounds", "text",
    "paper", "paper_std", "paper_inferred", "paper_note", "differs",
)  # fmt: skip


def table_csv(record: ArtefactRecord) -> str:
    """Return the cells, one a line, with full digits; of an artefact without cells its table."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    if record.grid:
        _, header, rows = grid(record)
        writer.writerow(header)
        writer.writerows(rows)
        return out.getvalue()
    if not record.entries:
        writer.writerows(_points(record))
        return out.getvalue()
    writer.writerow(CSV_COLUMNS)
    for e in record.entries:
        paper = e.paper
        theirs = (paper.value, paper.std, paper.inferred, paper.note) if paper else (None,) * 4
        text = e.text or (NOT_RUN if e.value is None else None)
        writer.writerow([
            e.row, e.column, e.quantity, e.value, e.std, e.error, e.seeds, e.round,
            text, *theirs, e.differs,
        ])  # fmt: skip
    return out.getvalue()


def _points(record: ArtefactRecord) -> Iterator[Sequence[object]]:
    yield "row", "seed", *_AXES[record.kind]
    for one in record.drawn:
        at, found = (one.row, one.seed), one.record
        if record.kind == "curves":
            yield from ((*at, round, value) for round, value in enumerate(one.accuracy, 1))
        elif isinstance(found, HessianRecord) and record.kind == "spectrum":
            yield from ((*at, rank, entry.value) for rank, entry in enumerate(found.eigenvalues, 1))
        elif isinstance(found, HessianRecord) and found.density:
            pairs = zip(found.density.grid, found.density.density, strict=True)
            yield from ((*at, *pair) for pair in pairs)
        else:
            for part in surfaces(found):
                first, second = (axis.values for axis in part.axes)
                for x, row in zip(first, part.loss, strict=True):
                    yield from ((*at, part.part, x, y, z) for y, z in zip(second, row, strict=True))


_AXES = {
    "curves": ("round", "accuracy"),
    "spectrum": ("rank", "eigenvalue"),
    "density": ("eigenvalue", "density"),
    "landscape": ("part", "first", "second", "loss"),
}
