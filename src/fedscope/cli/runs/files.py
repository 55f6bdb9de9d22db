"""`fedscope runs verify` and `export`: the registry's files, checked and written for other programs."""

from pathlib import Path

import click

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
        "fedscope runs export a@best --out a.pt": "weights for other programs",
        "fedscope runs export a --format peft --out adapters": "LoRA adapters, as a folder of peft's",
    },
)
@click.argument("what", metavar="RUN|CKPT", shell_complete=completion.checkpoints)
@click.option("--format", "kind", type=click.Choice([*FORMATS, "config"]),
              default=FORMATS[0], show_default=True)  # fmt: skip
@click.option("--out", required=True, type=click.Path(path_type=Path), metavar="FILE",
              callback=shared.writable)  # fmt: skip
@shared.registry
def export_command(what: str, kind: str, out: Path, registry: Path) -> None:
    """Write a checkpoint's weights for other programs, or a run's settings.

    Of LoRA adapters, peft makes the folder of the adapters alone; pretrained, of any run on a network of
    Hugging Face's, that of the whole network with the adapters merged in.

    The config is TOML for `fedscope train --config`. A whole run travels by `fedscope runs push`.
    """
    if kind == "config":
        manifest = RunRegistry(registry).run(what.partition("@")[0]).manifest()
        write_text(out, config(manifest), below=None)
    else:
        from fedscope.workflows.export import WRITERS

        WRITERS[kind](RunRegistry(registry).resolve(what), out)
    print(str(out))
