"""`fedscope runs verify`, `export` and `import`: the registry's files, checked and carried."""

from pathlib import Path

import click

from fedscope.checkpoints.file import layout
from fedscope.checkpoints.registry.method_code import changed_methods
from fedscope.checkpoints.registry.run_registry import RunFolder, RunRegistry
from fedscope.cli.options import completion, shared
from fedscope.cli.options.command import Command
from fedscope.cli.options.config import config
from fedscope.cli.runs.show import RECORDS, links
from fedscope.cli.terminal import console
from fedscope.cli.terminal.readable import safe
from fedscope.errors import UserError
from fedscope.storage import write_text


@click.command("verify", cls=Command, examples={"fedscope runs verify": "every file of the registry"})
@click.argument("runs", nargs=-1, metavar="[RUN|FILE]...", shell_complete=completion.checkpoints)
@shared.registry
@shared.json_target
def verify_command(runs: tuple[str, ...], registry: Path, json_target: str | None) -> None:
    """Read every file of the registry, or of some runs, and check that all is there and unchanged.

    Of a figure or an analysis (.json), the checkpoints are checked that it was made from. One line per
    fault; the exit code is 2 if there is any. Models that were deleted, and of which the manifest has the
    hash, are no fault: they are named as elsewhere.
    """
    from fedscope.checkpoints.file.checkpoint import listed
    from fedscope.checkpoints.verification.verify import Fault, elsewhere, is_busy, verify_root, verify_run

    store = RunRegistry(registry)
    records = [name for name in runs if Path(name).suffix.lower() in RECORDS]
    named = [store.run(name) for name in runs if name not in records]
    if not runs:
        named = store.existing()
    faults = [] if runs else list(verify_root(store))
    files, notes = 0, list[str]()
    with console.progress("verify") as report:

        def count(name: str) -> None:
            nonlocal files
            files += 1
            report(files, None, name)

        for run in named:
            own = list(verify_run(run, count))
            if own and is_busy(run):  # its files are of several moments
                own = [Fault(run.name, "is being trained; verify it when that has ended")]
            faults += own
            notes += _changed(run)
        for name in records:
            count(name)
            faults += [Fault(name, f"{link.name}: {link.fault}") for link in links(store, name) if link.fault]
        report(files)
    for text in notes:
        console.note(text)
    away = [f"{run.name}/{name}" for run in named for name in elsewhere(run)]
    if away:
        shown = listed(away, most=_SHOWN)
        console.note(
            f"elsewhere {'is' if len(away) == 1 else 'are'} {shown}; `fedscope runs pull` fetches them"
        )
    found = [{"path": fault.path, "problem": fault.problem} for fault in faults]
    only_json = console.in_json(json_target, {"files": files, "faults": found, "elsewhere": away})
    if not only_json:
        for fault in faults:
            print(safe(f"{fault.path}: {fault.problem}"))
    if faults:
        raise UserError(f"{len(faults)} {'fault' if len(faults) == 1 else 'faults'} in {files} files")
    if not only_json:
        print(f"{files} files, no fault")


_SHOWN = 8  # models that are elsewhere


def _changed(run: RunFolder) -> list[str]:
    try:
        return [f"{run.name}: {text}" for text in changed_methods(run.manifest())]
    except UserError:
        return []


FORMATS = ("state_dict", "safetensors", "peft", "pretrained")  # of a checkpoint's weights


@click.command(
    "export",
    cls=Command,
    examples={
        "fedscope runs export a --out a.tar": "a whole run as one file",
        "fedscope runs export a@best --format safetensors --out a.safetensors": "weights for other programs",
        "fedscope runs export a --format peft --out adapters": "LoRA adapters, as a folder of peft's",
    },
)
@click.argument("what", metavar="RUN|CKPT", shell_complete=completion.checkpoints)
@click.option("--format", "kind", type=click.Choice([*FORMATS, "archive", "config"]),
              default="archive", show_default=True)  # fmt: skip
@click.option("--out", required=True, type=click.Path(path_type=Path), metavar="FILE",
              callback=shared.writable)  # fmt: skip
@shared.registry
def export_command(what: str, kind: str, out: Path, registry: Path) -> None:
    """Write a run as one portable file, a checkpoint's weights for other programs, or a run's settings.

    Of LoRA adapters, peft makes the folder of the adapters alone; pretrained, of any run on a network of
    Hugging Face's, that of the whole network with the adapters merged in.

    An archive of RUN holds all of it, one of RUN@best or RUN@25 that checkpoint alone; `runs import` takes
    both. The config is TOML for `fedscope train --config`.
    """
    store = RunRegistry(registry)
    if kind == "archive":
        from fedscope.checkpoints.travel.archive import export_run

        run, only = _run_of(store, what)
        export_run(run, out, only)
    elif kind == "config":
        write_text(out, config(store.run(what.partition("@")[0]).manifest()), below=None)
    else:
        from fedscope.workflows.export import WRITERS

        WRITERS[kind](store.resolve(what), out)
    print(str(out))


@click.command("import", cls=Command)
@click.argument("archive", type=click.Path(path_type=Path))
@click.option("--name", help="Name of the run here. [default: its own]")
@shared.registry
def import_command(archive: Path, name: str | None, registry: Path) -> None:
    """Add the run in an archive to the registry, once every hash in it is checked."""
    from fedscope.checkpoints.travel.archive import import_run

    print(import_run(RunRegistry(registry), archive, name).name)


def _run_of(store: RunRegistry, what: str) -> tuple[RunFolder, Path | None]:
    if Path(what).is_file() or "@" in what:
        path = store.resolve(what)
        folder = layout.run_of(path)
        if folder is None:
            raise UserError(f"{path} lies in no run; use --format state_dict or safetensors")
        return RunFolder(folder), folder / path.absolute().relative_to(folder)
    return store.run(what), None
