"""Short printing of results, with of large tensors the shapes alone; and results as plain data."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from torch import Tensor

_MOST = 10  # entries that are printed


class Printed:
    """A dataclass whose ``repr`` names its numbers, and of tensors and bases says how large they are."""

    def __repr__(self) -> str:
        said = ", ".join(f"{name}={_short(value)}" for name, value in _fields(self) if value is not None)
        return f"{type(self).__name__}({said})"

    def to_dict(self, *, most: int | None = 1000) -> dict[str, Any]:
        """Return the fields as numbers, strings, lists and dicts; NaN and infinities stay what they are.

        Args:
            most: a tensor or tuple of more entries becomes its ``shape`` and ``dtype``; None: all are lists.
        """
        return {name: _plain(value, most) for name, value in _fields(self)}


def _fields(value: Any) -> list[tuple[str, Any]]:
    return [(field.name, getattr(value, field.name)) for field in dataclasses.fields(value)]


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, Tensor):
        few = value.ndim <= 1 and value.numel() <= _MOST
        return _short(value.tolist()) if few else f"<{'×'.join(map(str, value.shape))}>"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name}: {_short(item)}" for name, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_short, value))}]" if len(value) <= _MOST else f"<{len(value)}>"
    if not dataclasses.is_dataclass(value):
        return repr(value)
    tensors = any(isinstance(item, Tensor) and item.ndim > 1 for _, item in _fields(value))
    return repr(value) if isinstance(value, Printed) and not tensors else f"<{type(value).__name__}>"


def _plain(value: Any, most: int | None) -> Any:
    if isinstance(value, Tensor):
        if most is None or value.numel() <= most:
            return value.tolist()
        return {"shape": list(value.shape), "dtype": str(value.dtype).removeprefix("torch.")}
    if isinstance(value, Mapping):
        return {str(name): _plain(item, most) for name, item in value.items()}
    if isinstance(value, list | tuple):
        if most is None or len(value) <= most:
            return [_plain(item, most) for item in value]
        return {"shape": [len(value)], "dtype": type(value[0]).__name__}
    if dataclasses.is_dataclass(value):
        return {name: _plain(item, most) for name, item in _fields(value)}
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
