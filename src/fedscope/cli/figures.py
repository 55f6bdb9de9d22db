"""`fedscope figures`: the papers' tables and figures, rebuilt from checkpoints.

PyTorch is imported by the commands, not by their help.
"""

from __future__ import annotations

import platform
from collections.abc import Sequence, Sized
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fedscope.cli.options import shared
from fedscope.cli.options.command import CommandGroup
from fedscope.cli.terminal import console
from fedscope.errors import UserError
from fedscope.storage import check_target
from fedscope.workflows.results.stored_answers import Answer

if TYPE_CHECKING:
    from fedscope.reproduce.plan import Plan
    from fedscope.reproduce.recipes.spec import Recipe

SCALES = ("paper", "cpu", "smoke")
scale_option = click.option(
    "--scale", type=click.Choice(SCALES), default="cpu", show_default=True,
    help="As published; a stated reduction to hours on two cores; or seconds on tiny data.",
)  # fmt: skip


gallery_option = click.option(
    "--out", type=click.Path(path_type=Path, file_okay=False), default=Path("figures"), show_default=True,
    help="The gallery.",
)  # fmt: skip


@click.group("figures", cls=CommandGroup)
def command() -> None:
    """Rebuild the papers' tables and figures: train and measure what is missing, then render."""


@command.command("list")
@scale_option
@shared.registry
@shared.json_target
def list_recipes(scale: str, registry: Path, json_target: str | None) -> None:
    """List all recipes: what each needs, what the registry has, and the time that is left on this machine."""
    from fedscope.cli.terminal import answers

    answers.print_or_make(
        partial(_listed, scale, registry), json_target, [registry],
        command="figures list", scale=scale, registry=registry, machine=platform.node(),
    )  # fmt: skip


def _listed(scale: str, registry: Path) -> Answer:
    from fedscope.reproduce.plan import BuildSettings, Plan
    from fedscope.reproduce.recipes.run_cells import Choices
    from fedscope.reproduce.recipes.spec import names, recipe
    from fedscope.workflows.progress import duration

    place, rows, found = BuildSettings(registry, Path("figures")), [], []
    shared: Plan | None = None
    for name in names():
        plan = Plan((recipe(name, scale),), Choices(), place, clock=shared.clock if shared else None)
        shared = shared or plan
        (known,), outline = plan.recipes, plan.outline()
        (own,) = outline.recipes
        of_paper = {"title": known.title, "printed_in": known.table, "kind": known.kind}
        found.append({**asdict(outline), **asdict(own), **of_paper})
        has = f"{own.with_a_run} of {own.cells}" if own.cells else "needs no run"
        time = f"{duration(outline.seconds)} ({outline.basis})" if outline.seconds else ""
        left = _many(outline.train, "run") if outline.train else ""
        more = _many(outline.measure, "measure") if outline.measure else ""
        lost = f"{len(outline.diverged)} diverged" if outline.diverged else ""
        needs = ", ".join(filter(None, [left, more, lost])) or "–"
        rows.append([name, known.table, known.title, known.kind, has, needs, time])
    drop = ("kind", "core time", "of the paper", "has runs for", "shows")
    columns = ["recipe", "of the paper", "shows", "kind", "has runs for", "to do now", "core time"]
    notes = [
        "core time: measured, or scaled, from runs in this registry; else a guess from the networks' sizes"
    ]
    table = (f"Recipes at scale {scale}", columns, rows, notes, {"text_columns": 7, "drop": drop})
    return Answer(found, [("table", *table), *(("note", line) for line in _unreadable(shared))])


@command.command(
    "build", examples={"fedscope figures build man/table1 --dry-run": "what it would train and measure"}
)
@click.argument("names", nargs=-1, required=True, metavar="NAME…")
@scale_option
@shared.registry
@shared.data_dir
@gallery_option
@click.option("--workers", type=click.IntRange(1), default=1, show_default=True,
              help="Runs and measurements at a time; they change no bit of any.")  # fmt: skip
@click.option("--threads", type=click.IntRange(1), default=1, show_default=True,
              help="CPU threads of each; the bits depend on them.")  # fmt: skip
@shared.device
@click.option("--seeds", type=shared.SEEDS, metavar="A,B,…", help="Seeds of the runs. [default: the scale's]")
@click.option("--only", "only", multiple=True, metavar="METHOD", help="Only this row; may be repeated.")
@click.option("--rounds", type=click.IntRange(1), help="Cut every run to this many rounds.")
@click.option("--partial", is_flag=True, help="Train nothing: measure and render what the registry has.")
@click.option("--dry-run", is_flag=True, help="Say what would be trained and measured, with the commands.")
@shared.json_target
def build_command(
    names: tuple[str, ...],
    scale: str,
    registry: Path,
    data_dir: Path | None,
    out: Path,
    workers: int,
    threads: int,
    device: str,
    seeds: tuple[int, ...] | None,
    only: tuple[str, ...],
    rounds: int | None,
    partial: bool,
    dry_run: bool,
    json_target: str | None,
) -> None:
    """Build tables and figures: NAME is a recipe, a paper (such as man), or all.

    Run the same command again after an interruption: it goes on where it stopped.
    """
    from fedscope.process import use_device
    from fedscope.reproduce.build import build
    from fedscope.reproduce.gallery.gallery import SUFFIXES
    from fedscope.reproduce.plan import BuildSettings, Plan
    from fedscope.reproduce.recipes.run_cells import Choices, rows

    chosen = Choices(seeds, only or None, rounds)
    recipes = [one for one in _recipes(names, scale) if not only or not one.columns or _has(one, only)]
    for one in recipes:
        rows(one, only or None)
    if not recipes:
        known = dict.fromkeys(row for one in _recipes(names, scale) for row in one.rows)
        raise UserError(f"none of these has {' or '.join(only)}; they have {', '.join(known)}")
    chosen_device = str(use_device(device, threads))
    place = BuildSettings(registry, out, data_dir, chosen_device, threads, workers)
    if dry_run:
        _show(Plan(recipes, chosen, place, partial=partial), json_target=json_target)
        return
    for one in recipes:
        for suffix in SUFFIXES:
            check_target(Path(f"{out / one.stem}.{suffix}"))
    written, faults = build(recipes, chosen, place, console.note, partial=partial)
    if not console.in_json(json_target, {"files": list(map(str, written)), "faults": faults}):
        for path in written:
            print(path)
    if faults:
        (first, why), more = next(iter(faults.items())), len(faults) - 1
        raise UserError(f"{first} failed{f', and {more} more' if more else ''}: {why}")


