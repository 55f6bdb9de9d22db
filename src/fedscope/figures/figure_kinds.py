"""The kinds of figures, as commands and functions name them."""

from typing import Literal

ClientsKind = Literal["gap", "alignment", "drift", "matrix"]
PartitionKind = Literal["bubbles", "bars"]
RunsKind = Literal[
    "accuracy", "bytes", "rounds", "stability", "sharpness", "gap", "layers", "drift", "steps", "local",
    "probes",
]  # fmt: skip
SpectrumKind = Literal["density", "eigenvalues", "clients", "bars", "influence"]
SurfaceKind = Literal["both", "surface", "contour", "heat"]
