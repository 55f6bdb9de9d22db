"""An artefact's record as figures."""

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from fedscope.errors import UserError
from fedscope.figures.digits import format_estimate, three_digits
from fedscope.figures.page import panels_figure
from fedscope.figures.panels import Line, Panel, Ticks, Values, reach
from fedscope.figures.runs.groups import percent_band, rounds_figure
from fedscope.figures.runs.row_dots import against_figure, dots_figure
from fedscope.figures.spectrum.densities import density_figure, eigenvalue_figure
from fedscope.figures.surface.surfaces import MOST_CHECKPOINTS, landscape_figure
from fedscope.figures.text.labels import family, measured_on
from fedscope.records.artefact import ArtefactCell, ArtefactRecord, DrawnEntry
from fedscope.records.hessian_record import HessianRecord
from fedscope.records.landscape_record import LandscapeRecord, ObjectiveRecord, SurfaceEntry
from fedscope.records.saved_records import Kept
from fedscope.records.sharpness_record import CORRELATION_SCHEMA, CorrelationRecord, SharpnessRecord


def figures(record: ArtefactRecord) -> list[Figure]:
    drawer = _DRAWERS.get(record.kind)
    if drawer is None or (not record.drawn and record.kind not in ("sweep", "dots")):
        return []
    return drawer(record)


def surfaces(record: Kept | None) -> Sequence[SurfaceEntry]:
    """Return the surfaces of a result: of an objective those of its parts."""
    if isinstance(record, ObjectiveRecord):
        return record.parts
    return [record] if isinstance(record, LandscapeRecord) else []


def samples_note(record: ArtefactRecord) -> str:
    """Return the number of samples of the drawn results, and λ_max on them where it is known."""
    rows = _by_row(record) if record.drawn else {}
    records = {row: ones[0].record for row, ones in rows.items() if ones[0].record}  # as the figures draw
    counts = dict.fromkeys(found.problem.samples for found in records.values())
    if not counts:
        return ""
    largest = ", ".join(
        f"{row} {format_estimate(found.lambda_max.value, found.lambda_max.stderr_data)}"
        for row, found in records.items()
        if isinstance(found, HessianRecord)
    )
    seeds = max(map(len, rows.values()))
    first = f", the first of {seeds} seeds" if seeds > 1 else ""
    text = f"Measured on {' and '.join(f'{count:,}' for count in counts)} training samples{first}."
    along = any(isinstance(found, LandscapeRecord) and found.curvature for found in records.values())
    if not largest and not along:
        return text
    shown = f" λ_max on these: {largest}." if largest else ""
    return f"{text}{shown} Fewer samples give a larger λ_max; a table or figure of more has smaller ones."


def _curves(record: ArtefactRecord) -> list[Figure]:
    lines = []
    for row, ones in _by_row(record).items():
        shortest = min(len(one.accuracy) for one in ones)
        values = np.array([[100 * a for a in one.accuracy[:shortest]] for one in ones])
        band = percent_band(values)
        rounds = np.arange(1.0, shortest + 1)
        lines.append(Line(row, rounds, values.mean(0), band, family=family(row, record.rows)))
    spread = "bands: 95 % intervals of the mean over seeds" * any(line.band is not None for line in lines)
    return [rounds_figure(lines, y_label="test accuracy (%)", caption=spread)]


def _spectrum(record: ArtefactRecord) -> list[Figure]:
    first = _curvatures(record)
    records = list(first.values())
    spectra = [one.eigenvalues for one in records]
    caption = f"{measured_on(records)}; ± 95 % over the samples"
    return [eigenvalue_figure(spectra, list(first), caption=caption)]


def _density(record: ArtefactRecord) -> list[Figure]:
    first = _curvatures(record)
    records = list(first.values())
    return [
        density_figure(
            [one.density for one in records if one.density],
            list(first),
            lambda_max=[one.lambda_max.value for one in records],
            caption=f"{measured_on(records)}; triangles: λ_max; bands: 95 % over the probes",
        )
    ]


def _curvatures(record: ArtefactRecord) -> dict[str, HessianRecord]:
    first = {row: ones[0].record for row, ones in _by_row(record).items()}
    return {row: found for row, found in first.items() if isinstance(found, HessianRecord)}


