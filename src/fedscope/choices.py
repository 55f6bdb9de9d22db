"""Choices that estimators, requests and records share, and the errors that records must reach."""

from typing import Literal

CLIENT_RTOL = 0.1
MIN_PROBES, MAX_PROBES = 10, 1000  # of a trace that is estimated to a relative error
BatchNormMode = Literal["eval", "recalibrate", "batch"]
OperatorName = Literal["hessian", "ggn", "fisher", "mcfisher"]
ProductsName = Literal["exact", "finite-differences"]
ReadingName = Literal["paper", "code"]
SplitName = Literal["train", "test", "validation"]
Weights = Literal["client", "global"]
Holding = Literal["global", "own"]
Pairs = Literal["distinct", "all_including_self"]
Reading = Literal["tensor", "parameter"]
