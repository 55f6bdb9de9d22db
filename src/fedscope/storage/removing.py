"""Deleting and renaming: never through a link, and never a device, pipe or socket."""

import os
import shutil
import stat
import time
from contextlib import nullcontext, suppress
from pathlib import Path

from fedscope.storage import door


def remove(path: Path, *, below: Path | None, missing_ok: bool = False) -> None:
    absent = suppress(FileNotFoundError) if missing_ok else nullcontext()
    with absent, door.parent_folder(path, below) as folder:
        door.check(path, folder, "file")
        os.unlink(path.name, dir_fd=folder)
        os.fsync(folder)


def remove_tree(path: Path, *, below: Path | None) -> None:
    """Delete a folder with all that is below it; of a link below it the link alone goes."""
    with door.parent_folder(path, below) as folder:
        door.check(path, folder, "folder")
        shutil.rmtree(path.name, dir_fd=folder)
        os.fsync(folder)


def remove_empty(path: Path, *, below: Path | None) -> bool:
    with door.parent_folder(path, below) as folder:
        door.check(path, folder, "folder")
        try:
            os.rmdir(path.name, dir_fd=folder)
        except OSError:
            return False
    return True


def move(source: Path, target: Path, *, below: Path | None) -> None:
    """Rename a file over another, or a folder to a name that is free."""
    with door.parent_folder(source, below) as here, door.parent_folder(target, below) as there:
        door.check(source, here, "file", "folder")
        door.check(target, there, "file")
        os.rename(source.name, target.name, src_dir_fd=here, dst_dir_fd=there)
        os.fsync(there)
        os.fsync(here)


def expire(folder: Path, days: float, *, below: Path | None) -> None:
    """Delete the folders in ``folder`` that were not written to for ``days``, as far as that can be done."""
    oldest = time.time() - days * 86_400
    with suppress(FileNotFoundError), door.entered(folder, below) as handle:
        for name in os.listdir(handle):  # noqa: PTH208 (of a descriptor)
            with suppress(OSError):
                about = os.stat(name, dir_fd=handle, follow_symlinks=False)
                if stat.S_ISDIR(about.st_mode) and about.st_mtime < oldest:
                    shutil.rmtree(name, dir_fd=handle)