@command.command(
    "check",
    examples={
        "fedscope figures check man --rerun mine": "what `figures build man --out mine` made, and ./figures",
    },
)
@click.argument("names", nargs=-1, required=True, metavar="NAME…")
@scale_option
@click.option("--rerun", type=click.Path(path_type=Path, file_okay=False), required=True,
              help="The gallery of the rerun, --out of `figures build`.")  # fmt: skip
@click.option("--against", type=click.Path(path_type=Path, file_okay=False), default=Path("figures"),
              show_default=True, help="The gallery to compare it with.")  # fmt: skip
@shared.json_target
def check_command(
    names: tuple[str, ...], scale: str, rerun: Path, against: Path, json_target: str | None
) -> None:
    """Compare a rerun with a gallery: which numbers differ by more than the spread between seeds.

    NAME is a recipe, a paper (such as man), or all. Recipes that the rerun has not built are left out. Ends
    with an error if a number is beyond that spread.
    """
    from fedscope.cli.terminal.rerun_shown import checked
    from fedscope.reproduce.artefacts.rerun import check
    from fedscope.reproduce.gallery.gallery import artefact

    recipes = [(one, artefact(one, rerun)) for one in _recipes(names, scale)]
    built = [(one, here) for one, here in recipes if here]
    if not built:
        raise UserError(
            f"{rerun} has none of {', '.join(one.name for one, _ in recipes)} at scale {scale}; "
            "`fedscope figures build` makes them"
        )
    found = []
    for one, here in built:
        there = artefact(one, against)
        if there is None:
            raise UserError(f"{against} has no {one.name} at scale {scale}; name the gallery with --against")
        found.append(check(here, there))
    if not console.in_json(json_target, [outcome.to_json() for outcome in found]):
        for outcome in found:
            console.show(checked(outcome))
    if beyond := [outcome.recipe for outcome in found if outcome.beyond]:
        raise UserError(f"{', '.join(beyond)}: numbers differ by more than the spread between seeds")


@command.command("index")
@gallery_option
def index_command(out: Path) -> None:
    """Write the gallery's index, and a page for each paper, from the records that lie in it."""
    from fedscope.reproduce.gallery.gallery import INDEX, index, supplement
    from fedscope.reproduce.recipes.spec import PAPERS
    from fedscope.storage import write_text

    if not out.is_dir():
        raise UserError(f"there is no gallery {out}; `fedscope figures build` makes one")
    write_text(out / INDEX, index(out), below=None)
    print(out / INDEX)
    for paper in PAPERS:
        if page := supplement(paper, out):
            write_text(out / paper / INDEX, page, below=None)
            print(out / paper / INDEX)


def _recipes(given: Sequence[str], scale: str) -> list[Recipe]:
    from fedscope.reproduce.recipes.spec import PAPERS, names, recipe

    every: list[str] = []
    for name in given:
        every += [own for own in names() if name == "all" or own.split("/")[0] == name] or [name]
        if name not in ("all", *PAPERS, *names()):
            recipe(name)
    return [recipe(name, scale) for name in dict.fromkeys(every)]


def _has(recipe: Recipe, only: Sequence[str]) -> bool:
    known = {*recipe.rows, *(method.split()[0] for method in recipe.rows.values())}
    return bool(known & set(only))


def _show(plan: Plan, *, json_target: str | None) -> None:
    from fedscope.workflows.progress import duration

    outline = plan.outline()
    if console.in_json(json_target, asdict(outline)):
        return
    for own in outline.recipes:
        print(f"{own.recipe} at {own.scale}: {own.with_a_run} of {own.cells} cells have a run")
        for why in own.why:
            print(f"  {why}")
    for job in outline.train:
        verb = "continue" if job.resume else "train"
        print(f"{verb} {job.run}: {duration(job.seconds)} of a core ({job.basis})")
        print(f"  {job.command}")
    for one in outline.measure:
        print(f"measure {one.run} {one.checkpoint}: {one.what}")
    seconds = outline.seconds / plan.place.workers
    for run, round in outline.diverged.items():
        print(f"{run} diverged in round {round} and is not trained again")
    for what, why in outline.faults.items():
        print(f"cannot {what}: {why}")
    if outline.train or outline.measure:
        runs, results = _many(outline.train, "run"), _many(outline.measure, "result")
        cores = _many(range(plan.place.workers), "core")
        print(
            f"{runs} to train, {results} to measure of runs that are there: {duration(seconds)} on {cores} "
            f"({outline.basis}), the measures of new runs included"
        )
    else:
        print("nothing to train or to measure")
    for line in _unreadable(plan):
        console.note(line)


def _many(things: Sized, what: str) -> str:
    return f"{len(things)} {what}{'s' * (len(things) != 1)}"


def _unreadable(plan: Plan | None) -> list[str]:
    return [
        f"the run {name} cannot be read and stands in no cell; see `fedscope runs verify`"
        for name in (plan.inventory.unreadable if plan else ())
    ]
