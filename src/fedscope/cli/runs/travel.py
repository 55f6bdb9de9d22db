"""`fedscope runs push` and `pull`: runs carried to a folder or a store elsewhere, and back."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fedscope.checkpoints.registry.run_registry import RunRegistry
from fedscope.cli.options import completion, shared
from fedscope.cli.options.command import Command
from fedscope.cli.terminal import console
from fedscope.errors import UserError

if TYPE_CHECKING:
    from fedscope.checkpoints.travel.push import Journey, Report

EVERY = click.option("--all", "every", is_flag=True, help="Every run, in place of RUN….")


@click.command(
    "push",
    cls=Command,
    examples={
        "fedscope runs push flat s3://bucket/runs": "one run to S3",
        "fedscope runs push --all /mnt/shared/runs": "the whole registry to a mounted disk",
    },
)
@click.argument("runs", nargs=-1, metavar="[RUN]...", shell_complete=completion.runs)
@click.argument("url")
@EVERY
@shared.registry
@shared.json_target
def push_command(
    runs: tuple[str, ...], url: str, every: bool, registry: Path, json_target: str | None
) -> None:
    """Send runs, with the results of their models, to a folder, or to a store: s3:, gs:, hf:.

    Only what is not there yet is sent, and a run is there once all of it is. After an interruption the same
    command goes on. Credentials are those of the store's own programs.
    """
    from fedscope.checkpoints.travel.places import remote
    from fedscope.checkpoints.travel.push import push_run  # torch: not for --help

    store = RunRegistry(registry)
    if not every and not runs and url in (run.name for run in store.folders()):
        raise UserError(f"where to push {url!r}? name a folder or a URL behind it")
    place = remote(url)
    _travel("push", "sent", _runs_here(store, runs, every), json_target, lambda name, report: push_run(
        store.run(name), place, report
    ))  # fmt: skip


@click.command(
    "pull",
    cls=Command,
    examples={
        "fedscope runs pull flat s3://bucket/runs": "one run from S3",
        "fedscope runs pull --all https://example.org/runs": "every run that a web server shows",
        "fedscope runs pull --all git:": "models that `runs delete` took, from the repository's history",
    },
)
@click.argument("runs", nargs=-1, metavar="[RUN]...")
@click.argument("url")
@EVERY
@click.option("--name", help="Name of the run here. [default: its own]")
@shared.registry
@shared.json_target
def pull_command(
    runs: tuple[str, ...], url: str, every: bool, name: str | None, registry: Path, json_target: str | None
) -> None:
    """Fetch runs that were pushed to a folder or a store: s3:, gs:, hf:, https:.

    Every file is compared with its hash and the run checked before it appears. After an interruption the
    same command goes on. A run that is here already gets back the models that `runs delete` took from it,
    and stays as it is otherwise. git: has these alone, from the history of the registry's repository.
    """
    from fedscope.checkpoints.travel import history
    from fedscope.checkpoints.travel.places import remote, runs_at
    from fedscope.checkpoints.travel.pull import pull_run

    store = RunRegistry(registry)
    if url == history.URL:
        if name is not None:
            raise UserError(
                "--name has no effect with git:, which gives runs that are here their models back"
            )
        named = _runs_here(store, runs, every)
        with history.history(store.root) as commits:
            _travel("pull", "fetched", named, json_target, lambda one, report: history.pull_deleted(
                store.run(one), commits, report, needed=not every
            ))  # fmt: skip
        return
    place = remote(url)
    names = runs_at(place) if _all(runs, every) else list(dict.fromkeys(runs))
    if not names:
        raise UserError(f"{url} shows no pushed run; name the run, or the URL that `runs push` was given")
    if name is not None and len(names) > 1:
        raise UserError(f"--name is for one run, not for {len(names)}; pull them one by one")
    _travel("pull", "fetched", names, json_target, lambda one, report: pull_run(
        store, place, one, report, name
    ))  # fmt: skip


def _runs_here(store: RunRegistry, runs: Sequence[str], every: bool) -> list[str]:
    found = store.existing() if _all(runs, every) else [store.run(name) for name in dict.fromkeys(runs)]
    return [run.name for run in found]


def _all(runs: Sequence[str], every: bool) -> bool:
    if every and runs:
        raise UserError("name runs before the URL or give --all, not both")
    if not every and not runs:
        raise UserError("name one or more runs before the URL, or give --all")
    return every


def _travel(
    title: str,
    done: str,
    names: Sequence[str],
    json_target: str | None,
    carry: "Callable[[str, Report], Journey]",
) -> None:
    journeys = []
    for name in names:
        with console.progress(f"{title} {name}, kB") as report:
            found = carry(name, report)
        journeys.append(found)
        if json_target != "-":
            none = "nothing to fetch" if found.nowhere else "all was there"
            moved = f"{found.moved_bytes / 1e6:.1f} MB {done}" if found.moved else none
            lost = f"; no commit holds {', '.join(found.nowhere)}" if found.nowhere else ""
            print(f"{found.run}: {found.files} files, {found.bytes / 1e6:.1f} MB; {moved}{lost}")
    console.in_json(json_target, [asdict(one) for one in journeys])
