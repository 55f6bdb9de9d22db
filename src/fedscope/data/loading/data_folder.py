"""The user's folder of data sets."""

import os
from pathlib import Path

from fedscope.errors import UserError


def root(data_dir: Path | None) -> Path | None:
    """Return ``data_dir``, or the folder that ``FEDSCOPE_DATA`` names; None without both."""
    given = data_dir or (Path(os.environ["FEDSCOPE_DATA"]) if os.environ.get("FEDSCOPE_DATA") else None)
    if given is not None and not given.is_dir():
        raise UserError(f"no such data folder: {given}; give --data-dir or FEDSCOPE_DATA an existing one")
    return given
