"""What `fedscope plot-landscape` does: compute the surfaces or read them, and draw them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource
from torch.distributed import ProcessGroup

from fedscope.checkpoints.file.checkpoint import versions
from fedscope.checkpoints.registry.registry import Registry
from fedscope.cli import console, rounds
from fedscope.cli.evaluation import taken
from fedscope.cli.measuring import joined_group
from fedscope.cli.problems import problems
from fedscope.cli.slices import geometry, grid_sizes, slices
from fedscope.errors import UserError
from fedscope.figures import animation as film
from fedscope.figures.provenance import made_from, read_records
from fedscope.figures.style import save
from fedscope.figures.surface.animation_frames import is_film
from fedscope.figures.surface.from_records import draw
from fedscope.figures.surface.surfaces import MOST_CHECKPOINTS, Kind
from fedscope.figures.text.labels import titles
from fedscope.records.entries import Record
from fedscope.report import landscape_page
from fedscope.storage import write_text
from fedscope.workflows.landscape.frames import scan_rounds
from fedscope.workflows.landscape.named_slices import THROUGH
from fedscope.workflows.landscape.scan import Plane, scan
from fedscope.workflows.progress import silent

DRAWING = ("saved", "out", "kind", "metric", "seconds", "registry", "threads", "device")  # not what is drawn


def run(
    json_target: str | None,
    bn: Any,
    directions: Any,
    grid: str,
    span: float,
    round_range: str | None,
    kind: Kind | None,
    metric: str,
    seconds: float,
    saved: tuple[Path, ...],
    out: str,
    **source: Any,
) -> None:
    """Compute or read the records, write them, and draw them into ``out``."""
    if not is_page(Path(out)):
        rounds.check_output(Path(out), film_wanted=bool(round_range or saved) or directions == "pca")
    own, recompute = taken(source, metric), source.pop("recompute")
    plane = Plane(directions=directions, grid=grid_sizes(grid), span=span, bn=bn, versions=versions(), **own)
    if saved:
        _check_only_drawn()
        records: Sequence[Mapping[str, Any]] = read_records(saved)
    else:
        most = None if is_page(Path(out)) else MOST_CHECKPOINTS
        with joined_group() as group:
            records = _scanned(plane, round_range, source, most=most, again=recompute, group=group)
            if group is not None and group.rank():
                return
    only_json = console.in_json(json_target, console.one_or_all(records))
    if is_page(Path(out)):
        write_text(Path(out), landscape_page(records), below=None)
    elif film.is_film_file(Path(out)) or (is_film(records) and len(records) > 1):
        rounds.write(records, Path(out), kind=kind, metric=metric, seconds=seconds)
    else:
        save(draw(records, kind=kind or "both", metric=metric), Path(out), record=made_from(records))
    if not only_json:
        print(out)


def _check_only_drawn() -> None:
    """Refuse what decides how records are computed, where they are drawn as they are."""
    context = click.get_current_context()
    given = [
        "CKPT" if isinstance(option, click.Argument) else option.opts[0]
        for option in context.command.params
        if option.name not in DRAWING
        and context.get_parameter_source(str(option.name)) is ParameterSource.COMMANDLINE
    ]
    if given:
        raise UserError(f"--from draws saved records as they are: leave out {', '.join(given)}")


def is_page(path: Path) -> bool:
    """Say whether this is to be an interactive page."""
    return path.suffix.lower() == ".html"


def _scanned(
    plane: Plane,
    round_range: str | None,
    source: dict[str, Any],
    *,
    most: int | None,
    again: bool,
    group: ProcessGroup | None,
) -> list[Record]:
    if round_range and plane.directions in THROUGH:
        raise UserError(
            f"--rounds shows each round along the same directions: --directions eigen, ggn or random, not "
            f"{plane.directions}; without --rounds, pca draws the rounds of RUN as a trajectory"
        )
    stage = silent if group is not None and group.rank() else console.progress
    kept: dict[str, Any] = {"keep": Registry(source["registry"]).analysis, "again": again, "group": group}
    if round_range:
        runs = rounds.checkpoints(source["checkpoints"], rounds.parse(round_range), source["registry"])
        frames = [problems(**{**source, "checkpoints": names}) for names in runs]
        return [record for along in frames for record in scan_rounds(along, plane, stage, **kept)]
    chosen = slices(plane.directions, source)
    if most and len(chosen) > most:
        raise UserError(f"one figure shows up to {most} checkpoints; make several figures")
    records = [scan(problem, plane, stage, waypoints, **kept) for problem, waypoints in chosen]
    for title, record in zip(titles(records), records, strict=True):
        for line in geometry(record):
            console.note(f"{title}: {line}")
    return records
