"""Curvature and loss landscapes of any PyTorch model: operators, and plain functions of them.

A name is imported when it is first used, by what this file states for type checkers. The module can be
called: ``fedscope.landscape(...)`` is :func:`fedscope.api.landscape.landscape`.
"""

from typing import TYPE_CHECKING, Any

from fedscope.deferred_names import DeferredNames, make_callable

if TYPE_CHECKING:
    from fedscope.landscape.gradients.client_noise import client_gradient_noise as client_gradient_noise
    from fedscope.landscape.gradients.client_noise import gradient_noise as gradient_noise
    from fedscope.landscape.gradients.noise_results import GradientNoise as GradientNoise
    from fedscope.landscape.gradients.noise_results import NoiseScale as NoiseScale
    from fedscope.landscape.gradients.noise_results import Ratio as Ratio
    from fedscope.landscape.heterogeneity.cross_client import CrossClient as CrossClient
    from fedscope.landscape.heterogeneity.cross_client import cross_client as cross_client
    from fedscope.landscape.loss.batches import Batches as Batches
    from fedscope.landscape.loss.batchnorm import frozen_copy as frozen_copy
    from fedscope.landscape.loss.copies import whole_copy as whole_copy
    from fedscope.landscape.loss.state_space import StateSpace as StateSpace
    from fedscope.landscape.operators.adapters import LambdaOperator as LambdaOperator
    from fedscope.landscape.operators.adapters import as_operator as as_operator
    from fedscope.landscape.operators.base import Operator as Operator
    from fedscope.landscape.operators.base import Product as Product
    from fedscope.landscape.operators.batch_mean import BatchMean as BatchMean
    from fedscope.landscape.operators.empirical_fisher import EmpiricalFisher as EmpiricalFisher
    from fedscope.landscape.operators.gauss_newton import GaussNewton as GaussNewton
    from fedscope.landscape.operators.hessian_operator import Hessian as Hessian
    from fedscope.landscape.operators.monte_carlo_fisher import MonteCarloFisher as MonteCarloFisher
    from fedscope.landscape.operators.preconditioned import Preconditioned as Preconditioned
    from fedscope.landscape.operators.probes import orthogonal as orthogonal
    from fedscope.landscape.operators.probes import rademacher as rademacher
    from fedscope.landscape.paths.barriers import averaging_barrier as averaging_barrier
    from fedscope.landscape.paths.barriers import pair_barriers as pair_barriers
    from fedscope.landscape.paths.critical_sharpness import critical_sharpness as critical_sharpness
    from fedscope.landscape.paths.critical_sharpness import update_sharpness as update_sharpness
    from fedscope.landscape.paths.path_results import AveragingBarrier as AveragingBarrier
    from fedscope.landscape.paths.path_results import CriticalStep as CriticalStep
    from fedscope.landscape.paths.path_results import PairBarriers as PairBarriers
    from fedscope.landscape.paths.path_results import UpdateSharpness as UpdateSharpness
    from fedscope.landscape.sharpness.average_case import average_sharpness as average_sharpness
    from fedscope.landscape.sharpness.average_case import low_pass_loss as low_pass_loss
    from fedscope.landscape.sharpness.block_spectra import block_spectra as block_spectra
    from fedscope.landscape.sharpness.block_spectra import mean_spectral_distance as mean_spectral_distance
    from fedscope.landscape.sharpness.fisher_rao import fisher_rao_norm as fisher_rao_norm
    from fedscope.landscape.sharpness.pac_bayes import NoiseLevel as NoiseLevel
    from fedscope.landscape.sharpness.pac_bayes import pac_bayes_sigma as pac_bayes_sigma
    from fedscope.landscape.sharpness.relative_flatness import (
        largest_relative_flatness as largest_relative_flatness,
    )
    from fedscope.landscape.sharpness.relative_flatness import last_linear as last_linear
    from fedscope.landscape.sharpness.relative_flatness import relative_flatness as relative_flatness
    from fedscope.landscape.sharpness.searches import AutoPGD as AutoPGD
    from fedscope.landscape.sharpness.searches import OneStep as OneStep
    from fedscope.landscape.sharpness.searches import Vertices as Vertices
    from fedscope.landscape.sharpness.sharpness_result import Sharpness as Sharpness
    from fedscope.landscape.sharpness.worst_case import worst_case_sharpness as worst_case_sharpness
    from fedscope.landscape.spectral.diagonal import deflated_diagonal as deflated_diagonal
    from fedscope.landscape.spectral.diagonal import diagonal as diagonal
    from fedscope.landscape.spectral.eigenpairs import top_eigenpairs as top_eigenpairs
    from fedscope.landscape.spectral.hutchinson_trace import trace as trace
    from fedscope.landscape.spectral.layer_blocks import block_patterns as block_patterns
    from fedscope.landscape.spectral.layer_blocks import layer_eigenpairs as layer_eigenpairs
    from fedscope.landscape.spectral.layer_blocks import layer_patterns as layer_patterns
    from fedscope.landscape.spectral.slq_density import spectral_density as spectral_density
    from fedscope.landscape.spectral.spectral_results import Density as Density
    from fedscope.landscape.spectral.spectral_results import Diagonal as Diagonal
    from fedscope.landscape.spectral.spectral_results import Eigenpairs as Eigenpairs
    from fedscope.landscape.spectral.spectral_results import Estimate as Estimate
    from fedscope.landscape.spectral.spectral_results import Trace as Trace
    from fedscope.landscape.spectral.subspace_overlap import principal_cosines as principal_cosines
    from fedscope.landscape.spectral.subspace_overlap import subspace_overlap as subspace_overlap
    from fedscope.landscape.surfaces.directions import Directions as Directions
    from fedscope.landscape.surfaces.directions import eigen_directions as eigen_directions
    from fedscope.landscape.surfaces.directions import random_directions as random_directions
    from fedscope.landscape.surfaces.network_planes import Networks as Networks
    from fedscope.landscape.surfaces.network_planes import best_plane as best_plane
    from fedscope.landscape.surfaces.network_planes import line_between as line_between
    from fedscope.landscape.surfaces.network_planes import plane_through as plane_through
    from fedscope.landscape.surfaces.surface import surface as surface
    from fedscope.landscape.surfaces.surface_results import Axis as Axis
    from fedscope.landscape.surfaces.surface_results import Mark as Mark
    from fedscope.landscape.surfaces.surface_results import Surface as Surface
    from fedscope.landscape.surfaces.surface_results import barrier as barrier

_NAMES = DeferredNames(__name__)
__all__ = _NAMES.all


def __getattr__(name: str) -> Any:
    return _NAMES.get(name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


make_callable(__name__, "fedscope.api.landscape:landscape")
