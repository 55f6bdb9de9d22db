"""Stand-ins for what programs pickle beside weights: nothing of theirs is imported, made or called.

PyTorch's ``weights_only`` reader looks each name of a pickle up in a table. Here values of NumPy,
``datetime`` and ``pathlib`` become lists of what they were made from, NumPy's arrays numbers, and an object
of any other class can be made and filled, but a function not called.
"""

import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

_NUMBERS = re.compile("[fiu][1248]|c8|c16|b1")


class Value(list[Any]):
    """What an object was made from and filled with."""

    def __new__(cls, *arguments: object) -> "Value":
        made = super().__new__(cls)
        made.extend(arguments)
        return made

    def __init__(self, *_: object) -> None:
        """Leave the content as it is."""

    def __setstate__(self, state: object) -> None:
        self.append(state)

    def __hash__(self) -> int:  # type: ignore[override]  # it may be a key of a mapping
        return id(self)

    def __repr__(self) -> str:
        return type(self).__name__


class Array(Value):
    """An array of NumPy: (version, shape, dtype, whether in Fortran's order, bytes)."""

    @property
    def tensor(self) -> Tensor | None:
        *_, (_, shape, dtype, fortran, content) = self
        code, (_, order, *_) = dtype[0], dtype[-1]
        if not _NUMBERS.fullmatch(code):
            return None
        flat = np.frombuffer(content, order.replace("|", "=") + code)
        if flat.size != math.prod(shape):
            raise ValueError(f"an array {shape} has {flat.size} numbers")
        native = flat.astype(flat.dtype.newbyteorder("="))
        return torch.from_numpy(native.reshape(shape, order="F" if fortran else "C"))


class CodeError(Exception):
    """A pickle asks for what only code of its own program makes."""


class _Uncalled(type):
    def __call__(cls, *_: object) -> Any:
        raise CodeError("a function would be called")


class Unknown(Value, metaclass=_Uncalled):
    """An object of a class, or a function, that only its own program knows."""


def _array(*_: object) -> Array:
    return Array()


def _mapping(*_: object) -> dict[Any, Any]:
    return {}


def _no_bytes(*_: object) -> bytes:
    return b""


_VALUES = {
    "builtins": "frozenset range slice",
    "datetime": "date datetime time timedelta timezone",
    "decimal": "Decimal",
    "numpy": "dtype",
    "numpy._core.multiarray": "scalar",
    "numpy.core.multiarray": "scalar",
    "numpy.random.bit_generator": "__pyx_unpickle_SeedSequence",
    "numpy.random._pickle": "__bit_generator_ctor __generator_ctor __randomstate_ctor",
    "pathlib": "Path PosixPath PurePath PurePosixPath PureWindowsPath WindowsPath",
    "pathlib._local": "PosixPath PurePosixPath PureWindowsPath WindowsPath",
}
KNOWN: Mapping[str, Callable[..., Any]] = {
    **{f"{module}.{name}": Value for module, names in _VALUES.items() for name in names.split()},
    "builtins.bytes": _no_bytes,
    "collections.defaultdict": _mapping,
    "numpy.ndarray": Array,
    "numpy._core.multiarray._reconstruct": _array,
    "numpy.core.multiarray._reconstruct": _array,
}


def unknown(path: Path) -> list[str]:
    """Return the names in a file of ``torch.save`` that are neither PyTorch's nor known here."""
    try:
        found = torch.serialization.get_unsafe_globals_in_checkpoint(str(path))
    except Exception:  # whatever its reader makes of bytes that are no checkpoint
        return []
    return sorted({*found} - KNOWN.keys())


def for_names(path: Path) -> list[Callable[..., Any] | tuple[Callable[..., Any], str]]:
    made = {**dict.fromkeys(unknown(path), Unknown), **KNOWN}
    return [(stand_in, name) for name, stand_in in made.items()]


def hides_tensors(item: object, *, inside: bool = False) -> bool:
    if isinstance(item, Tensor | Array):
        return inside
    inside |= isinstance(item, Unknown)
    if isinstance(item, dict):
        item = [*item.keys(), *item.values()]
    return isinstance(item, list | tuple | set) and any(hides_tensors(part, inside=inside) for part in item)
