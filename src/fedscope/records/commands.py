"""Parts of the commands in reports and messages, which can be pasted into a shell."""

import os
import shlex
from pathlib import Path

from fedscope.checkpoints.registry.addresses import address_of

DEFAULT = Path("checkpoints")  # the registry of a command that names none


def registry_option(registry: Path) -> str:
    """Return what names a registry; REGISTRY in the place of a folder outside of the present one."""
    inside = Path(os.path.relpath(registry))
    if inside == DEFAULT:
        return ""
    outside = ".." in inside.parts
    return f" --registry {'REGISTRY' if outside else shlex.quote(inside.as_posix())}"


def reference(run: str, file: str) -> str:
    """Return what names a checkpoint of a run by its file: RUN, RUN@150, RUN@best."""
    which = address_of(Path(file))
    return shlex.quote(run if which in (None, "final") else f"{run}@{which}")
