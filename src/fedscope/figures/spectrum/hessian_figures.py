"""Hessian records as drawings: densities, leading eigenvalues, clients' matrices, bars, samples."""

import math
from collections.abc import Sequence
from typing import NoReturn

from matplotlib.figure import Figure

from fedscope.errors import UserError
from fedscope.figures.figure_kinds import SpectrumKind
from fedscope.figures.spectrum.checkpoint_bars import bar_figure, checkpoint_bars, client_bars
from fedscope.figures.spectrum.client_pairs import client_matrix_figure
from fedscope.figures.spectrum.densities import density_figure
from fedscope.figures.spectrum.eigenvalues import eigenvalue_figure
from fedscope.figures.spectrum.sample_shares import Concentration, Images, influence_figure
from fedscope.figures.text.hessian_table import check_any
from fedscope.figures.text.labels import label, measured_on, titles
from fedscope.records.hessian_record import HessianRecord


def draw(
    records: Sequence[HessianRecord], kind: SpectrumKind = "density", images: Images | None = None
) -> Figure:
    """Draw one kind of figure; ``influence`` has beside it ``images`` (K, H, W, C), from 0 to 1."""
    check_any(records)
    return _influence(records, images) if kind == "influence" else _DRAWINGS[kind](records)


def _densities(records: Sequence[HessianRecord]) -> Figure:
    largest = [record.lambda_max.value for record in records]
    if any(map(math.isnan, largest)):
        raise UserError("the curvature is not finite, so there is no density to draw; see --json")
    densities = [record.density or _refuse(record, "density part", "--density") for record in records]
    return density_figure(densities, titles(records), lambda_max=largest, caption=measured_on(records))


def _eigenvalues(records: Sequence[HessianRecord]) -> Figure:
    upper, lower = zip(*(record.ends for record in records), strict=True)
    smallest = [end[::-1] for end in lower] if any(lower) else None
    power = any(record.problem.engine == "power" for record in records)
    errors = "by power iteration, without errors" if power else "± 95 % over the samples"
    caption = f"{measured_on(records)}; {errors}"
    return eigenvalue_figure(upper, titles(records), smallest=smallest, caption=caption)


def _clients(records: Sequence[HessianRecord]) -> Figure:
    crossings = [
        record.cross_client or _refuse(record, "cross-client part", "--clients") for record in records
    ]
    # the published scripts have the diagonals of tensors only
    known = all(crossing.H_N.parameter for crossing in crossings)
    return client_matrix_figure(crossings, titles(records), reading="parameter" if known else "tensor")


def _bars(records: Sequence[HessianRecord]) -> Figure:
    if len(records) == 1 and records[0].cross_client:
        (title,) = titles(records)
        return bar_figure(client_bars(records[0].cross_client), axis="client", title=title)
    places = [record.checkpoint for record in records]
    clients = [place.client for place in places]
    if None not in clients and len({(place.run, place.round) for place in places}) == 1:
        title = f"{places[0].run} (round {places[0].round})"
        bars = checkpoint_bars(records, [str(client) for client in clients])
        return bar_figure(bars, axis="client", title=title, caption=measured_on(records))
    return bar_figure(checkpoint_bars(records, titles(records)), caption=measured_on(records))


def _influence(records: Sequence[HessianRecord], images: Images | None) -> Figure:
    curves = []
    for record, title in zip(records, titles(records), strict=True):
        top = record.lambda_max
        parts = top.by_sample or _refuse(record, "parts of the samples", "--influence")
        curves.append(Concentration(title, parts, top.effective_samples))
    caption = measured_on(records)
    return influence_figure(curves, first=records[0].influence, images=images, caption=caption)


def _refuse(record: HessianRecord, part: str, flag: str) -> NoReturn:
    raise UserError(
        f"the record of {label(record.checkpoint)} has no {part}: "
        f"measure it with 'fedscope hessian {flag} --json FILE'"
    )


_DRAWINGS = {"density": _densities, "eigenvalues": _eigenvalues, "clients": _clients, "bars": _bars}
