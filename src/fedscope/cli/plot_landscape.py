"""`fedscope plot-landscape`: the loss surface around checkpoints, side by side or along rounds."""

import re
from collections.abc import Sequence
from dataclasses import asdict, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click
from click.core import ParameterSource

from fedscope.cli.options import shared
from fedscope.cli.options.analysis import GROUPS as analysis_groups
from fedscope.cli.options.analysis import analysis
from fedscope.cli.options.command import Command, OptionRule
from fedscope.cli.options.request_options import groups_of, options_of
from fedscope.cli.terminal import console
from fedscope.errors import UserError
from fedscope.figures.figure_kinds import SurfaceKind
from fedscope.storage import write_text
from fedscope.workflows.landscape.landscape_request import Plane
from fedscope.workflows.option_fields import Rule, asked
from fedscope.workflows.results import answer_files
from fedscope.workflows.results.stored_answers import Answer, store, stored
from fedscope.workflows.sources.targets import Targets

if TYPE_CHECKING:
    from fedscope.records.landscape_record import LandscapeRecord

LEAST, MOST = 3, 1001  # points along an axis
DRAWING = ("saved", "out", "kind", "metric", "seconds", "registry", "threads", "device")  # not what is drawn


GROUPS = groups_of(Plane, {
    "Most used": ("--directions", "--grid", "--span", "--samples", "--rounds", "--out"),
    "What is drawn": ("--kind", "--show", "--seconds", "--from"),
    "How points are evaluated": ("--metric", ..., "--recompute", "--dry-run"),
    **analysis_groups,
})  # fmt: skip
EXAMPLES = {
    "fedscope plot-landscape a b": "the minima of two runs, on shared axes",
    "fedscope plot-landscape --directions line a@client0 a@client1": "the loss between two clients",
    "fedscope plot-landscape a --rounds 1:20:1 --out film.gif": "a film of the rounds that were kept",
    "fedscope plot-landscape a --grid 101 --dry-run": "how long it would take",
    "fedscope plot-landscape --from plane.json --kind contour": "a saved record, drawn otherwise",
}


RULES: Sequence[OptionRule] = (
    Rule("seconds", lambda v: shared.is_film(v["out"]), "but on a film (.gif)"),
    Rule("kind", lambda v: Path(v["out"]).suffix.lower() != ".html", "on an .html page"),
    Rule("kind", lambda v: v["directions"] != "line", "on a line, which is a curve"),
)


@click.command("plot-landscape", cls=Command, groups=GROUPS, examples=EXAMPLES, rules=RULES)
@analysis
@options_of(Plane)
@click.option("--grid", default="41", show_default=True, metavar="N|NxM", help="Points along the axes.")
@click.option("--metric", "metrics", multiple=True, default=("loss",), show_default=True,
              metavar="loss|accuracy|MODULE:FUNCTION",
              help="What the record has beside the loss: a function of (output, targets) that returns "
              "a value per sample or the batch's mean; may be repeated.")  # fmt: skip
@click.option("--recompute", is_flag=True, help="Evaluate again what the registry has of these points.")
@click.option("--dry-run", is_flag=True, help="Draw nothing; time some points and say what all would take.")
@click.option("--rounds", "round_range", metavar="FIRST:LAST:STEP|all",
              help="These rounds of each RUN, or all that it kept, along the directions of the last one: a "
              "film or a strip.")  # fmt: skip
@click.option("--kind", type=click.Choice(get_args(SurfaceKind)),
              help="Surfaces in space, contours, a heat map of the points, or surfaces above contours. "
              "[default: both; contour for a strip of rounds]")  # fmt: skip
@click.option("--show", "metric", default="loss", show_default=True, metavar="METRIC",
              help="What is drawn: the loss or another metric, such as accuracy.")  # fmt: skip
@click.option("--seconds", type=click.FloatRange(0.04, 60), default=0.5, show_default=True,
              help="How long each frame of a film is seen.")  # fmt: skip
@click.option("--from", "saved", multiple=True, type=click.Path(path_type=Path), metavar="FILE.json",
              help="Draw what --json wrote, without computing; may be repeated.")  # fmt: skip
@shared.out(
    "landscape.png",
    "A .png, .pdf or .svg file, an interactive .html one; of rounds or a trajectory also a .gif.",
)
def command(
    targets: Targets,
    json_target: str | None,
    grid: str,
    metrics: tuple[str, ...],
    recompute: bool,
    dry_run: bool,
    round_range: str | None,
    kind: SurfaceKind | None,
    metric: str,
    seconds: float,
    saved: tuple[Path, ...],
    out: str,
    **options: Any,
) -> None:
    """Draw the loss on a plane through each checkpoint, on shared axes, camera and colours.

    CKPT is a file, or RUN, RUN@25, RUN@25:all, RUN@best, RUN@0, RUN@client3 of the registry; left out, the
    newest run. Points takes three of them and line two; pca takes runs that kept their rounds
    (--keep-every), or several checkpoints in order; clients takes global models whose clients were saved
    (--save-clients). With --rounds it is the name of a run.
    """
    target, page = Path(out), Path(out).suffix.lower() == ".html"
    if page:
        import_module("fedscope.report")  # says now what it needs and is not installed
    else:
        _check_output(target, has_rounds=bool(round_range or saved) or options["directions"] == "pca")
    from fedscope.figures.embedded_record import read_records
    from fedscope.figures.surface.surfaces import MOST_CHECKPOINTS
    from fedscope.records.saved_records import landscapes as landscape_records

    names = dict.fromkeys(name for name in (*metrics, metric) if name != "loss")
    plane = asked(Plane, options, grid=grid_sizes(grid), bn=targets.bn, metrics=tuple(names))
    if saved:
        _check_only_drawn()
        records = landscape_records(read_records(saved))
    elif dry_run:
        _show_outlook(targets, plane, round_range, json_target)
        return
    else:
        most = None if page else MOST_CHECKPOINTS
        records = _computed(targets, plane, round_range, most, again=recompute)
        if not records:  # another process of torchrun's draws them
            return
        if not round_range:
            _note_geometry(records)
    only_json = console.in_json(json_target, console.one_or_all([record.to_json() for record in records]))
    _write(records, target, kind, metric, seconds)
    if not only_json:
        print(out)


