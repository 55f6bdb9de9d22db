"""Options that are fields of a run's settings."""

from typing import Any

import click
from pydantic_core import PydanticUndefined

from fedscope.checkpoints.schema import Settings
from fedscope.cli.options import Decorator


def setting(flag: str, kind: Any, help: str) -> Decorator:
    """Return the click option of one field of :class:`Settings`, with the field's own default in the help."""
    default = Settings.model_fields[flag.split("/")[0].strip("-").replace("-", "_")].default
    shown = "" if default in (None, PydanticUndefined) else f" [default: {default}]"
    return click.option(flag, type=kind, default=None, help=help + shown)
