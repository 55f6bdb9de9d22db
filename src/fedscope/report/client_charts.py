"""Charts of checkpoints on shared axes: densities, eigenvalues, pairs of clients; a table of clients."""

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from fedscope.choices import Reading
from fedscope.figures.digits import format_estimate
from fedscope.figures.panels import Matrix, Values
from fedscope.figures.spectrum.densities import density_panel, eigenvalue_panel
from fedscope.figures.spectrum.matrices import client_panel, range_of, resolved_pairs
from fedscope.records.cross_client_entry import READINGS, CrossClientEntry
from fedscope.records.estimates import SYMBOLS, Symbol
from fedscope.records.hessian_record import DensityEntry
from fedscope.report.curvature_tables import negative_mass
from fedscope.report.plotly_panels import Chart, chart, plain
from fedscope.report.sortable_table import Cell, SortableTable, measured, told
from fedscope.report.subjects import Shown


def clients_table(shown: Shown) -> SortableTable | None:
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


def _rows(cross: CrossClientEntry) -> Iterator[dict[str, Cell]]:
    for place, number in enumerate(cross.client_numbers):
        row = {"client": Cell(str(number), number)}
        if cross.rounds:
            row["round"] = Cell(str(cross.rounds[place]), cross.rounds[place])
        if cross.traces:
            row["trace ± probe"] = measured(cross.traces[place])
        if cross.lambda_max:
            row["λ_max ± data"] = measured(cross.lambda_max[place])
        if cross.overlap:
            row["overlap"] = told(format_estimate(cross.overlap[place]))
        yield row


def pair_charts(shown: Shown) -> dict[str, list[Chart]]:
    """Return a heat map of the pairs per checkpoint, by metric; those of one reading share a colour scale."""
    charts: dict[str, list[Chart]] = {}
    for symbol in SYMBOLS:
        found = [
            (subject, record.cross_client, *first)
            for subject, record in shown
            if record.cross_client and (first := _first(record.cross_client, symbol))
        ]
        grids: dict[Reading, list[Values]] = {}
        for _, _, reading, grid in found:
            grids.setdefault(reading, []).append(grid)
        for place, (subject, cross, reading, grid) in enumerate(found):
            name, ends = f"{symbol} ({reading})", range_of(grids[reading], symbol)
            matrix = Matrix(grid, [*map(str, cross.client_numbers)], *ends, title=name)
            caption = (
                f"{name} of {subject.name}'s clients, pair by pair; their mean: "
                f"{measured(cross.mean(symbol, reading)).text}."
            )
            caption += " Grey: unresolved." * bool(matrix.missing.any())
            panel = client_panel(matrix, "")
            one = chart(
                f"{symbol}-{place}", panel, {}, alt=caption, caption=caption, yaxis={"autorange": "reversed"}
            )
            charts.setdefault(symbol, []).append(one)
    return charts


def _first(cross: CrossClientEntry, symbol: Symbol) -> tuple[Reading, Values] | None:
    for reading in READINGS:
        if cross.matrix(symbol, reading) is not None:
            grid = resolved_pairs(cross, symbol, reading)
            if np.isfinite(grid).any():
                return reading, grid
    return None


def density_chart(shown: Shown) -> Chart | None:
    found = [
        (subject, record.lambda_max.value, record.density)
        for subject, record in shown
        if record.density and any(value > 0 for value in record.density.density)
    ]
    if not found:
        return None
    subjects, tops, densities = zip(*found, strict=True)
    panel = density_panel(densities, [subject.name for subject in subjects], lambda_max=tops)
    looks = {line.label: subject for line, subject in zip(panel.lines, subjects, strict=True)}
    masses = [
        f"{subject.name}: width σ {format_estimate(one.sigma)}{_negative(one)}" for subject, _, one in found
    ]
    linear = f"linear within ±{plain(panel.x.within)}"
    return chart(
        "density",
        replace(panel, x_label=f"eigenvalue ({linear})"),
        looks,
        alt=f"Eigenvalue densities on a logarithmic scale. {'; '.join(masses)}.",
        caption=f"Logarithmic axes; the eigenvalues' is {linear}. "
        f"Bands: 95 % intervals over the probes; triangles: λ_max. {'; '.join(masses)}.",
    )


def spectrum_chart(shown: Shown) -> Chart | None:
    # the smallest have no index from the largest
    spectra = [(subject, record.ends[0]) for subject, record in shown]
    found = [
        (subject, largest)
        for subject, largest in spectra
        if len(largest) > 1 and not any(math.isnan(one.value) for one in largest)
    ]
    if not found:
        return None
    subjects, largest = zip(*found, strict=True)
    panel = eigenvalue_panel(largest, [subject.name for subject in subjects])
    tops = [
        f"{subject.name} from {format_estimate(ends[0].value)} to {format_estimate(ends[-1].value)}"
        for subject, ends in found
    ]
    return chart(
        "spectrum",
        replace(panel, x_label="index, from the largest"),
        {subject.name: subject for subject in subjects},
        alt=f"The eigenvalues found one by one: {'; '.join(tops)}.",
        caption="Bars: 95 % intervals over the samples.",
    )


def _negative(density: DensityEntry) -> str:
    return f", share of eigenvalues below −σ {negative_mass(density.negative_mass)}"
