"""fedscope: how flat, and how consistent across clients, the minima of federated-learning methods are.

The names of :mod:`fedscope.landscape` are here too, imported when they are first used: this file imports
nothing heavy, so that ``fedscope --help`` is quick.
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

__all__ = [
    "Axis",
    "BatchMean",
    "Batches",
    "CrossClient",
    "Density",
    "Diagonal",
    "Directions",
    "Eigenpairs",
    "EmpiricalFisher",
    "Estimate",
    "Estimated",
    "Estimator",
    "GaussNewton",
    "Hessian",
    "LambdaOperator",
    "Mark",
    "MonteCarloFisher",
    "Networks",
    "Operator",
    "Product",
    "Solution",
    "StateSpace",
    "Surface",
    "Trace",
    "as_operator",
    "barrier",
    "best_plane",
    "cross_client",
    "deflated_diagonal",
    "diagonal",
    "eigen_directions",
    "frozen_copy",
    "layer_eigenpairs",
    "layer_patterns",
    "line_between",
    "orthogonal",
    "plane_through",
    "principal_cosines",
    "rademacher",
    "random_directions",
    "solve",
    "spectral_density",
    "subspace_overlap",
    "surface",
    "top_eigenpairs",
    "trace",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("fedscope.landscape"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
