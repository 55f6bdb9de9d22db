"""`fedscope sweep`: one job for each checkpoint and each value of an option, here or as a Slurm array."""

import shlex
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from fedscope.cli.options import shared
from fedscope.cli.options.command import Command
from fedscope.cli.terminal import console
from fedscope.errors import UserError
from fedscope.workflows.sweep import file
from fedscope.workflows.sweep.jobs import Job, frozen, run_all, write_array

EXAMPLES = {
    "fedscope sweep sweep.toml --dry-run": "the command lines, and which are done",
    "fedscope sweep sweep.toml": "on this machine, one after the other",
    "fedscope sweep sweep.toml --slurm": "write a Slurm array; sbatch takes it",
}


@click.command("sweep", cls=Command, examples=EXAMPLES)
@click.argument("path", metavar="FILE", type=click.Path(path_type=Path))
@shared.threads
@click.option("--out", type=click.Path(path_type=Path, file_okay=False),
              help="Folder of results and logs. [default: FILE's name without .toml]")  # fmt: skip
@click.option("--slurm", "as_array", is_flag=True, help="Run nothing: write a Slurm array of what is left.")
@click.option("--task", type=click.IntRange(0), help="Run this job alone, of the list of an array.")
@click.option("--dry-run", is_flag=True, help="Say what would run.")
@click.option("--again", is_flag=True, help="Run what is done once more; what is trained stays.")
@shared.registry
@shared.json_target
def command(
    path: Path,
    threads: int | None,
    out: Path | None,
    as_array: bool,
    task: int | None,
    dry_run: bool,
    again: bool,
    registry: Path,
    json_target: str | None,
) -> None:
    """Run a command for many checkpoints, or with many values of its options.

    FILE is a .toml file of jobs (see the documentation); every command line of it is checked before the first
    one runs. All results come into one registry. The same command again does what is left.
    """
    if task is not None:
        _run_task(path, task)
        return
    out = out or path.with_suffix("")
    content = file.read(path)
    jobs = [Job(*one) for one in file.expand(content, registry, out, threads, _off).items()]
    check(jobs)
    for job in jobs:
        job.check(out)
    if again and not dry_run:
        for job in jobs:
            job.forget(out)
    if dry_run:
        if not console.in_json(json_target, _record(jobs, out, {})):
            console.show(_planned(jobs, out))
        return
    if as_array:
        batch = write_array(jobs, content.slurm, out, path.stem)
        if not console.in_json(json_target, _record(jobs, out, {})):
            console.note(f"hand it in with: sbatch {shlex.quote(str(batch))}")
            print(batch)
        return
    faults = run_all(jobs, out, _call, console.note)
    if not console.in_json(json_target, _record(jobs, out, faults)):
        console.show(_ended(jobs, out, faults))
    if faults:
        raise UserError(
            f"{len(faults)} of {len(jobs)} jobs failed; mend that, and the same command runs them again (a "
            "training with other settings, once its run is deleted or its group has another name)"
        )


def _resolved(words: Sequence[str]) -> tuple[click.Context, click.Command, list[str]]:
    root = click.get_current_context().find_root()
    assert isinstance(root.command, click.Group)
    _, own, rest = root.command.resolve_command(root, list(words))
    assert own
    return root, own, rest


def _off(command: str, flag: str) -> str | None:
    """Return the flag that turns an option of a command off, such as ``--no-nesterov``; None: it has none."""
    _, own, _ = _resolved([command])
    return next((name for one in own.params if flag in one.opts for name in one.secondary_opts), None)


def check(jobs: Sequence[Job]) -> None:
    """Parse every command line as it will be parsed, so that a wrong option is said before any job runs."""
    for job in jobs:
        root, own, words = _resolved(job.words)
        try:
            own.make_context(job.words[0], words, parent=root)
        except (click.ClickException, UserError) as error:
            said = error.format_message() if isinstance(error, click.ClickException) else error
            raise UserError(f"{job.name}: {said}") from error


def _call(words: Sequence[str]) -> str | None:
    """Run a command line as a process of its own would; return why it failed, if it did."""
    from fedscope.process import threads_kept  # torch: not for --help

    main = click.get_current_context().find_root().command
    try:
        with threads_kept(), main.make_context("fedscope", list(words)) as context:
            main.invoke(context)
    except Exception as error:
        if isinstance(error, click.ClickException):
            return error.format_message()
        if not isinstance(error, UserError):
            traceback.print_exc()  # to the log
        return " ".join(str(error).split()) or type(error).__name__
    return None


def _run_task(path: Path, task: int) -> None:
    jobs = frozen(path)
    if task >= len(jobs):
        raise UserError(f"{path} has {len(jobs)} jobs, from 0 to {len(jobs) - 1}; there is no {task}")
    job, out = jobs[task], path.parent
    job.check(out)
    if run_all([job], out, _call, print):
        raise click.exceptions.Exit(2)


def _record(jobs: Sequence[Job], out: Path, faults: dict[str, str]) -> list[dict[str, object]]:
    return [
        {
            "name": job.name,
            "command": list(job.words),
            "done": job.done(out),
            "fault": faults.get(job.name),
            "log": str(job.log(out)),
            "result": f"{out / job.name}.json",
        }
        for job in jobs
    ]


def _planned(jobs: Sequence[Job], out: Path) -> Iterator[console.Piece]:
    for job in jobs:
        yield "line", f"{'done' if job.done(out) else 'to do'}  fedscope {shlex.join(job.now())}"


def _ended(jobs: Sequence[Job], out: Path, faults: dict[str, str]) -> Iterator[console.Piece]:
    rows = [[job.name, "failed" if job.name in faults else "done", f"{out / job.name}.json"] for job in jobs]
    notes = [f"logs beside the results, in {out}"]
    yield "table", "Sweep", ["job", "ended", "result"], rows, notes, {"text_columns": 3}
    for name, why in faults.items():
        yield "text", f"{name}: {why}"
