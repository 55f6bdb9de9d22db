"""Choices that commands, estimators, requests and records share, and the errors that records must reach."""

from typing import Literal

CLIENT_RTOL = 0.1
MIN_PROBES, MAX_PROBES = 10, 1000  # of a trace that is estimated to a relative error


class AtMost(int):
    """The steps after which a search ends at the latest, where how many it takes is not known before."""


BatchNormMode = Literal["eval", "recalibrate", "batch"]
OperatorName = Literal["hessian", "ggn", "fisher", "mcfisher"]
ProductsName = Literal["exact", "finite-differences"]
ReadingName = Literal["paper", "code"]
DtypeName = Literal["float32", "float64"]
Precision = Literal["fp32", "bf16"]
Shortcut = Literal["A", "B"]
SplitName = Literal["train", "validation", "test"]
Weights = Literal["client", "global"]
Holding = Literal["own", "global"]
Pairs = Literal["distinct", "all_including_self"]
Reading = Literal["parameter", "tensor"]
Anchor = Literal["start", "global"]  # what the clients' updates are from
# how a client's number was told; the last three are orders of appearance
Told = Literal[
    "run", "name", "option", "row", "partition-id", "user", "loop", "files", "nodes", "users"
]  # fmt: skip
Against = Literal["gap", "accuracy"]  # what sharpness is compared with
DirectionsName = Literal["eigen", "ggn", "random", "pca", "points", "line", "clients"]
