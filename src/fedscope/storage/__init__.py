"""Access to the disk: fedscope reads, writes, deletes, renames and locks files only through this package.

Functions that change something take ``below``. With a folder (a registry's root, the user's cache) every
component of the path below it is opened by descriptor and without following a link, and only real folders and
regular files are touched. With ``None`` the path is one that the user typed: links are followed, but where it
leads there must be nothing yet, or a regular file. New files and folders get what the umask leaves.
"""

import sys

from fedscope.errors import UserError

if sys.platform == "win32":
    raise UserError(
        "fedscope needs Linux or macOS, whose locks and descriptors keep registries safe; on Windows "
        "install and run it inside WSL (https://learn.microsoft.com/windows/wsl/install)"
    )

from fedscope.storage.changing import (
    append,
    atomic_file,
    atomic_folder,
    cache_dir,
    check_target,
    expire,
    is_writable,
    make_folder,
    move,
    new_file,
    remove,
    remove_empty,
    remove_tree,
    touch,
    write_bytes,
    write_text,
)
from fedscope.storage.door import is_folder
from fedscope.storage.locks import locked
from fedscope.storage.reading import (
    MOST_BYTES,
    open_regular,
    read_bytes,
    read_end,
    read_text,
    read_toml,
    regular,
)

__all__ = [
    "MOST_BYTES",
    "append",
    "atomic_file",
    "atomic_folder",
    "cache_dir",
    "check_target",
    "expire",
    "is_folder",
    "is_writable",
    "locked",
    "make_folder",
    "move",
    "new_file",
    "open_regular",
    "read_bytes",
    "read_end",
    "read_text",
    "read_toml",
    "regular",
    "remove",
    "remove_empty",
    "remove_tree",
    "touch",
    "write_bytes",
    "write_text",
]
