"""`fedscope runs`: what the registry holds."""

import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path

import click

from fedscope.checkpoints.file.settings import Settings
from fedscope.checkpoints.registry.best import best, chosen_on
from fedscope.checkpoints.registry.deletion import delete_checkpoints, delete_clients, delete_steps
from fedscope.checkpoints.registry.run_registry import COLUMNS, Row, RunFolder, RunRegistry
from fedscope.cli.options import completion, shared
from fedscope.cli.options.command import CommandGroup, OptionRule
from fedscope.cli.runs import add
from fedscope.cli.runs.files import export_command, verify_command
from fedscope.cli.runs.show import show_command
from fedscope.cli.runs.travel import pull_command, push_command
from fedscope.cli.terminal import console
from fedscope.errors import UserError, suggestion
from fedscope.workflows.option_fields import Rule

_TEXTS = 7  # columns of names and words
_DROP = ("tags", "clients", "created", "partition", "model", "best", "rounds", "dataset", "done", "status")
_SHARES = ("accuracy", "best")
_AT_MOST = 12  # columns of a table by default: the tags come when there are any
_NEWEST = "-created"
PAGE = 100  # runs that a terminal is shown at once
SOON = 2.0  # seconds of a listing that need no word


@click.group("runs", cls=CommandGroup)
def command() -> None:
    """List, show, compare, verify, export, push and pull the registry's runs."""


def _filter(name: str) -> shared.Decorator:
    return click.option(
        f"--{name}", metavar="PATTERN", help=f"Only runs whose {name} matches, such as 'fed*'."
    )


@command.command(
    "list",
    examples={
        "fedscope runs list --method 'fed*' --sort -accuracy": "the most accurate runs of some methods"
    },
)
@_filter("method")
@_filter("dataset")
@_filter("model")
@_filter("partition")
@click.option(
    "--status",
    type=click.Choice(["finished", "unfinished", "diverged", "unreadable"]),
    help="Only such runs.",
)
@click.option("--tag", multiple=True, help="Only runs with this tag; may be repeated.")
@click.option("--sort", metavar="COLUMN", default=_NEWEST, show_default=True,
              help="Sort by a column; with - before it, downwards.")  # fmt: skip
@click.option("--columns", metavar="A,B,…", help="Which columns: of the table, or any option of `train`.")
@click.option("--page", type=click.IntRange(1),
              help=f"Which {PAGE} of the runs. [default: on a terminal the first, else all]")  # fmt: skip
@shared.registry
@shared.json_target
def list_runs(
    registry: Path,
    json_target: str | None,
    sort: str,
    columns: str | None,
    page: int | None,
    tag: tuple[str, ...],
    **patterns: str | None,
) -> None:
    """List runs, newest first."""
    store = RunRegistry(registry)
    if page is None and json_target is None and sys.stdout.isatty():
        page = 1
    chosen_by = any((*patterns.values(), *tag, sort != _NEWEST))
    with console.progress("runs read anew", least=SOON) as report:
        every, count = store.newest_rows(page * PAGE if page and not chosen_by else None, report)
    if why := store.without_index():
        console.note(f"listed from the runs' files, without an index: {why}")
    rows = every
    if chosen_by:
        rows = [row for row in every if _matches(row, patterns) and set(tag) <= set(_tags(row))]
        rows, count = _sorted(rows, sort), len(rows)
    if page:
        rows = _on_page(rows, page, count)
    tagged = any(map(_tags, rows))
    default = COLUMNS if tagged or json_target else COLUMNS[:_AT_MOST]
    chosen = [_column(name.strip()) for name in columns.split(",")] if columns else list(default)
    content = [{column: row.get(column) for column in chosen} for row in rows]
    if "best" in chosen:
        content = [{**one, "chosen_on": chosen_on(row)} for one, row in zip(content, rows, strict=True)]
    if console.in_json(json_target, content):
        return
    if not rows:
        why = "no run that matches" if every else "no run yet; `fedscope train` makes one"
        console.note(f"the registry {registry} holds {why}")
    else:
        shown = [{**row, "created": str(row["created"])[:16].replace("T", " ")} for row in rows]  # UTC
        cells = [
            [(console.percent if column in _SHARES else console.cell)(row.get(column)) for column in chosen]
            for row in shown
        ]
        texts = len(chosen) if columns else _TEXTS
        drop = () if columns else _DROP
        for row in rows:
            if row["status"] == "unreadable":
                mend = f"fedscope runs verify {row['name']}{RunRegistry(registry).flag}"
                console.note(f"{row['name']} cannot be read; `{mend}` says why")
        notes = _chosen_on(rows) if "best" in chosen else []
        console.print_table(f"Runs in {registry}", chosen, cells, notes, text_columns=texts, drop=drop)


