"""The Hessian table: one row per checkpoint, every number with its error."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from fedscope.errors import UserError
from fedscope.figures.digits import ABSENT, format_entry, format_estimate
from fedscope.figures.text.labels import label
from fedscope.records.cross_client_entry import CrossClientEntry
from fedscope.records.hessian_record import HessianRecord, ProblemEntry
from fedscope.records.quantities import LAMBDA_MAX, OVER_PAIRS, QUANTITIES, Quantity
from fedscope.statistics.resolution import UNRESOLVED

NO_ERROR = "± –"  # behind a value, as :func:`fedscope.figures.digits.format_estimate` writes it
CARRIED_BY = "n_eff"  # the column of the effective number of samples
MEANING = "effective number of samples that carry λ_max, (Σq)²/Σq² of their parts q"


@dataclass(frozen=True)
class Table:
    """A table of text, ready for any renderer."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]  # each as long as ``columns``
    notes: tuple[str, ...]

    def markdown(self) -> str:
        rule = ["---", *["---:"] * (len(self.columns) - 1)]
        lines = [_row(cells) for cells in (self.columns, rule, *self.rows)]
        notes = [f"- {note}" for note in self.notes]
        return "\n".join([f"**{self.title}**", "", *lines, *([""] if notes else []), *notes]) + "\n"

    def text(self) -> str:
        rows = [self.columns, *self.rows]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [
            "  ".join([cells[0].ljust(widths[0]), *map(str.rjust, cells[1:], widths[1:])]) for cells in rows
        ]
        return "\n".join([self.title, *(line.rstrip() for line in lines)])

    def html(self) -> str:
        head = "".join(f"<th>{escape(cell)}</th>" for cell in self.columns)
        rows = ("".join(f"<td>{escape(cell)}</td>" for cell in row) for row in self.rows)
        body = "".join(f"<tr>{row}</tr>" for row in rows)
        notes = "".join(f"<li>{escape(note)}</li>" for note in self.notes)
        return (
            f"<table><caption>{escape(self.title)}</caption><thead><tr>{head}</tr></thead>"
            f"<tbody>{body}</tbody></table>{f'<ul>{notes}</ul>' if notes else ''}"
        )


def hessian_table(records: Sequence[HessianRecord]) -> Table:
    """Tabulate λ_max, trace and, where any record has them, how many samples carry λ_max, H_N and H_D.

    Settings that all records share stand in the notes, a setting in which they differ gets a column. A value
    that was not finite reads "not finite", one without information (:mod:`fedscope.statistics.resolution`)
    "unresolved", a quantity that was not computed "–".
    """
    check_any(records)
    shared, differing = _settings([record.problem.to_json() for record in records])
    shown = [one for one in QUANTITIES if any(map(one.is_in, records))]
    carried = any(math.isfinite(record.lambda_max.effective_samples) for record in records)
    columns = ["checkpoint", *differing, *(one.column for one in shown)]
    rows = [_cells(record, differing, shown) for record in records]
    if carried:
        place = columns.index(LAMBDA_MAX.column) + 1
        for row, cell in zip((columns, *rows), (CARRIED_BY, *map(_carriers, records)), strict=True):
            row.insert(place, cell)
    title = TITLES.get(str(shared.get("operator", "")), "Curvature of the loss")
    unknown = any(NO_ERROR in cell for row in rows for cell in row)
    notes = _notes(records, shared, unknown=unknown, carried=carried)
    return Table(title, tuple(columns), tuple(map(tuple, rows)), tuple(notes))


def check_any(records: Sequence[HessianRecord]) -> None:
    if not records:
        raise UserError("there is no record: make one with 'fedscope hessian --json FILE'")


TITLES = {
    "hessian": "Hessian of the loss",
    "ggn": "Gauss–Newton matrix of the loss",
    "fisher": "Empirical Fisher information",
    "mcfisher": "Monte-Carlo Fisher information",
}


def _cells(record: HessianRecord, settings: Sequence[str], shown: Sequence[Quantity]) -> list[str]:
    problem = record.problem.to_json()
    cells = [ABSENT if problem.get(key) is None else str(problem[key]) for key in settings]
    return [label(record.checkpoint), *cells, *(format_entry(one.of(record)) for one in shown)]


def _carriers(record: HessianRecord) -> str:
    return effective_number(record.lambda_max.effective_samples)


def effective_number(samples: float) -> str:
    return f"{float(f'{samples:.3g}'):,.10g}" if math.isfinite(samples) else ABSENT


