"""The tables of a round's clients, client by client, and of their means by round."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from fedscope.figures.digits import ABSENT, format_entry, format_estimate
from fedscope.figures.text.hessian_table import NO_ERROR, Table, departures
from fedscope.figures.text.labels import label
from fedscope.records.client_quantities import (
    CLIENT_QUANTITIES,
    GAP_NAMES,
    ROUNDS_KINDS,
    TERMS,
    ClientQuantity,
    RoundsKind,
)
from fedscope.records.clients_record import (
    SYMBOLS,
    AlignmentEntry,
    AveragingEntry,
    ClientsRecord,
    Function,
    Overlap,
    Point,
)  # fmt: skip
from fedscope.records.cross_client_entry import READINGS, Barriers, Critical, CriticalStepEntry, Noise
from fedscope.records.quantities import OVER_PAIRS
from fedscope.statistics.resolution import UNRESOLVED

MEANS = "Σ p_k over the clients; ± one standard error of samples and probes together"
CELL_NAMES: Mapping[tuple[Function, Point], str] = {
    ("own", "own"): "f_k(w_k)",
    ("own", "global"): "f_k(w̄)",
    ("global", "own"): "F(w_k)",
    ("global", "global"): "F(w̄)",
    ("own", "start"): "f_k(w_start)",
    ("global", "start"): "F(w_start)",
}
EACH: tuple[tuple[Function, Point], ...] = (("own", "own"), ("own", "global"), ("global", "own"))
"""Cells that differ from client to client."""
NO_ERROR_NOTE = (
    f"{NO_ERROR}: an error that is not known, as of a single batch; a smaller --batch-size, or more "
    "--samples, would tell it"
)
CLOSE = 4.0  # standard errors between the k-th eigenvalue and the next one, of which fewer are few


def clients_tables(record: ClientsRecord) -> Iterator[Table]:
    tables = list(_tables(record))
    heading = f"{label(record.checkpoint)}: {len(record.clients)} clients"
    notes = (*departures([record.problem]), *tables[0].notes)
    tables[0] = replace(tables[0], title=f"{heading} – {tables[0].title}", notes=notes)
    for place, table in enumerate(tables):
        if any(NO_ERROR in cell for row in table.rows for cell in row):
            tables[place] = replace(table, notes=(*table.notes, NO_ERROR_NOTE))
            break
    yield from tables


def _tables(record: ClientsRecord) -> Iterator[Table]:
    if record.flatness:
        yield _cells(record)
        yield _gaps(record)
    if record.alignment:
        yield _alignment(record.alignment)
    if record.averaging:
        yield _averaging(record.averaging)
    if record.overlap:
        yield _overlap(record, record.overlap)
    if record.cross_client:
        yield _diagonals(record)
    if record.noise:
        yield _noise(record, record.noise)
    if record.critical:
        yield _critical(record, record.critical)
    if record.barriers:
        yield _barriers(record, record.barriers)
    yield _each(record)


def _cells(record: ClientsRecord) -> Table:
    places = [place for place in CELL_NAMES if any(one.cell(*place) for one in record.flatness)]
    rows = []
    for one in record.flatness:
        found = [one.cell(*place) for place in places]
        rows.append((SYMBOLS[one.quantity], *(format_entry(cell.mean if cell else None) for cell in found)))
    legend = (
        f"f_k: client k's loss on its own rows, F: on {record.problem.samples:,} samples of all; w_k: its "
        "upload, w̄: the global model, w_start: what the round began with"
    )
    biased = any(one.quantity == "lambda_max" for one in record.flatness)
    notes = (MEANS, f"{legend}; λ_max is too high on few samples" if biased else legend)
    columns = ("quantity", *(CELL_NAMES[place] for place in places))
    return Table("Flatness", columns, tuple(rows), notes)


def _gaps(record: ClientsRecord) -> Table:
    rows = [
        (SYMBOLS[one.quantity], *(format_entry(one.gap(name).mean) for name in GAP_NAMES))
        for one in record.flatness
    ]
    columns = ("quantity", *GAP_NAMES.values())
    notes = ("of one function on common samples (the second and third) errors are paired",)
    return Table("Flatness gaps", columns, tuple(rows), notes)


def _alignment(found: AlignmentEntry) -> Table:
    rows = [
        (name, format_entry(one.rayleigh), format_entry(one.share))
        for name, one in (("own", found.own), ("global", found.overall))
    ]
    start = "w_start" if found.anchor == "start" else "w̄"
    columns = ("Hessian", "ΔᵀHΔ/‖Δ‖²", f"share in the top {found.k}")
    notes = [
        f"Δ_k = w_k − {start}, H at w̄; a random direction has a share of {format_estimate(found.random)}"
    ]
    return Table("Updates and curvature", columns, tuple(rows), (*notes, *_close(found.k, found.separation)))


def _averaging(found: AveragingEntry) -> Table:
    rows = [
        (
            name,
            *(format_entry(getattr(one.mean, term)) for term in TERMS),
        )
        for name, one in (("global F", found.overall), ("own f_k", found.own))
    ]
    columns = ("loss G", "Σ p G(w_k) − G(w̄)", *[*TERMS.values()][1:])
    notes = [
        f"w̄ = Σ p_k w_k, at {format_estimate(found.distance)} of the clients' distance from the round's model"
    ]
    if found.own_buffers:
        notes.append(f"with each model's own BatchNorm statistics F has {format_entry(found.own_buffers)}")
    return Table("Cost of averaging", columns, tuple(rows), tuple(notes))


def _overlap(record: ClientsRecord, found: Overlap) -> Table:
    names = [*map(str, record.numbers), "global"]
    rows = [
        (
            name,
            *(
                ABSENT if i == j else format_estimate(value, found.stderr[i][j])
                for j, value in enumerate(row)
            ),
        )
        for i, (name, row) in enumerate(zip(names, found.matrix, strict=True))
    ]
    notes = [
        f"of random spaces {format_estimate(found.random)}; each client at its own weights, on its own rows"
    ]
    notes += _close(found.k, found.separation)
    return Table(f"Overlap of the top {found.k} eigenspaces", ("client", *names), tuple(rows), tuple(notes))


def _close(k: int, separation: float) -> list[str]:
    if not separation < CLOSE:
        return []
    return [
        f"eigenvalue {k} of one Hessian lies {separation:.2g} standard errors above the next: errors of "
        "shares are too small there; take another --top-k or more --samples"
    ]


def _diagonals(record: ClientsRecord) -> Table:
    shown = [one for one in OVER_PAIRS if one.is_in(record)]
    rows = [
        (reading, *(format_entry(one.of(record)) for one in shown if one.name.endswith(reading)))
        for reading in READINGS
    ]
    columns = dict.fromkeys(one.symbol.partition(" (")[0] for one in shown)
    return Table("Hessian diagonals", ("diagonal", *columns), tuple(rows), ())


def _noise(record: ClientsRecord, found: Noise) -> Table:
    rows = [
        (name, *(format_entry(part) for part in (one.trace, one.square, one.scale)))
        for name, one in (
            *((f"client {k}", one) for k, one in zip(record.numbers, found.clients, strict=True)),
            ("all", found.whole),
        )
    ]
    notes = (
        f"at w̄; all: of Σ p_k f_k; tr Σ within clients: {format_entry(found.within)}; ± over the samples",
        f"between clients: Σ p_k ‖g_k − g‖² = {format_entry(found.between)}, Σ p_k ‖g_k‖²/‖g‖² = "
        f"{format_entry(found.dissimilarity)}",
    )
    columns = ("loss", "tr Σ", "‖g‖²", "noise scale tr Σ/‖g‖²")
    return Table("Gradient noise", columns, tuple(rows), notes)


def _critical(record: ClientsRecord, found: Critical) -> Table:
    steps = [("mean update", found.server)]
    steps += [(f"client {k}", one) for k, one in zip(record.numbers, found.clients, strict=True)]
    rows = [(name, _step(one), format_estimate(one.length)) for name, one in steps]
    start = "w_start" if found.anchor == "start" else "w̄"
    notes = (f"the step along Δ from {start} up to which F stays below F({start}); 1 is the update itself",)
    return Table("Critical steps", ("along", "step", "‖Δ‖"), tuple(rows), notes)


def _step(one: CriticalStepEntry) -> str:
    if one.rises_at_once:
        return "0: F rises at once"
    if math.isnan(one.step) and not one.never_rises:
        return UNRESOLVED
    return "F never rises" if one.never_rises else format_estimate(one.step, one.stderr)


def _barriers(record: ClientsRecord, found: Barriers) -> Table:
    notes = ["of F"]
    if record.averaging:
        notes.append(
            "F(w̄) − Σ p_k F(w_k) is minus the cost of averaging by F: here ± over single samples, there over "
            "the batches that the terms of its expansion share"
        )
    columns = ("barrier, mean of pairs", "F(w̄) − Σ p_k F(w_k)")
    return Table(
        "Barriers", columns, ((format_entry(found.mean), format_entry(found.average)),), tuple(notes)
    )


def _each(record: ClientsRecord) -> Table:
    columns = ["client", "p_k", "samples"]
    found: list[Sequence[str]] = [
        [str(one.number) for one in record.clients],
        [f"{one.share:.3f}" for one in record.clients],
        [f"{one.samples:,} of {one.population:,}" for one in record.clients],
    ]
    for one in record.flatness:
        for place in EACH:
            cell = one.cell(*place)
            if cell:
                columns.append(f"{SYMBOLS[one.quantity]} {CELL_NAMES[place]}")
                found.append([format_entry(amount) for amount in cell.clients])
    if record.alignment:
        columns += ["‖Δ‖", "ΔᵀHΔ/‖Δ‖² own", "global", "share own", "share global"]
        each = record.alignment.clients
        found.append([format_estimate(one.length) for one in each])
        found += [
            [format_entry(one.own.rayleigh) for one in each],
            [format_entry(one.overall.rayleigh) for one in each],
        ]
        found += [
            [format_entry(one.own.share) for one in each],
            [format_entry(one.overall.share) for one in each],
        ]
    notes = tuple(record.pairing.lines) if record.pairing else ()
    return Table("Client by client", tuple(columns), tuple(zip(*found, strict=True)), notes)


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
