"""From recipes to artefacts: what is needed, what the registry has of it, and the rest computed.

Nothing is computed that the registry has, and everything that is computed is kept there, so that a build that
was interrupted anywhere goes on where it stopped.
"""

from collections.abc import Sequence
from pathlib import Path

from fedscope.records.commands import registry_option
from fedscope.reproduce.artefacts.artefact import assemble
from fedscope.reproduce.gallery.gallery import why_not_overwrite, write
from fedscope.reproduce.plan import Place, Plan
from fedscope.reproduce.recipes.cells import Choices
from fedscope.reproduce.recipes.spec import Recipe
from fedscope.reproduce.runs.jobs import Job, Log, run_all


def build(
    recipes: Sequence[Recipe], choices: Choices, place: Place, say: Log, *, partial: bool = False
) -> tuple[list[Path], dict[str, str]]:
    """Train and measure what is missing, then write the artefacts; return the files, and what went wrong.

    Args:
        recipes: each at its scale.
        choices: what is narrowed of them.
        place: registry, gallery, and how to compute.
        say: told every step.
        partial: train nothing; runs that have not come as far stand in their cells as far as they are.
    """

    plan, written = Plan(recipes, choices, place, partial=partial), list[Path]()
    faults = _run(plan.training_jobs(), place, say)
    plan.refresh(partial=partial or bool(faults))
    faults |= _run(plan.measuring_jobs(), place, say) | plan.faults
    plan.refresh(partial=plan.partial)
    for run, round in plan.divergences().items():
        say(f"{run} diverged in round {round}: its cells say so, and it is not trained again")
    for recipe in recipes:
        cells, filled = plan.cells[recipe.name], plan.filled[recipe.name]
        told = command(recipe, choices, place.registry, partial=partial)
        record = assemble(recipe, cells, filled, told, plan.diverged[recipe.name])
        if why := why_not_overwrite(record, place.out):
            faults[f"writing {recipe.name}"] = why
        else:
            written += write(record, place.out)
    return written, faults


def command(recipe: Recipe, choices: Choices, registry: Path, *, partial: bool) -> str:
    """Return the command that builds an artefact; it names no folder outside the one it is given in."""
    build = f"fedscope figures build {recipe.name} --scale {recipe.scale.name}"
    words = [f"{build}{registry_option(registry)}"]
    words += [f"--seeds {','.join(map(str, choices.seeds))}"] if choices.seeds else []
    words += [f"--only {row!r}" if " " in row else f"--only {row}" for row in choices.rows or ()]
    words += [f"--rounds {choices.rounds}"] if choices.rounds else []
    return " ".join([*words, "--partial"] if partial else words)


def _run(jobs: Sequence[Job], place: Place, say: Log) -> dict[str, str]:
    return run_all(jobs, workers=place.workers, threads=place.threads, device=place.device, say=say)