def all_rows(record: HessianRecord) -> str | None:
    """Return H_N and H_D of what the clients' samples were drawn from; None where they tell nothing new."""
    cross = record.cross_client
    if cross is None or cross.populations is None:
        return None
    shown = [one for one in OVER_PAIRS if one.is_in(record)]
    found = [format_entry(one.of_population and one.of_population(record)) for one in shown]
    if found == [format_entry(one.of(record)) for one in shown]:
        return None
    named = (f"{one.symbol} {text}" for one, text in zip(shown, found, strict=True))
    said = UNRESOLVED if {*found} == {UNRESOLVED} else ", ".join(named)
    return f"of all rows that the clients hold, ± the samples too: {said}"


# How long a measurement takes, and what stands below.
_UNSHOWN = ("form", "form_reason", "notes", "departs", "whole")
_USUAL = {"engine": "fedscope", "reading": "paper", "bn": "eval"}  # of no interest beside one's own data


def _settings(problems: Sequence[Mapping[str, object]]) -> tuple[dict[str, object], list[str]]:
    """Split the problems' settings into those that all share, with their values, and the others' names."""
    names = list(dict.fromkeys(name for problem in problems for name in problem if name not in _UNSHOWN))
    differing = [
        name for name in names if any(problem.get(name) != problems[0].get(name) for problem in problems)
    ]
    return {name: problems[0][name] for name in names if name not in differing}, differing


def _notes(
    records: Sequence[HessianRecord], shared: Mapping[str, object], *, unknown: bool, carried: bool
) -> list[str]:
    notes, usual = [], {} if any(record.problem.split for record in records) else _USUAL
    told = [f"{k} {v}" for k, v in shared.items() if v is not None and usual.get(k) != v]
    if told:
        notes.append(", ".join(told))
    crossed = [record.cross_client for record in records if record.cross_client]
    if any((mean := one.of(record)) and not mean.is_resolved for record in records for one in OVER_PAIRS):
        stopped = any(cross.converged is False for cross in crossed)  # never where the probes were fixed
        notes.append(
            "unresolved: out of its range, or its 95 % interval excludes nothing; raise "
            f"{'--client-max-probes' if stopped else '--client-probes'} (the value is in --json)"
        )
    absent = f"; {NO_ERROR}: not known, as of one batch or by another engine" if unknown else ""
    notes.append(
        "± data: standard error over the samples, at the eigenvector found on them (λ_max itself is biased "
        "upward on few samples)"
        + "; ± probe: of the trace estimate, over its random probes" * any(record.trace for record in records)
        + absent
        + f"; {CARRIED_BY}: {MEANING}" * carried
    )
    if any(record.problem.population == record.problem.samples for record in records):
        notes.append("no ± data where the samples are the whole split: the number is exact for it")
    residuals = [record.lambda_max.residual for record in records]
    if known := [residual for residual in residuals if not math.isnan(residual)]:
        notes.append(f"λ_max: residual ‖Hv − λv‖ at most {format_estimate(max(known))}")
    if any(record.problem.products for record in records):
        notes.append(
            "products by finite differences of gradients: their measured error is in λ_max's residual and in "
            "the interval of the trace"
        )
    notes += dict.fromkeys(note for record in records for note in record.problem.notes)
    return [*departures(record.problem for record in records), *notes, *dict.fromkeys(map(_pairs, crossed))]


def departures(problems: Iterable[ProblemEntry]) -> list[str]:
    """Return a note for each thing that was measured in the place of the loss's own derivatives."""
    return list(dict.fromkeys(problem.departs for problem in problems if problem.departs))


def _pairs(cross: CrossClientEntry) -> str:
    meaning = (
        "distinct pairs" if cross.pairs == "distinct" else "all pairs, each client with itself included,"
    )
    rounds = [round for round in cross.rounds if round is not None]
    when = (
        f"; uploads of rounds {min(rounds)} to {max(rounds)}" if rounds and min(rounds) < max(rounds) else ""
    )
    scaled = " (scale-free: each pair's divided by ‖D_k‖·‖D_j‖)" if cross.H_N_scale_free else ""
    return (
        f"H_N{scaled}, H_D: mean over {meaning} of {cross.clients} clients{when}, ± standard error over the "
        "probes"
    )


def _row(cells: Sequence[str]) -> str:
    escaped = (" ".join(cell.replace("\\", "\\\\").replace("|", "\\|").split()) for cell in cells)
    return f"| {' | '.join(escaped)} |"
