"""`fedscope data`: which data sets there are, where they come from, and whether one is here and whole."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click

from fedscope.cli.options import completion, shared
from fedscope.cli.options.command import LazyGroup
from fedscope.workflows.results.stored_answers import Answer

LAZY = {"plot-partition": ("plot_partition", "Draw which classes each client holds.")}


@click.group("data", cls=LazyGroup, lazy=LAZY)
def command() -> None:
    """List the data sets, show one, check that one is here and whole, or draw a partition."""


@command.command("list")
@shared.data_dir
@shared.json_target
def list_data(data_dir: Path | None, json_target: str | None) -> None:
    """List all data sets, and where each would come from."""
    from fedscope.cli.terminal import answers
    from fedscope.data.loading.data_folder import root
    from fedscope.storage import cache_dir

    fetched = sorted(str(file) for file in cache_dir().glob("*-hub/meta.json"))
    folder = root(data_dir)
    answers.print_or_make(
        partial(_listed, data_dir), json_target, [folder] if folder else [],
        command="data list", folder=folder, fetched=fetched,
    )  # fmt: skip


def _listed(data_dir: Path | None) -> Answer:
    from fedscope.data.sets.dataset_catalogue import DATASETS
    from fedscope.data.sets.inspection import describe, whereabouts
    from fedscope.own import DATASETS as REGISTERED
    from fedscope.own import registered

    places = {name: whereabouts(entry, data_dir) for name, entry in DATASETS.items()}
    found = [describe(DATASETS[name]) | {"here": place} for name, place in places.items()]
    others = registered(REGISTERED)
    rows = [
        [
            name, entry.title, place, str(entry.classes), str(len(entry.domains) or ""), f"{entry.side}",
            *(f"{entry.expected[split]:,}" if split in entry.expected else "" for split in ("train", "test")),
        ]
        for (name, entry), place in zip(DATASETS.items(), places.values(), strict=True)
    ]  # fmt: skip
    columns = ["name", "what", "where", "classes", "domains", "side", "train", "test"]
    drop = ("domains", "side", "what", "classes", "test", "train", "where")
    shown: list[Sequence[Any]] = [("table", "Data sets", columns, rows, {"text_columns": 3, "drop": drop})]
    if others:
        factories = list(others.items())
        shown.append(("table", "Of other packages", ("name", "factory"), factories, {"text_columns": 2}))
    return Answer([*found, *({"name": name, "factory": factory} for name, factory in others.items())], shown)


@command.command("show")
@click.argument("name", shell_complete=completion.names_of("dataset"))
@shared.json_target
def show(name: str, json_target: str | None) -> None:
    """Show a data set: its splits, files, source, licence, pipelines and default network."""
    from fedscope.cli.terminal import console
    from fedscope.workflows import catalogues

    catalogues.check("dataset", name)
    facts = catalogues.cached("dataset", _facts).get(name)
    if facts is None:
        from fedscope.data.sets.dataset_catalogue import record
        from fedscope.data.sets.inspection import describe

        facts = describe(record(name))
    if console.in_json(json_target, facts):
        return
    rows = [[key.replace("_", " "), _text(value)] for key, value in facts.items() if value]
    console.print_table(name, ["", ""], rows, text_columns=2)


def _facts() -> dict[str, dict[str, Any]]:
    from fedscope.data.sets.dataset_catalogue import DATASETS
    from fedscope.data.sets.inspection import describe

    return {name: describe(record) for name, record in DATASETS.items()}


@command.command("check", examples={"fedscope data check cifar100 --data-dir data": "is it here and whole?"})
@click.argument("name", metavar="NAME|DIR", shell_complete=completion.names_of("dataset"))
@shared.data_dir
@shared.json_target
def check(name: str, data_dir: Path | None, json_target: str | None) -> None:
    """Read a data set, or all that are in the folder DIR, and compare it with what it should be.

    What is read is decoded into the cache, so that training starts at once. Nothing is fetched. Exits with 2
    where something is missing or wrong.
    """
    from fedscope.cli.terminal import console
    from fedscope.data.sets.dataset_catalogue import DATASETS
    from fedscope.data.sets.inspection import inspect, present
    from fedscope.errors import UserError

    if name not in DATASETS and Path(name).is_dir():
        names, data_dir = present(Path(name)), Path(name)
    elif name not in DATASETS and "/" in name:
        raise UserError(f"no such folder: {name}; give one that is there, or a data set's name")
    else:
        names = [name]
    reports = [inspect(each, data_dir) for each in names]
    if not console.in_json(json_target, console.one_or_all([report.as_json() for report in reports])):
        rows = [
            [r.name, line.split, line.domain, _text(line.found), _text(line.expected), line.verdict]
            for r in reports
            for line in r.lines
        ]
        notes = [f"{r.name}: {r.note}" for r in reports if r.note]
        columns = ["name", "split", "domain", "images", "expected", ""]
        if rows:
            console.print_table("Checked", columns, rows, notes, text_columns=3)
    if problems := [f"{report.name}: {report.problem}" for report in reports if report.problem]:
        raise UserError("; ".join(problems))


def _text(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_text(item)}" for key, item in value.items())
    if isinstance(value, list):
        return ", ".join(map(str, value))
    if value is None:
        return ""
    return f"{value:,}" if isinstance(value, int) else str(value)