def _computed(
    targets: Targets, plane: Plane, rounds: str | None, most: int | None, *, again: bool
) -> list["LandscapeRecord"]:
    """Return the landscapes, those of an earlier command where nothing that they rest on has changed."""
    from fedscope.records.landscape_record import LandscapeRecord

    own = again or any(":" in name for name in plane.metrics)  # code that may change
    place = None if own else answer_files.place(targets, plane, rounds, most)
    if known := place and stored(place.file):
        console.show(known.remarks)
        return [LandscapeRecord.read(record) for record in known.content]
    from fedscope.workflows.landscape.landscape_command import landscapes  # torch: not for --help

    noted = list[str]()

    def note(line: str) -> None:
        noted.append(line)
        console.note(line)

    of_runs = rounds is not None or plane.directions in ("clients", "pca")
    rests = place and answer_files.rests_on(place.checkpoints, targets.data_dir, clients=of_runs)
    found = landscapes(
        targets, plane, replace(console.REPORTER, note=note), rounds=rounds, most=most, again=again
    )
    answer = Answer([record.to_json() for record in found], remarks=[("note", line) for line in noted])
    store(place and place.file, rests, answer)
    return found


def _show_outlook(targets: Targets, plane: Plane, rounds: str | None, target: str | None) -> None:
    from fedscope.workflows.landscape.landscape_command import outlooks

    found = outlooks(targets, plane, console.REPORTER, rounds)
    if not console.in_json(target, console.one_or_all([asdict(one) for one in found])):
        console.show(("line", one.described()) for one in found)


def grid_sizes(text: str) -> int | tuple[int, ...]:
    """Return the points along all axes, ``41``, or along each, ``41x21``."""
    if not re.fullmatch("[0-9]{1,9}(x[0-9]{1,9})?", text):
        raise UserError(f"--grid takes the points along the axes, as 41 or 41x21, not {text!r}")
    sizes = tuple(map(int, text.split("x")))
    if min(sizes) < LEAST or max(sizes) > MOST:
        raise UserError(f"--grid takes {LEAST} to {MOST} points along each axis, not {text}")
    return sizes if len(sizes) > 1 else sizes[0]


def _check_only_drawn() -> None:
    context = click.get_current_context()
    given = [
        "CKPT" if isinstance(option, click.Argument) else option.opts[0]
        for option in context.command.params
        if option.name not in DRAWING
        and context.get_parameter_source(str(option.name)) is ParameterSource.COMMANDLINE
    ]
    if given:
        raise UserError(f"--from draws saved records as they are: leave out {', '.join(given)}")


def _note_geometry(records: Sequence["LandscapeRecord"]) -> None:
    from fedscope.figures.text.advice import geometry
    from fedscope.figures.text.labels import titles

    for title, record in zip(titles(records), records, strict=True):
        for line in geometry(record):
            console.note(f"{title}: {line}")


def _check_output(path: Path, *, has_rounds: bool) -> None:
    """Check the format of the picture before the landscapes are computed."""
    from fedscope.figures.style import check_format

    if not shared.is_film(str(path)):
        check_format(path)
    elif not has_rounds:
        raise UserError(
            f"{path.suffix} shows rounds one after the other: add --rounds FIRST:LAST:STEP, or name the file "
            "with the suffix .png, .pdf or .svg"
        )


def _write(
    records: Sequence["LandscapeRecord"], path: Path, kind: SurfaceKind | None, metric: str, seconds: float
) -> None:
    """Write an interactive page, a film (.gif), rounds as a strip of panels, or surfaces."""
    from fedscope.figures import animation as film
    from fedscope.figures.embedded_record import made_from
    from fedscope.figures.style import save
    from fedscope.figures.surface import animation_frames as rounds
    from fedscope.figures.surface.landscape_figures import draw

    made = made_from(records)
    if path.suffix.lower() == ".html":
        from fedscope.report import landscape_page

        write_text(path, landscape_page(records), below=None)
    elif shared.is_film(str(path)):
        figures = rounds.frame_figures(rounds.frames(records), kind=kind or "both", metric=metric)
        film.save_film(figures, path, record=made, seconds=seconds)
    elif rounds.is_film(records) and len(records) > 1:
        strip = rounds.strip_figure(rounds.frames(records), kind=kind or "contour", metric=metric)
        save(strip, path, record=made)
    else:
        save(draw(records, kind=kind or "both", metric=metric), path, record=made)
