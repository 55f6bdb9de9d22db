"""Where the user's cache is, and whether a file can be written at a path, checked before the work."""

import os
from pathlib import Path

from fedscope.errors import UserError
from fedscope.storage.door import entered, kind, refusal, target


def cache_dir() -> Path:
    if os.environ.get("FEDSCOPE_CACHE"):
        return Path(os.environ["FEDSCOPE_CACHE"])
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fedscope"


def check_target(path: Path) -> None:
    if not is_writable(path, below=None):
        raise UserError(f"cannot write {path}; name a file in a folder that you may write to")


def is_writable(path: Path, *, below: Path | None) -> bool:
    """Say whether permissions allow a file at ``path``; folders on the way are made when it is written."""
    folder = target(path, below).parent
    if below is not None:
        _check_way(path, below)
    while not os.path.lexists(folder):
        folder = folder.parent
    return folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)


def _check_way(path: Path, below: Path) -> None:
    try:
        with entered(path.parent, below) as folder:
            found = kind(path.name, folder)
    except OSError:  # not there yet, or not to be entered: permissions say
        return
    if found not in (None, "file"):
        raise refusal(path, found)