def _on_page(rows: Sequence[Row], page: int, count: int) -> list[Row]:
    pages = max(1, -(-count // PAGE))
    if page > pages:
        raise UserError(f"there are {count} runs on {pages} pages; --page takes 1 to {pages}")
    if pages > 1:
        console.note(f"page {page} of {pages} ({count} runs); --page N shows others, `| less` all")
    return list(rows[(page - 1) * PAGE : page * PAGE])


@command.command("rebuild")
@shared.registry
def rebuild(registry: Path) -> None:
    """Make the index anew from the files."""
    rows = RunRegistry(registry).rebuild()
    print(f"{len(rows)} runs")


@command.command("diff")
@click.argument("first", metavar="A", shell_complete=completion.runs)
@click.argument("second", metavar="B", shell_complete=completion.runs)
@shared.registry
@shared.json_target
def diff(first: str, second: str, registry: Path, json_target: str | None) -> None:
    """Compare two runs: the settings in which they differ, and where they got."""
    store = RunRegistry(registry)
    runs = store.run(first), store.run(second)
    one, two = map(_described, runs)
    keys = [key for key in {**one, **two} if one.get(key) != two.get(key)]
    if console.in_json(json_target, {key: [one.get(key), two.get(key)] for key in keys}):
        return
    if not keys:
        print(f"{first} and {second} have the same settings, metrics and versions")
    else:
        shown = [console.percent if key.endswith(" accuracy") else console.cell for key in keys]
        cells = [[key, show(one.get(key)), show(two.get(key))] for key, show in zip(keys, shown, strict=True)]
        console.print_table(f"{first} and {second}", ["differs", first, second], cells, text_columns=3)


@command.command("tag", rules=(Rule("remove", lambda v: v["tags"], "without tags"),))
@click.argument("run", shell_complete=completion.runs)
@click.argument("tags", nargs=-1)
@click.option("--remove", is_flag=True, help="Take the tags away.")
@shared.registry
def tag(run: str, tags: tuple[str, ...], remove: bool, registry: Path) -> None:
    """Give a run tags, or list those it has."""
    found = RunRegistry(registry).run(run)
    for name in tags:
        if remove:
            found.untag(name)
        else:
            found.tag(name)
    print(" ".join(found.tags()) or "no tags")


_CLIENTS: OptionRule = Rule(
    "local_steps", lambda v: not v["clients"], "with --clients, which deletes them too"
)


@command.command("delete", rules=(_CLIENTS,))
@click.argument("runs", nargs=-1, required=True, shell_complete=completion.runs)
@click.option("--clients", is_flag=True, help="Only the clients' models; the rest of the run stays.")
@click.option("--local-steps", is_flag=True, help="Only the models inside the clients' training.")
@click.option(
    "--checkpoint",
    "checkpoints",
    multiple=True,
    metavar="FILE",
    help="Only this global model, such as best.pt; what was measured of it stays. May be repeated.",
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@shared.registry
def delete(
    runs: tuple[str, ...],
    clients: bool,
    local_steps: bool,
    checkpoints: tuple[str, ...],
    yes: bool,
    registry: Path,
) -> None:
    """Delete runs with all their checkpoints."""
    if checkpoints and (clients or local_steps):
        raise UserError("--checkpoint deletes global models alone; leave out --clients and --local-steps")
    store, files = RunRegistry(registry), ", ".join(dict.fromkeys(checkpoints))
    found = [store.run(name) for name in dict.fromkeys(runs)]
    single = partial(delete_checkpoints, names=checkpoints)
    parts: list[tuple[object, str, str, Callable[[RunFolder], int] | None]] = [
        (clients, "the clients of ", "clients' models", delete_clients),
        (local_steps, "the local steps of ", "models of local steps", delete_steps),
        (files, f"{files} of ", f"global models ({files})", single),
        (True, "", "", None),
    ]
    _, part, models, delete_part = next(one for one in parts if one[0])
    what = f"{part}{', '.join(run.name for run in found)}"
    if not yes:
        if not sys.stdin.isatty():
            raise UserError(f"deleting {what} needs an answer; add --yes")
        if not click.confirm(f"Delete {what} from {registry}?"):
            return
    if delete_part is None:
        for run in found:
            store.delete(run)
            print(f"deleted {run.name}")
        return
    counts = {run.name: delete_part(run) for run in found}
    if not any(counts.values()):
        raise UserError(f"{', '.join(counts)}: there are no {models}, so that nothing was deleted")
    for name, count in counts.items():
        print(f"deleted {count} {models} of {name}" if count else f"{name} has no {models}")


for _command in (
    show_command, verify_command, export_command, push_command, pull_command, add.command
):  # fmt: skip
    command.add_command(_command)


def _matches(row: Row, patterns: Mapping[str, str | None]) -> bool:
    return all(p is None or fnmatchcase(str(row.get(key)), p) for key, p in patterns.items())


def _chosen_on(rows: Sequence[Row]) -> list[str]:
    runs = defaultdict[str, list[str]](list)
    for row in rows:
        if split := chosen_on(row):
            runs[split].append(str(row["name"]))
    if len(runs) < 2:
        return [f"best: chosen on {split}" for split in runs]
    return [f"best: chosen on {split} in {', '.join(names)}" for split, names in runs.items()]


def _tags(row: Row) -> list[str]:
    tags = row.get("tags")
    return tags if isinstance(tags, list) else []


def _column(name: str) -> str:
    known = [*COLUMNS, *(field for field in Settings.model_fields if field not in COLUMNS)]
    if name not in known:
        hint = suggestion(name, known) or f"; use any of {', '.join(known)}"
        raise UserError(f"there is no column {name!r}{hint}")
    return name


def _sorted(rows: Sequence[Row], sort: str) -> list[Row]:
    column, down = _column(sort.removeprefix("-")), sort.startswith("-")
    valued = [row for row in rows if row.get(column) is not None]

    def key(row: Row) -> tuple[bool, float, str]:
        value = row[column]
        number = isinstance(value, int | float)
        return (not number, float(str(value)) if number and not isinstance(value, bool) else 0, str(value))

    return sorted(valued, key=key, reverse=down) + [row for row in rows if row.get(column) is None]


def _described(run: RunFolder) -> dict[str, object]:
    """Return what is compared, flat: settings, model, data, versions, and what the rounds came to."""
    manifest, metrics = run.manifest(), run.metrics()
    parts: dict[str, object] = {k: v for k, v in manifest.stated().items() if k != "options"}
    parts |= {f"option {key}": value for key, value in manifest.settings.options.items()}
    for section, record in (("model", manifest.model), ("data", manifest.data)):
        parts |= {f"{section} {key}": value for key, value in record.model_dump(mode="json").items()}
    parts |= {f"code of {one.method}": one.text for one in manifest.methods}
    parts |= {f"version {key}": value for key, value in manifest.versions.items()}
    top, split = best(metrics), chosen_on(manifest.stated())
    last = metrics[-1] if metrics else None
    results = {"rounds done": len(metrics), "best accuracy": top and top.accuracy, "best chosen on": split}
    return (
        parts
        | results
        | {f"final {key}": last and getattr(last, key) for key in ("accuracy", "loss", "train_loss")}
    )
