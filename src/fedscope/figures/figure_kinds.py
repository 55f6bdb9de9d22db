"""The kinds of figures, as commands and functions name them."""

from typing import Any, Literal, get_args

from fedscope.errors import UserError

ClientsKind = Literal["gap", "alignment", "drift", "matrix"]
PartitionKind = Literal["bubbles", "bars"]
RunsKind = Literal[
    "accuracy", "bytes", "rounds", "stability", "sharpness", "gap", "layers", "drift", "steps", "local",
    "probes",
]  # fmt: skip
SpectrumKind = Literal["density", "eigenvalues", "clients", "bars", "influence"]
SurfaceKind = Literal["both", "surface", "contour", "heat"]


def check_kind(kind: str, kinds: Any) -> None:
    """Refuse a kind that is none of a ``Literal``'s."""
    if kind not in (known := get_args(kinds)):
        raise UserError(f"there is no kind {kind!r} of these figures; choose {', '.join(known)}")
