"""What the shell completes: runs, checkpoints, and names of methods, networks, data sets and presets."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def runs(context: click.Context, _param: click.Parameter, typed: str) -> list[CompletionItem]:
    """Return the registry's runs that begin as typed."""
    return [CompletionItem(run.name) for run in _registry(context).folders() if run.name.startswith(typed)]


def checkpoints(context: click.Context, param: click.Parameter, typed: str) -> list[CompletionItem]:
    """Return runs; after RUN@ its checkpoints; and files, which the shell completes."""
    name, at, _ = typed.partition("@")
    if not at:
        return [*runs(context, param, typed), CompletionItem(typed, type="file")]
    run = next((run for run in _registry(context).folders() if run.name == name), None)
    if run is None:
        return []
    from fedscope.checkpoints.registry.addresses import addresses

    return [CompletionItem(f"{name}@{word}") for word in addresses(run) if f"{name}@{word}".startswith(typed)]


def names_of(kind: str) -> Complete:
    """Return what completes names of methods, models, datasets or presets; of a method, a sum's last part."""

    def complete(_context: click.Context, _param: click.Parameter, typed: str) -> list[CompletionItem]:
        from fedscope.workflows.catalogues import names

        before, plus, last = typed.rpartition("+") if kind == "method" else ("", "", typed)
        return [CompletionItem(f"{before}{plus}{name}") for name in names(kind) if name.startswith(last)]

    return complete


def loggers(_context: click.Context, _param: click.Parameter, typed: str) -> list[CompletionItem]:
    """Return the names of loggers that begin as typed."""
    from fedscope.loggers.logger import names

    return [CompletionItem(name) for name in names() if name.startswith(typed)]


def _registry(context: click.Context) -> Any:
    from fedscope.checkpoints.registry.run_registry import RunRegistry

    return RunRegistry(Path(context.params.get("registry") or "checkpoints"))
