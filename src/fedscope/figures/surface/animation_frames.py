"""A landscape along training: one frame per round on one scale, for a film or as a strip of panels."""

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure

from fedscope.errors import UserError
from fedscope.figures.color_scale import Scale, shared_scale
from fedscope.figures.figure_kinds import SurfaceKind
from fedscope.figures.surface.drawn_planes import grid_of
from fedscope.figures.surface.landscape_figures import draw
from fedscope.figures.text.labels import distinct_methods, in_subspace, titles
from fedscope.records.landscape_record import LandscapeRecord

MOST_COLUMNS = 6
MOST_PANELS = 36


@dataclass(frozen=True)
class Frame:
    """The landscapes of one round."""

    records: tuple[LandscapeRecord, ...]  # one per run
    names: tuple[str, ...]
    reached: int | None = None  # of a trajectory: how many of its marks


def is_film(records: Sequence[LandscapeRecord]) -> bool:
    """Say whether these records are rounds for a film, or one trajectory."""
    if len(records) == 1 and records[0].path:
        return True
    return bool(records) and all(record.directions_of for record in records)


def frames(records: Sequence[LandscapeRecord]) -> list[Frame]:
    """Return one frame per round, in order; of a trajectory, one per mark that is reached."""
    if not is_film(records):
        raise UserError(
            "these records are not rounds of a run: make them with 'fedscope plot-landscape RUN --rounds "
            "FIRST:LAST:STEP'"
        )
    if len(records) == 1 and records[0].path:
        return [Frame((records[0],), (mark.label,), i + 1) for i, mark in enumerate(records[0].marks)]
    by_round: dict[int, list[LandscapeRecord]] = {}
    for record in records:
        by_round.setdefault(record.checkpoint.round or 0, []).append(record)
    runs = [[record.checkpoint.run for record in found] for found in by_round.values()]
    if any(names != runs[0] for names in runs):
        raise UserError("the runs have not the same rounds: give them one --rounds")
    return [Frame(tuple(found), _names(found)) for _, found in sorted(by_round.items())]


def frame_figures(film: Sequence[Frame], *, kind: SurfaceKind = "both", metric: str = "loss") -> list[Figure]:
    scale, heading = _scale(film, metric), _heading(film)
    return [
        draw(
            frame.records, kind=kind, metric=metric, names=frame.names, captions=[""] * len(frame.names),
            scale=scale, title=heading, reached=frame.reached,
        )
        for frame in film
    ]  # fmt: skip


def strip_figure(film: Sequence[Frame], *, kind: SurfaceKind = "contour", metric: str = "loss") -> Figure:
    runs, rounds = len(film[0].records), len(film)
    columns = rounds if runs > 1 else -(-rounds // -(-rounds // MOST_COLUMNS))
    if columns > MOST_COLUMNS or runs * rounds > MOST_PANELS:
        raise UserError(
            f"{rounds} rounds of {runs} run{'s' * (runs > 1)} are too many for one strip: take a larger step "
            "in --rounds, or write a .gif"
        )
    places = [(place, frame) for place in range(runs) for frame in film]
    return draw(
        [frame.records[place] for place, frame in places], kind=kind, metric=metric,
        names=[frame.names[place] for place, frame in places], captions=[""] * len(places),
        scale=_scale(film, metric), columns=columns, title=_heading(film),
    )  # fmt: skip


def _names(records: Sequence[LandscapeRecord]) -> tuple[str, ...]:
    round = f"round {records[0].checkpoint.round}"
    if len(records) == 1:
        return (round,)
    names = distinct_methods(records) or [str(record.checkpoint.run) for record in records]
    return tuple(f"{name}, {round}" for name in names)


def _heading(film: Sequence[Frame]) -> str:
    first = film[0].records[0]
    parts = titles([first]) if len(film[0].records) == 1 else []
    if film[0].reached is None and first.directions_of:
        directions = _DIRECTIONS.get(first.directions, f"the {first.directions} directions")
        parts.append(f"along {directions} of round {first.directions_of.round}")
    return f"{' '.join(parts)} ({first.problem.samples} samples){in_subspace([first])}"


_DIRECTIONS = {
    "eigen": "the eigenvectors",
    "ggn": "the Gauss–Newton eigenvectors",
    "random": "the random directions",
}


def _scale(film: Sequence[Frame], metric: str) -> Scale:
    shown = [(record, frame.names[0]) for frame in film for record in frame.records]
    return shared_scale([grid_of(record, metric, name) for record, name in shown], metric)
