"""fedscope: how flat, and how consistent across clients, the minima of federated-learning methods are.

What the commands do is here as functions: :func:`train`, :func:`measure`, :func:`compare`,
:func:`sharpness`, :func:`clients`, :func:`landscape`, :func:`report`, :func:`load`, and :class:`Registry`;
and so are the names of :mod:`fedscope.landscape`. All are imported when they are first used: this file
imports nothing heavy, so that ``fedscope --help`` is quick.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fedscope.deferred_names import DeferredNames

if TYPE_CHECKING:
    from fedscope.api.clients import Clients as Clients
    from fedscope.api.clients import clients as clients
    from fedscope.api.landscape import Landscape as Landscape
    from fedscope.api.landscape import landscape as landscape
    from fedscope.api.load import Checkpoint as Checkpoint
    from fedscope.api.load import load as load
    from fedscope.api.measure import Comparison as Comparison
    from fedscope.api.measure import Curvature as Curvature
    from fedscope.api.measure import compare as compare
    from fedscope.api.measure import measure as measure
    from fedscope.api.registry import Registry as Registry
    from fedscope.api.report import Report as Report
    from fedscope.api.report import report as report
    from fedscope.api.run import Run as Run
    from fedscope.api.sharpness import SharpnessTable as SharpnessTable
    from fedscope.api.sharpness import sharpness as sharpness
    from fedscope.api.train_run import train as train
    from fedscope.landscape import AutoPGD as AutoPGD
    from fedscope.landscape import AveragingBarrier as AveragingBarrier
    from fedscope.landscape import Axis as Axis
    from fedscope.landscape import Batches as Batches
    from fedscope.landscape import BatchMean as BatchMean
    from fedscope.landscape import CriticalStep as CriticalStep
    from fedscope.landscape import CrossClient as CrossClient
    from fedscope.landscape import Density as Density
    from fedscope.landscape import Diagonal as Diagonal
    from fedscope.landscape import Directions as Directions
    from fedscope.landscape import Eigenpairs as Eigenpairs
    from fedscope.landscape import EmpiricalFisher as EmpiricalFisher
    from fedscope.landscape import Estimate as Estimate
    from fedscope.landscape import GaussNewton as GaussNewton
    from fedscope.landscape import GradientNoise as GradientNoise
    from fedscope.landscape import Hessian as Hessian
    from fedscope.landscape import LambdaOperator as LambdaOperator
    from fedscope.landscape import Mark as Mark
    from fedscope.landscape import MonteCarloFisher as MonteCarloFisher
    from fedscope.landscape import Networks as Networks
    from fedscope.landscape import NoiseLevel as NoiseLevel
    from fedscope.landscape import NoiseScale as NoiseScale
    from fedscope.landscape import OneStep as OneStep
    from fedscope.landscape import Operator as Operator
    from fedscope.landscape import PairBarriers as PairBarriers
    from fedscope.landscape import Preconditioned as Preconditioned
    from fedscope.landscape import Product as Product
    from fedscope.landscape import Ratio as Ratio
    from fedscope.landscape import Sharpness as Sharpness
    from fedscope.landscape import StateSpace as StateSpace
    from fedscope.landscape import Surface as Surface
    from fedscope.landscape import Trace as Trace
    from fedscope.landscape import UpdateSharpness as UpdateSharpness
    from fedscope.landscape import Vertices as Vertices
    from fedscope.landscape import as_operator as as_operator
    from fedscope.landscape import average_sharpness as average_sharpness
    from fedscope.landscape import averaging_barrier as averaging_barrier
    from fedscope.landscape import barrier as barrier
    from fedscope.landscape import best_plane as best_plane
    from fedscope.landscape import block_patterns as block_patterns
    from fedscope.landscape import block_spectra as block_spectra
    from fedscope.landscape import client_gradient_noise as client_gradient_noise
    from fedscope.landscape import critical_sharpness as critical_sharpness
    from fedscope.landscape import cross_client as cross_client
    from fedscope.landscape import deflated_diagonal as deflated_diagonal
    from fedscope.landscape import diagonal as diagonal
    from fedscope.landscape import eigen_directions as eigen_directions
    from fedscope.landscape import fisher_rao_norm as fisher_rao_norm
    from fedscope.landscape import frozen_copy as frozen_copy
    from fedscope.landscape import gradient_noise as gradient_noise
    from fedscope.landscape import largest_relative_flatness as largest_relative_flatness
    from fedscope.landscape import last_linear as last_linear
    from fedscope.landscape import layer_eigenpairs as layer_eigenpairs
    from fedscope.landscape import layer_patterns as layer_patterns
    from fedscope.landscape import line_between as line_between
    from fedscope.landscape import low_pass_loss as low_pass_loss
    from fedscope.landscape import mean_spectral_distance as mean_spectral_distance
    from fedscope.landscape import orthogonal as orthogonal
    from fedscope.landscape import pac_bayes_sigma as pac_bayes_sigma
    from fedscope.landscape import pair_barriers as pair_barriers
    from fedscope.landscape import plane_through as plane_through
    from fedscope.landscape import principal_cosines as principal_cosines
    from fedscope.landscape import rademacher as rademacher
    from fedscope.landscape import random_directions as random_directions
    from fedscope.landscape import relative_flatness as relative_flatness
    from fedscope.landscape import spectral_density as spectral_density
    from fedscope.landscape import subspace_overlap as subspace_overlap
    from fedscope.landscape import surface as surface
    from fedscope.landscape import top_eigenpairs as top_eigenpairs
    from fedscope.landscape import trace as trace
    from fedscope.landscape import update_sharpness as update_sharpness
    from fedscope.landscape import whole_copy as whole_copy
    from fedscope.landscape import worst_case_sharpness as worst_case_sharpness

__version__ = "0.1.0"

_CALLABLE = ("landscape", "report")  # modules that are functions too
_NAMES = DeferredNames(__name__)
__all__ = _NAMES.all


def __getattr__(name: str) -> Any:
    return import_module(f"fedscope.{name}") if name in _CALLABLE else _NAMES.get(name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
