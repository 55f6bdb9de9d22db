"""Parsing data that others may have written: bounded depth and number of entries, plain data only.

A manifest, a line of metrics or a checkpoint's description is a small tree of numbers and texts. Larger
or deeper data, and data that is not finite or not Unicode, is refused before anything is built from it.
"""

import json
import math
from collections.abc import Collection, Iterator
from typing import Any

MOST_DEPTH = 24
MOST_ENTRIES = 2_000_000


def parse_json(content: bytes) -> Any:
    try:
        value = json.loads(content.decode("utf-8"), parse_constant=_refuse)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    check_plain(value)
    return value


def check_plain(value: object) -> None:
    for leaf in leaves(value, plain=True):
        _check_leaf(leaf)


def check_extent(value: object) -> None:
    """Check that ``value`` is small enough to be walked through.

    A pickle of two kilobytes makes a list of sixty times the same list of sixty times the same list, and one
    that holds itself.
    """
    for _ in leaves(value):
        pass


def leaves(value: object, *, plain: bool = False) -> Iterator[object]:
    """Yield what nested mappings, lists, tuples and sets hold, keys included."""
    left, entries = [(value, 0)], 1
    while left:
        item, depth = left.pop()
        parts = _parts(item, plain=plain)
        if parts is None:
            yield item
            continue
        entries += len(parts)
        if depth > MOST_DEPTH or entries > MOST_ENTRIES:
            raise ValueError("nested too deeply" if depth > MOST_DEPTH else "too many entries")
        left += [(part, depth + 1) for part in parts]


def _parts(item: object, *, plain: bool) -> Collection[object] | None:
    if isinstance(item, dict):
        if plain and not all(isinstance(key, str) for key in item):
            raise ValueError("a key is no text")
        return [*item.keys(), *item.values()]
    if isinstance(item, list | tuple) or (isinstance(item, set | frozenset) and not plain):
        return item
    return None


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
