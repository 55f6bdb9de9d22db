"""The command line of a study: as `fedscope figures build`, of one artefact."""

import sys
from pathlib import Path

import click

from fedscope.cli.figures import gallery_option, scale_option
from fedscope.cli.options import shared
from fedscope.cli.options.command import HELP, Command
from fedscope.cli.terminal import console
from fedscope.errors import UserError, suggestion
from fedscope.process import use_device
from fedscope.reproduce.gallery.gallery import SENTENCE, SUFFIXES
from fedscope.reproduce.plan import BuildSettings
from fedscope.reproduce.recipes.run_cells import Choices, rows
from fedscope.storage import check_target
from studies.study import Study, build


def run(study: Study) -> None:
    """Run a study's command and exit: with 0 if all was done, with 2 and one line if the user can mend it."""
    try:
        module = type(study).__module__.rpartition(".")[0]
        _command(study).main(prog_name=f"python -m {module}", standalone_mode=False)
    except (UserError, click.ClickException) as error:
        text = error.format_message() if isinstance(error, click.ClickException) else str(error)
        print(f"Error: {' '.join(text.split())}", file=sys.stderr)
        sys.exit(2)


def _command(study: Study) -> click.Command:
    """Return the command that builds a study's artefact."""

    @click.command(cls=Command, context_settings=HELP)
    @click.argument("name", default=study.name, metavar="[NAME]")
    @scale_option
    @shared.registry
    @shared.data_dir
    @gallery_option
    @click.option("--workers", type=click.IntRange(1), default=1, show_default=True,
                  help="Runs and measurements at a time; they change no bit of any.")  # fmt: skip
    @click.option("--threads", type=click.IntRange(1), default=1, show_default=True,
                  help="CPU threads of each; the bits depend on them.")  # fmt: skip
    @shared.device
    @click.option("--seeds", type=shared.SEEDS, metavar="A,B,…",
                  help="Seeds of the runs. [default: the scale's]")  # fmt: skip
    @click.option("--only", multiple=True, metavar="METHOD", help="Only this row; may be repeated.")
    @click.option("--rounds", type=click.IntRange(1), help="Cut every run to this many rounds.")
    @click.option("--partial", is_flag=True, help="Train nothing: measure and render what the registry has.")
    def command(
        name: str,
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
    ) -> None:
        """Build the study's artefact: train and measure what the registry lacks, infer, and render.

        Run the same command again after an interruption: it goes on where it stopped.
        """
        if name != study.name:
            raise UserError(f"this study builds {study.name}, not {name!r}{suggestion(name, [study.name])}")
        place = BuildSettings(registry, out, data_dir, str(use_device(device, threads)), threads, workers)
        _build(study, scale, Choices(seeds, only or None, rounds), place, partial=partial)

    return command


def _build(study: Study, scale: str, choices: Choices, place: BuildSettings, *, partial: bool) -> None:
    recipe = study.recipe(scale)
    rows(recipe, choices.rows)
    for suffix in (*SUFFIXES, SENTENCE.removeprefix(".")):
        check_target(Path(f"{place.out / recipe.stem}.{suffix}"))
    written, faults = build(study, recipe, choices, place, console.note, partial=partial)
    for path in written:
        print(path)
    if faults:
        (first, why), more = next(iter(faults.items())), len(faults) - 1
        raise UserError(f"{first} failed{f', and {more} more' if more else ''}: {why}")
