"""Curvature and loss landscapes of any PyTorch model: operators, and plain functions of them.

The module can be called: ``fedscope.landscape(...)`` is :func:`fedscope.api.landscape.landscape`.
"""

from fedscope.callable_module import make_callable
from fedscope.landscape.gradients.client_noise import client_gradient_noise, gradient_noise
from fedscope.landscape.gradients.noise_results import GradientNoise, NoiseScale, Ratio
from fedscope.landscape.heterogeneity.cross_client import cross_client
from fedscope.landscape.heterogeneity.cross_client_result import CrossClient
from fedscope.landscape.loss.batches import Batches
from fedscope.landscape.loss.batchnorm import frozen_copy
from fedscope.landscape.loss.copies import whole_copy
from fedscope.landscape.loss.state_space import StateSpace
from fedscope.landscape.matching.symmetry import Symmetry, permutation_symmetry
from fedscope.landscape.matching.weight_matching import Matched, match_weights
from fedscope.landscape.operators.adapters import LambdaOperator, as_operator
from fedscope.landscape.operators.base import Operator, Product
from fedscope.landscape.operators.basis.storage import BasisStorage
from fedscope.landscape.operators.by_batch.batch_mean import BatchMean
from fedscope.landscape.operators.empirical_fisher import EmpiricalFisher
from fedscope.landscape.operators.gauss_newton import GaussNewton
from fedscope.landscape.operators.hessian_operator import Hessian
from fedscope.landscape.operators.monte_carlo_fisher import MonteCarloFisher
from fedscope.landscape.operators.preconditioned import Preconditioned
from fedscope.landscape.operators.probes import orthogonal, rademacher
from fedscope.landscape.paths.barriers import averaging_barrier, pair_barriers
from fedscope.landscape.paths.critical_sharpness import critical_sharpness, update_sharpness
from fedscope.landscape.paths.path_results import (
    AveragingBarrier,
    CriticalStep,
    PairBarriers,
    UpdateSharpness,
)
from fedscope.landscape.sharpness.average_case import average_sharpness, low_pass_loss
from fedscope.landscape.sharpness.block_spectra import (
    block_spectra,
    mean_spectral_distance,
    spectral_distance,
)
from fedscope.landscape.sharpness.fisher_rao import fisher_rao_norm
from fedscope.landscape.sharpness.pac_bayes import NoiseLevel, pac_bayes_sigma
from fedscope.landscape.sharpness.relative_flatness import (
    largest_relative_flatness,
    last_linear,
    relative_flatness,
)
from fedscope.landscape.sharpness.searches import AutoPGD, OneStep, Vertices
from fedscope.landscape.sharpness.sharpness_result import Sharpness
from fedscope.landscape.sharpness.worst_case import worst_case_sharpness
from fedscope.landscape.spectral.diagonal import deflated_diagonal, diagonal
from fedscope.landscape.spectral.eigenpairs import top_eigenpairs
from fedscope.landscape.spectral.estimator import Estimated, Estimator
from fedscope.landscape.spectral.hutchinson_trace import trace
from fedscope.landscape.spectral.layer_blocks import block_patterns, layer_eigenpairs, layer_patterns
from fedscope.landscape.spectral.linear_systems import Solution, solve
from fedscope.landscape.spectral.slq_density import spectral_density
from fedscope.landscape.spectral.spectral_results import Density, Diagonal, Eigenpairs, Estimate, Trace
from fedscope.landscape.spectral.subspace_overlap import principal_cosines, subspace_overlap
from fedscope.landscape.surfaces.directions import Directions, eigen_directions, random_directions
from fedscope.landscape.surfaces.network_planes import Networks, best_plane, line_between, plane_through
from fedscope.landscape.surfaces.surface import surface
from fedscope.landscape.surfaces.surface_results import Axis, Mark, Surface, barrier

__all__ = [
    "AutoPGD",
    "AveragingBarrier",
    "Axis",
    "BasisStorage",
    "BatchMean",
    "Batches",
    "CriticalStep",
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
    "GradientNoise",
    "Hessian",
    "LambdaOperator",
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
    "Sharpness",
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
    "critical_sharpness",
    "cross_client",
    "deflated_diagonal",
    "diagonal",
    "eigen_directions",
    "fisher_rao_norm",
    "frozen_copy",
    "gradient_noise",
    "largest_relative_flatness",
    "last_linear",
    "layer_eigenpairs",
    "layer_patterns",
    "line_between",
    "low_pass_loss",
    "match_weights",
    "mean_spectral_distance",
    "orthogonal",
    "pac_bayes_sigma",
    "pair_barriers",
    "permutation_symmetry",
    "plane_through",
    "principal_cosines",
    "rademacher",
    "random_directions",
    "relative_flatness",
    "solve",
    "spectral_density",
    "spectral_distance",
    "subspace_overlap",
    "surface",
    "top_eigenpairs",
    "trace",
    "update_sharpness",
    "whole_copy",
    "worst_case_sharpness",
]

make_callable(__name__, "fedscope.api.landscape:landscape")
