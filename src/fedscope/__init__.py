"""fedscope: how flat, and how consistent across clients, the minima of federated-learning methods are.

What the commands do is here as functions: :func:`train`, :func:`measure`, :func:`compare`,
:func:`sharpness`, :func:`clients`, :func:`landscape`, :func:`report`, :func:`load`, and :class:`Registry`;
and so are the names of :mod:`fedscope.landscape`. All are imported when they are first used: this file
imports nothing heavy, so that ``fedscope --help`` is quick.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedscope.api.clients import Clients, clients
    from fedscope.api.compare import Comparison, compare
    from fedscope.api.landscape import Landscape, landscape
    from fedscope.api.load import Checkpoint, load
    from fedscope.api.measure import Curvature, measure
    from fedscope.api.registry import Registry
    from fedscope.api.report import Report, report
    from fedscope.api.run import Run
    from fedscope.api.sharpness import SharpnessTable, sharpness
    from fedscope.api.train_run import train
    from fedscope.landscape import (
        AutoPGD,
        AveragingBarrier,
        Axis,
        BasisStorage,
        Batches,
        BatchMean,
        CriticalStep,
        CrossClient,
        Density,
        Diagonal,
        Directions,
        Eigenpairs,
        EmpiricalFisher,
        Estimate,
        Estimated,
        Estimator,
        GaussNewton,
        GradientNoise,
        Hessian,
        LambdaOperator,
        Mark,
        Matched,
        MonteCarloFisher,
        Networks,
        NoiseLevel,
        NoiseScale,
        OneStep,
        Operator,
        PairBarriers,
        Preconditioned,
        Product,
        Ratio,
        Sharpness,
        Solution,
        StateSpace,
        Surface,
        Symmetry,
        Trace,
        UpdateSharpness,
        Vertices,
        as_operator,
        average_sharpness,
        averaging_barrier,
        barrier,
        best_plane,
        block_patterns,
        block_spectra,
        client_gradient_noise,
        critical_sharpness,
        cross_client,
        deflated_diagonal,
        diagonal,
        eigen_directions,
        fisher_rao_norm,
        frozen_copy,
        gradient_noise,
        largest_relative_flatness,
        last_linear,
        layer_eigenpairs,
        layer_patterns,
        line_between,
        low_pass_loss,
        match_weights,
        mean_spectral_distance,
        orthogonal,
        pac_bayes_sigma,
        pair_barriers,
        permutation_symmetry,
        plane_through,
        principal_cosines,
        rademacher,
        random_directions,
        relative_flatness,
        solve,
        spectral_density,
        spectral_distance,
        subspace_overlap,
        surface,
        top_eigenpairs,
        trace,
        update_sharpness,
        whole_copy,
        worst_case_sharpness,
    )

__version__ = "0.1.0"

_FACE = {
    "Checkpoint": "load", "Clients": "clients", "Comparison": "compare", "Curvature": "measure",
    "Landscape": "landscape", "Registry": "registry", "Report": "report", "Run": "run",
    "SharpnessTable": "sharpness", "clients": "clients", "compare": "compare", "load": "load",
    "measure": "measure", "sharpness": "sharpness", "train": "train_run",
}  # fmt: skip
_CALLABLE = ("landscape", "report")  # modules that are functions too

__all__ = [
    "AutoPGD",
    "AveragingBarrier",
    "Axis",
    "BasisStorage",
    "BatchMean",
    "Batches",
    "Checkpoint",
    "Clients",
    "Comparison",
    "CriticalStep",
    "CrossClient",
    "Curvature",
    "Density",
    "Diagonal",
    "Directions",
    "Eigenpairs",
    "EmpiricalFisher",
    "Estimate",
    "Estimated",
    "Estimator",
    "GaussNewton",
    "GradientNoise",
    "Hessian",
    "LambdaOperator",
    "Landscape",
    "Mark",
    "Matched",
    "MonteCarloFisher",
    "Networks",
    "NoiseLevel",
    "NoiseScale",
    "OneStep",
    "Operator",
    "PairBarriers",
    "Preconditioned",
    "Product",
    "Ratio",
    "Registry",
    "Report",
    "Run",
    "Sharpness",
    "SharpnessTable",
    "Solution",
    "StateSpace",
    "Surface",
    "Symmetry",
    "Trace",
    "UpdateSharpness",
    "Vertices",
    "as_operator",
    "average_sharpness",
    "averaging_barrier",
    "barrier",
    "best_plane",
    "block_patterns",
    "block_spectra",
    "client_gradient_noise",
    "clients",
    "compare",
    "critical_sharpness",
    "cross_client",
    "deflated_diagonal",
    "diagonal",
    "eigen_directions",
    "fisher_rao_norm",
    "frozen_copy",
    "gradient_noise",
    "landscape",
    "largest_relative_flatness",
    "last_linear",
    "layer_eigenpairs",
    "layer_patterns",
    "line_between",
    "load",
    "low_pass_loss",
    "match_weights",
    "mean_spectral_distance",
    "measure",
    "orthogonal",
    "pac_bayes_sigma",
    "pair_barriers",
    "permutation_symmetry",
    "plane_through",
    "principal_cosines",
    "rademacher",
    "random_directions",
    "relative_flatness",
    "report",
    "sharpness",
    "solve",
    "spectral_density",
    "spectral_distance",
    "subspace_overlap",
    "surface",
    "top_eigenpairs",
    "trace",
    "train",
    "update_sharpness",
    "whole_copy",
    "worst_case_sharpness",
]


def __getattr__(name: str) -> Any:
    if name in _CALLABLE:
        return import_module(f"fedscope.{name}")
    if name in _FACE:
        return getattr(import_module(f"fedscope.api.{_FACE[name]}"), name)
    if name in __all__:
        return getattr(import_module("fedscope.landscape"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
