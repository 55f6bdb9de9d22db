"""The interactive HTML report: one self-contained file from plain records, which works offline.

Nothing is computed here, and the same records give the same bytes. The module can be called:
``fedscope.report(...)`` is :func:`fedscope.api.report.report`.
"""

from collections.abc import Sequence
from typing import Any

from fedscope.deferred_names import make_callable
from fedscope.errors import UserError
from fedscope.figures.surface.landscape_figures import draw
from fedscope.figures.surface.surfaces import MOST_CHECKPOINTS
from fedscope.figures.text.labels import data_name
from fedscope.records.clients_record import ClientsRecord
from fedscope.records.hessian_record import HessianRecord
from fedscope.records.landscape_record import LandscapeRecord
from fedscope.records.run_record import RunRecord
from fedscope.records.saved_records import Analysis
from fedscope.report import (
    client_charts,
    curvature_tables,
    html_page,
    round_charts,
    slice_views,
)
from fedscope.report.clients_by_round import clients_by_round, round_parts
from fedscope.report.headlines import summary
from fedscope.report.subjects import Subjects, key_of, run_key, subjects

__all__ = ["landscape_page", "report_page"]

MOST_NAMED = 4  # subjects in the page's title

make_callable(__name__, "fedscope.api.report:report")


def report_page(
    runs: Sequence[RunRecord],
    curvatures: Sequence[HessianRecord],
    landscapes: Sequence[LandscapeRecord],
    rounds: Sequence[ClientsRecord] = (),
) -> str:
    if not (runs or curvatures or landscapes or rounds):
        raise UserError("there is nothing to report: name a run, or add a --record")
    analyses: list[Analysis] = [*curvatures, *landscapes]
    who = subjects(runs, [*analyses, *rounds])
    names = _names(who)
    data_sets = {run.manifest.data.name for run in runs}
    measured = [*analyses, *rounds]
    data_sets |= {one.problem.dataset for one in measured if one.problem.dataset is not None}
    title = f"{names} on {', '.join(map(data_name, sorted(data_sets)))}" if data_sets else names
    return _page(title, "Report", runs, curvatures, landscapes, who, rounds)


def landscape_page(landscapes: Sequence[LandscapeRecord]) -> str:
    if not landscapes:
        raise UserError("there is no landscape to draw: name a checkpoint")
    for group in slice_views.groups(landscapes):
        if reason := slice_views.obstacle(group):
            raise UserError(reason)
    who = subjects([], landscapes)
    return _page(_names(who), "Loss landscapes", [], [], landscapes, who)


def _names(who: Subjects) -> str:
    names = [subject.name for subject in who.values()]
    if len(names) > MOST_NAMED:
        return f"{', '.join(names[: MOST_NAMED - 1])} and {len(names) - MOST_NAMED + 1} others"
    return ", ".join(names)


def _page(
    title: str,
    kind: str,
    runs: Sequence[RunRecord],
    curvatures: Sequence[HessianRecord],
    landscapes: Sequence[LandscapeRecord],
    who: Subjects,
    rounds: Sequence[ClientsRecord] = (),
) -> str:
    shown = [(who[key_of(record.checkpoint)], record) for record in curvatures]
    density, spectrum = client_charts.density_chart(shown), client_charts.spectrum_chart(shown)
    charts = {
        "convergence": [*round_charts.convergence(runs, who), *round_charts.curvature_by_round(runs, who)],
        "parting": clients_by_round(runs, rounds, who),
        "diagnostics": round_charts.diagnostics(runs, who),
        "density": [density] if density else [],
        "spectrum": [spectrum] if spectrum else [],
    }
    shown_rounds = [*rounds, *(one for run in runs for one in run.clients if one not in rounds)]
    of_pairs = client_charts.pair_charts(shown)
    drawn = [_drawn(place, group, who) for place, group in enumerate(slice_views.groups(landscapes))]
    context = {
        "title": title,
        "kind": kind,
        "whole": kind == "Report",
        "subjects": list(who.values()),
        "summary": summary(runs, curvatures, landscapes, who),
        "runs": round_charts.runs_table(runs, who) if runs else None,
        "training": round_charts.training_table(runs, who),
        "curvature": curvature_tables.curvature_table(runs, curvatures, who) if runs or curvatures else None,
        "clients": client_charts.clients_table(shown),
        "comparison": curvature_tables.comparison(curvatures, who),
        "charts": charts,
        "pairs": of_pairs,
        "target": round_charts.target(runs),
        "groups": drawn,
        "rounds": round_parts(rounds),
        "of_rounds": [html_page.source_of_analysis(record) for record in shown_rounds],
        "of_runs": [html_page.source_of_run(run) for run in runs],
        "of_curvatures": [html_page.source_of_analysis(record) for record in curvatures],
    }
    parts = (*charts.values(), *of_pairs.values(), *(group["lines"] for group in drawn))
    every = [chart for part in parts for chart in part]
    data = {
        "charts": {chart.id: {"data": chart.data, "layout": chart.layout} for chart in every},
        "planes": [group["scene"] for group in drawn],
        "curves": [
            {"name": who[run_key(run)].name, "accuracy": round_charts.accuracies(run)} for run in runs
        ],
    }
    return html_page.render(
        context, data, html_page.provenance(runs, [*curvatures, *landscapes, *shown_rounds])
    )


def _drawn(place: int, group: slice_views.SlicesGroup, who: Subjects) -> dict[str, Any]:
    obstacle = slice_views.obstacle(group)
    flat = group.is_line or obstacle
    return {
        "title": group.title,
        "obstacle": obstacle,
        "lines": slice_views.line_charts(group, who, place) if group.is_line and not obstacle else [],
        "scene": None if flat else slice_views.plane_data(group, who),
        "pictures": [] if flat else _pictures(slice_views.newest(group)),
        "captions": [slice_views.caption(record) for record in slice_views.newest(group)],
        "sources": [html_page.source_of_analysis(record) for record in group.records],
    }


def _pictures(records: Sequence[LandscapeRecord]) -> list[str]:
    parts = [records[i : i + MOST_CHECKPOINTS] for i in range(0, len(records), MOST_CHECKPOINTS)]
    return [html_page.picture(draw(part)) for part in parts]
