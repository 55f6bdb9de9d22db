"""Reading what others may have written: bounded sizes and depths, plain data only.

A manifest, a line of metrics or a checkpoint's description is a small tree of numbers and texts. What is
larger, deeper, not finite or not Unicode is refused before anything is built from it.
"""

import json
import math
from pathlib import Path
from typing import Any

from fedscope.errors import UserError

MOST_BYTES = 1 << 26  # of one JSON file
MOST_DEPTH = 24
MOST_NODES = 2_000_000


def read_bytes(path: Path, most: int = MOST_BYTES) -> bytes:
    """Return the content of a regular file of at most ``most`` bytes.

    Raises:
        UserError: it is larger, or no regular file (a pipe or a device would be read for ever).
        OSError: it cannot be read.
    """
    if path.exists() and not path.is_file():
        raise UserError(f"{path} is no regular file; remove it")
    with path.open("rb") as handle:
        content = handle.read(most + 1)
    if len(content) > most:
        raise UserError(f"{path} has more than {most >> 20} MiB; it cannot be one of ours, remove it")
    return content


def parse_json(content: bytes) -> Any:
    """Return the plain data in ``content``.

    Raises:
        ValueError: it is no JSON, too deep, or holds a number or text that JSON cannot.
    """
    try:
        value = json.loads(content.decode("utf-8"), parse_constant=_refuse)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    check_plain(value)
    return value


def check_plain(value: object) -> None:
    """Check that ``value`` is plain data that can be printed and written as JSON.

    Raises:
        ValueError: it is too deep or too large, holds another type, or a number that is not finite.
    """
    left, nodes = [(value, 0)], 0
    while left:
        item, depth = left.pop()
        nodes += 1
        if depth > MOST_DEPTH or nodes > MOST_NODES:
            raise ValueError("nested too deeply" if depth > MOST_DEPTH else "too many entries")
        if isinstance(item, dict):
            if not all(isinstance(key, str) for key in item):
                raise ValueError("a key is no text")
            left += [(part, depth + 1) for pair in item.items() for part in pair]
        elif isinstance(item, list | tuple):
            left += [(part, depth + 1) for part in item]
        else:
            _check_leaf(item)


def _check_leaf(item: object) -> None:
    if isinstance(item, str):
        item.encode("utf-8")  # a UnicodeEncodeError is a ValueError: half a surrogate pair
    elif isinstance(item, float) and not math.isfinite(item):
        raise ValueError("a number is not finite")
    elif isinstance(item, int) and abs(item) >= 1 << 64:
        raise ValueError("a number is too large")
    elif not isinstance(item, int | float | None):
        raise ValueError(f"holds a {type(item).__name__}")


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is no JSON number")
