"""Short printing of results: their numbers, and of large tensors the shapes alone."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from torch import Tensor

_MOST = 10  # entries that are printed


class Printed:
    """A dataclass whose ``repr`` names its numbers, and of tensors and bases says how large they are."""

    def __repr__(self) -> str:
        fields = ((f.name, getattr(self, f.name)) for f in dataclasses.fields(self))  # type: ignore[arg-type]
        said = ", ".join(f"{name}={_short(value)}" for name, value in fields if value is not None)
        return f"{type(self).__name__}({said})"


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, Tensor):
        few = value.ndim == 1 and len(value) <= _MOST
        return _short(value.tolist()) if few else f"<{'×'.join(map(str, value.shape))}>"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name}: {_short(item)}" for name, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_short, value))}]" if len(value) <= _MOST else f"<{len(value)}>"
    printed = isinstance(value, Printed) or not dataclasses.is_dataclass(value)
    return repr(value) if printed else f"<{type(value).__name__}>"
