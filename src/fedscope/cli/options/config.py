"""A run's settings as a TOML file: what `train --config` reads, and `runs export --format config` writes.

    method = "feddyn+man"
    rounds = 20

    [options]
    man.zeta = 0.1

A key is the name of an option of `train`, with - or _; ``options`` are the method's. The command line comes
before the file, and the file before a preset.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from fedscope.checkpoints.file.schema import Manifest
from fedscope.errors import UserError, suggestion
from fedscope.storage import read_toml

OPTIONS = "fedscope.options"  # where the context keeps the method's options of the file
ELSEWHERE = ("config", "help", "json", "resume", "set", "verbose", "quiet", "debug")


def read(ctx: click.Context, _param: click.Parameter, path: Path | None) -> None:
    """Make what the file ``path`` says the defaults of the command's options."""
    if path is None:
        return
    content = read_toml(path)
    if not content:
        raise UserError(
            f"--config {path} sets nothing; write options as `rounds = 20`, or leave --config out"
        )
    given = content.pop("options", {})
    if not isinstance(given, dict):
        raise UserError(f"{path}: options is a table of the method's options, as [options]")
    ctx.meta[OPTIONS] = {name: _text(value, path, name) for name, value in _flat(given)}
    ctx.default_map = dict(_defaults(ctx.command, content, path))


def _defaults(
    command: click.Command, content: Mapping[str, Any], path: Path
) -> Iterator[tuple[str, str | list[str]]]:
    known = {flag.lstrip("-").replace("-", "_"): param for param in command.params for flag in param.opts}
    for key in ELSEWHERE:
        known.pop(key, None)
    for key, value in content.items():
        plain = key.replace("-", "_")
        param = known.get(plain)
        if param is None or param.name is None:
            hint = suggestion(plain, known) or "; `fedscope train --help` has them"
            raise UserError(f"{path}: train has no option {key!r}{hint}")
        if getattr(param, "multiple", False):
            several = value if isinstance(value, list) else [value]
            yield param.name, [_text(one, path, key) for one in several]
        else:
            yield param.name, _text(value, path, key)


def _flat(table: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{before}{key}.")
        else:
            yield f"{before}{key}", value


def _text(value: object, path: Path, key: str) -> str:
    if isinstance(value, list) and all(type(item) is int for item in value):
        return ",".join(map(str, value))
    if not isinstance(value, bool | int | float | str):
        raise UserError(f"{path}: {key} is a number, a text, true or false")
    return str(value).lower() if isinstance(value, bool) else str(value)


def config(manifest: Manifest) -> str:
    """Return a run's settings as such a file; training from it gives the same bits."""
    if manifest.added:
        raise UserError(f"{manifest.name} was trained by another program; its settings are not known")
    settings = manifest.settings.model_dump(mode="json")
    options = settings.pop("options")
    lines = [f"# the settings of the run {manifest.name}, for `fedscope train --config`"]
    lines += [f"preset = {_value(manifest.preset.name)}"] if manifest.preset else []
    lines += [f"{key} = {_value(value)}" for key, value in settings.items() if value is not None]
    lines += (
        ["", "[options]", *(f"{key} = {_value(value)}" for key, value in options.items())] if options else []
    )
    return "\n".join([*lines, ""])


def _value(value: object) -> str:
    return json.dumps(value, allow_nan=False)
