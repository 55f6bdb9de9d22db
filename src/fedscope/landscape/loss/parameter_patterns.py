"""Parameters chosen by patterns of their names (:mod:`fnmatch`), such as ``layer3.*``."""

from collections.abc import Sequence
from fnmatch import fnmatchcase

from torch import Tensor

from fedscope.errors import UserError, suggestion


def chosen(named: list[tuple[str, Tensor]], patterns: Sequence[str] | None) -> list[tuple[str, Tensor]]:
    if patterns is None:
        return named
    patterns = [patterns] if isinstance(patterns, str) else patterns
    if not patterns:
        raise UserError("parameters is empty; give patterns of names, or None for all")
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name, _ in named):
            names = [name for name, _ in named]
            hint = suggestion(pattern, [*names, *_subtrees(names)]) or f"; there are {_some(names)}"
            raise UserError(f"no trainable parameter matches {pattern!r}{hint}")
    return [(name, p) for name, p in named if any(fnmatchcase(name, pattern) for pattern in patterns)]


def _subtrees(names: Sequence[str]) -> list[str]:
    """Return the pattern of each module: ``a.*`` and ``a.b.*`` of ``a.b.weight``."""
    heads = (name.split(".")[:depth] for name in names for depth in range(1, name.count(".") + 1))
    return list(dict.fromkeys(f"{'.'.join(head)}.*" for head in heads))


def _some(names: Sequence[str], most: int = 8) -> str:
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")
