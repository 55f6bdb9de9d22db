"""From recipes to artefacts: the runs and results that the registry lacks are computed, then all is written.

Nothing in the registry is computed again, and everything computed is stored there, so that an interrupted
build continues where it stopped.
"""

from collections.abc import Sequence
from pathlib import Path

from fedscope.records.commands import registry_option
from fedscope.reproduce.artefacts.record_of_cells import assemble
from fedscope.reproduce.gallery.gallery import why_not_overwrite, write
from fedscope.reproduce.plan import BuildSettings, Plan
from fedscope.reproduce.recipes.run_cells import Choices
from fedscope.reproduce.recipes.spec import Recipe
from fedscope.reproduce.runs.computations import Computation, Log, run_all


def build(
    recipes: Sequence[Recipe], choices: Choices, place: BuildSettings, say: Log, *, partial: bool = False
) -> tuple[list[Path], dict[str, str]]:
    """Compute what is missing (no training if ``partial``), write all, and return files and faults."""
    written = list[Path]()
    plan, faults = completed(Plan(recipes, choices, place, partial=partial), say)
    for recipe in recipes:
        cells, filled = plan.cells[recipe.name], plan.filled[recipe.name]
        text = command(recipe, choices, place.registry, partial=partial)
        lost, elsewhere = plan.diverged[recipe.name], plan.elsewhere[recipe.name]
        record = assemble(recipe, cells, filled, text, lost, elsewhere)
        if why := why_not_overwrite(record, place.out):
            faults[f"writing {recipe.name}"] = why
        else:
            written += write(record, place.out)
    return written, faults


def completed(plan: Plan, say: Log) -> tuple[Plan, dict[str, str]]:
    """Train and measure what a plan lacks; return the plan then, and the faults by job title."""
    place = plan.place
    faults = _run(plan.training_jobs(), place, say)
    plan = plan.refreshed(partial=plan.partial or bool(faults))
    failed = _run(plan.measuring_jobs(), place, say)
    faults |= {title: why for title, why in failed.items() if title not in plan.optional} | plan.faults
    plan = plan.refreshed(partial=plan.partial)
    for run, round in plan.divergences().items():
        say(f"{run} diverged in round {round}: its cells say so; the run is not trained again")
    return plan, faults


def command(recipe: Recipe, choices: Choices, registry: Path, *, partial: bool) -> str:
    """Return the command that builds an artefact; it names no folder outside the working directory."""
    build = f"fedscope figures build {recipe.name} --scale {recipe.scale.name}"
    words = [f"{build}{registry_option(registry)}"]
    words += [f"--seeds {','.join(map(str, choices.seeds))}"] if choices.seeds else []
    words += [f"--only {row!r}" if " " in row else f"--only {row}" for row in choices.rows or ()]
    words += [f"--rounds {choices.rounds}"] if choices.rounds else []
    return " ".join([*words, "--partial"] if partial else words)


def _run(jobs: Sequence[Computation], place: BuildSettings, say: Log) -> dict[str, str]:
    return run_all(jobs, workers=place.workers, threads=place.threads, device=place.device, say=say)
