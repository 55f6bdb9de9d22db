"""Options that are fields of a run's settings."""

from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin

import click
from pydantic_core import PydanticUndefined

from fedscope.checkpoints.file.schema import Settings
from fedscope.cli import completion
from fedscope.cli.options import Decorator


def setting(name: str, help: str, *aliases: str) -> Decorator:
    """Return the click option of a field of :class:`Settings`; type, choices and default are the field's.

    ``aliases`` are further flags of it. A truth value becomes a pair, ``--nesterov/--no-nesterov``. What the
    user leaves out is None.
    """
    field, flag = Settings.model_fields[name], f"--{name.replace('_', '-')}"
    kind = _kind(field.annotation)
    if kind is bool:
        flag, kind = f"{flag}/{flag.replace('--', '--no-')}", None
    elif field.default not in (None, PydanticUndefined):
        help = f"{help} [default: {field.default}]"
    complete = completion.of(name) if name in ("method", "model", "dataset") else None
    return click.option(flag, *aliases, name, type=kind, default=None, help=help, shell_complete=complete)


def _kind(annotation: Any) -> Any:
    """Return the type of an option for a field's annotation: of ``T | None`` that of T."""
    if get_origin(annotation) is Literal:
        return click.Choice(get_args(annotation))
    if get_origin(annotation) is Annotated:
        return _kind(get_args(annotation)[0])
    kinds = [kind for kind in get_args(annotation) if kind is not NoneType]
    return _kind(kinds[0]) if kinds else annotation