def _landscape(record: ArtefactRecord) -> list[Figure]:
    shown: list[_Shown] = []
    for row, ones in _by_row(record).items():
        found = ones[0].record
        if isinstance(found, ObjectiveRecord):
            return _objective(row, found.parts)
        if isinstance(found, LandscapeRecord):
            values = found.curvature
            known = values and not any(map(math.isnan, values))
            caption = f"λ₁ {three_digits(values[0])}, λ₂ {three_digits(values[1])}" if known else ""
            shown.append((row, caption, found))
    pages = -(-len(shown) // MOST_CHECKPOINTS)
    size = -(-len(shown) // pages)
    return [_page(shown[at : at + size]) for at in range(0, len(shown), size)]


def _objective(row: str, parts: Sequence[SurfaceEntry]) -> list[Figure]:
    """Draw the term on its own scale: on that of the losses its relief would be invisible."""
    found = {part.part: part for part in parts}
    losses = [(name, row, found[name]) for name in ("cross-entropy", "sum")]
    name = "MAN term"
    term = found[name]
    errors = {} if term.stderr is None else {name: term.stderr}
    as_metric = {
        "metrics": {name: term.loss},
        "metrics_stderr": errors,
        "center_metrics": {name: term.center_loss},
    }
    term = term.model_copy(update=as_metric)
    return [_page(losses), landscape_figure([term], [name], captions=[row], metric=name)]


_Shown = tuple[str, str, SurfaceEntry]  # title, caption


def _page(shown: Sequence[_Shown]) -> Figure:
    titles, captions, surfaces = zip(*shown, strict=True)
    return landscape_figure(surfaces, titles, captions=captions)


def _sweep(record: ArtefactRecord) -> list[Figure]:
    assert record.sweep
    places, lines = record.sweep.values, list[Line]()
    for column in record.columns:
        for quantity in record.quantities:
            entries = [
                e for e in record.entries
                if (e.column, e.quantity) == (column, quantity) and e.value is not None
            ]  # fmt: skip
            swept = [(at, e) for e in entries if (at := places.get(e.row)) is not None]
            swept.sort(key=lambda one: one[0])
            if swept:
                lines.append(
                    _entries_line(record.sweep.label, [at for at, _ in swept], [e for _, e in swept])
                )
            level = [e for e in entries if e.row in places and places[e.row] is None]
            lines += [_entries_line(e.row, [0.0], [e], level=True) for e in level]
    if not lines:
        return []
    option = record.sweep.option
    names = "α" if option.endswith("alpha") else option, next(iter(record.quantities.values()))
    panel = Panel(lines, *names, x=Ticks(scale="log"))
    caption = _error_kind(record.entries) if any(line.band is not None for line in lines) else ""
    return [panels_figure([panel], caption=caption)]


def _error_kind(entries: Sequence[ArtefactCell]) -> str:
    if all(entry.seeds > 1 for entry in entries):
        return "95 % intervals of the mean over seeds"
    return "95 % intervals of the measurement, of one seed"


def _entries_line(
    label: str, x: Sequence[float], entries: Sequence[ArtefactCell], *, level: bool = False
) -> Line:
    values = _numbers([e.value for e in entries])
    errors = [_reach(e) for e in entries]
    band = None if None in errors else _numbers(errors)
    return Line(label, _numbers(x), values, band, level)


def _reach(entry: ArtefactCell) -> float | None:
    """Return half of a cell's 95 % interval: of its mean over seeds, of one seed of the measurement."""
    if entry.spread is None or entry.seeds < 2:
        return None if entry.spread is None else reach(entry.spread)
    return reach(entry.spread / math.sqrt(entry.seeds), entry.seeds - 1)


def _dots(record: ArtefactRecord) -> list[Figure]:
    column = record.columns[0]
    known = [e for e in record.entries if e.column == column and e.value is not None]
    series = {
        name: {e.row: (float(e.value or 0), _reach(e)) for e in known if e.quantity == name}
        for name in record.quantities
    }
    panels = [
        {record.quantities[name]: series[name] for name in names}
        for names in record.panels or [[name] for name in series]
    ]
    rows = [row for row in record.rows if any(e.row == row for e in known)]
    return [dots_figure(panels, rows, caption=_error_kind(known))] if known else []


def _correlation(record: ArtefactRecord) -> list[Figure]:
    found = [(one.row, one.record) for one in record.drawn if isinstance(one.record, SharpnessRecord)]
    if not record.correlations:
        return []
    compared = {
        "schema": CORRELATION_SCHEMA, "against": "gap",
        "correlations": [one.to_json() for one in record.correlations],
        "records": [one.to_json() for _, one in found],
    }  # fmt: skip
    return [against_figure(CorrelationRecord.read(compared), [row for row, _ in found])]


_DRAWERS = {
    "dots": _dots,
    "correlation": _correlation,
    "curves": _curves,
    "spectrum": _spectrum,
    "density": _density,
    "landscape": _landscape,
    "sweep": _sweep,
}


def _by_row(record: ArtefactRecord) -> dict[str, list[DrawnEntry]]:
    rows: dict[str, list[DrawnEntry]] = {}
    for row in record.rows:
        ones = [one for one in record.drawn if one.row == row]
        if ones:
            rows[row] = ones
    if not rows:
        raise UserError(f"{record.recipe} has nothing to draw yet")
    return rows


def _numbers(values: Sequence[float | None]) -> Values:
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)
