"""An artefact's cells, legend and conditions as texts, and its CSV."""

import csv
import io
from collections.abc import Iterator, Sequence

from fedscope.figures.digits import format_estimate
from fedscope.figures.text.comparison_table import UNDECIDED
from fedscope.records.artefact import ArtefactCell, ArtefactRecord, PaperValue
from fedscope.records.hessian_record import HessianRecord
from fedscope.reproduce.artefacts.departures import of_some
from fedscope.reproduce.artefacts.record_of_cells import NOT_MEASURED
from fedscope.reproduce.gallery.drawing import surfaces

NOT_RUN = "not run"
CSV_COLUMNS = (
    "row", "column", "quantity", "value", "std", "standard_error", "seeds", "rounds", "text",
    "paper", "paper_std", "paper_inferred", "paper_note", "differs",
)  # fmt: skip


def cell_text(entry: ArtefactCell) -> str:
    """Return a cell: our value ± deviation or error, the paper's in brackets, a star if they differ."""
    if entry.value is not None:
        shown = entry.spread
        ours = format_estimate(entry.value, *([shown] if shown is not None else []))
        if not shown and (shown == 0 or entry.value.is_integer()):
            ours = f"{entry.value:.4g}"
    else:
        ours = entry.text or NOT_RUN
    star = "*" if entry.differs else ""
    paper = paper_text(entry.paper)
    return f"{ours}{star} [{paper}]" if paper else f"{ours}{star}"


def paper_text(paper: PaperValue | None) -> str:
    """Return the paper's value: value ± deviation, ≈ before an inferred one, "lost" for a lost one."""
    if paper is None:
        return ""
    if not paper.value:
        return "lost"
    text = f"{paper.value} ± {paper.std}" if paper.std else paper.value
    return f"≈ {text}" if paper.inferred else text


def grid(record: ArtefactRecord) -> tuple[list[str], list[str], list[list[str]]]:
    """Return each column's group ("" for none), its heading, and the rows, whose first cell is their name."""
    if own := record.grid:
        return [""] * len(own.header), list(own.header), [list(row) for row in own.rows]
    cells = {(e.row, e.column, e.quantity): e for e in record.entries}
    places = list(dict.fromkeys((e.column, e.quantity) for e in record.entries))
    groups = ["", *(column for column, _ in places)]
    header = ["method", *(record.quantities[quantity] for _, quantity in places)]
    if len(set(header[1:])) == 1 and len(places) > 1:  # one quantity: the columns' names say all
        header = ["method", *(column for column, _ in places)]
        groups = [""] * len(header)
    rows = []
    for row in record.rows:
        found = [cells.get((row, column, quantity)) for column, quantity in places]
        if not any(found):
            continue  # of no column at this scale
        rows.append([row, *("" if entry is None else cell_text(entry) for entry in found)])
    return groups, header, rows


def legend(record: ArtefactRecord) -> list[str]:
    entries, found = record.entries, []
    papers = [entry.paper for entry in entries if entry.paper]
    several = [entry for entry in entries if entry.seeds > 1]
    alone = any(entry.seeds == 1 and entry.error for entry in entries)
    if several:
        found.append(f"± standard deviation over seeds{f' ({_places(several)})' if alone else ''}")
    if alone:
        found.append(
            "± standard error of the measurement, of one seed: the variation between trainings is not in it"
        )
    if papers:
        found.append("[ ]: the paper's value")
    if any(paper.inferred for paper in papers):
        reasons = dict.fromkeys(paper.note for paper in papers if paper.inferred and paper.note)
        found.append("≈: not printed there; " + "; ".join(reasons))
    if any(not paper.value for paper in papers):
        found.append("lost: the paper's value is lost in the text it survives in")
    if any(entry.differs for entry in entries):
        found.append(
            "*: differs from the paper's by more than twice our standard error and its deviation combined, "
            "and by more than half a unit of its last digit"
        )
    shown = () if record.scale == "smoke" else entries
    with_error = [entry.error is not None for entry in shown if _not_compared(entry)]
    if any(with_error):
        found.append(
            "no * where settings, other than the precision, depart from the paper's: they are not compared"
        )
    if not all(with_error):
        found.append("a value without ± has no known error, and is not compared with the paper's")
    found += [f"{text}: they are not compared with the others" for text in of_some(record.reductions)]
    if any(entry.text == NOT_MEASURED for entry in entries):
        found.append(f"{NOT_MEASURED}: the run is in the registry, without this result")
    if any(entry.value is None and entry.text is None for entry in entries):
        found.append(f"{NOT_RUN}: no run of these settings is in the registry")
    for note in dict.fromkeys(paper.note for paper in papers if paper.note and not paper.inferred):
        if not note.startswith("lost"):
            who = [e.row for e in entries if e.paper and e.paper.note == note]
            found.append(f"the paper's value of {', '.join(dict.fromkeys(who))}: {note}")
    return found


def verdict_notes(records: Sequence[ArtefactRecord]) -> list[str]:
    claims = [claim for record in records for claim in record.claims]
    texts = [text for claim in claims for text in claim.evidence]
    found = [
        "The verdicts of each artefact are right together with 95 % (Holm's procedure), if its errors are."
    ]
    if any("one seed" in text and "one seed; spread" not in text for text in texts):
        found.append(
            "Where “one seed” stands without a spread, the variation between trainings is in no error: such "
            "a verdict is on the runs here, not on the methods."
        )
    if any(" verdicts)" in text for text in texts):
        found.append(f"{UNDECIDED[0].upper()}{UNDECIDED[1:]}.")
    if any(claim.statement.endswith(" in lambda_max") for claim in claims):
        found.append(
            "Differences of λ_max are without the upward bias of few samples, which each value has, where "
            "both were measured on the same samples."
        )
    return found if claims else []


def _places(entries: Sequence[ArtefactCell]) -> str:
    rows: dict[str, dict[str, None]] = {}
    for entry in entries:
        rows.setdefault(entry.column, {})[entry.row] = None
    return "; ".join((f"{column}: " if column else "") + ", ".join(own) for column, own in rows.items())


def _not_compared(entry: ArtefactCell) -> bool:
    return entry.value is not None and entry.differs is None and bool(entry.paper and entry.paper.value)


def conditions(record: ArtefactRecord) -> list[str]:
    lines = [f"Scale: {record.scale}"]
    lines += [f"Why: {why}" for why in record.why]
    if record.reductions:
        lines.append("Departs from the published experiment in: " + "; ".join(record.reductions))
    if record.provisional:
        lines.append("Provisional, since no source gives it: " + "; ".join(record.provisional))
    return lines


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
