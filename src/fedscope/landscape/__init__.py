"""Curvature and loss landscapes of any PyTorch model: operators, and plain functions of them.

The module can be called: ``fedscope.landscape(...)`` is :func:`fedscope.api.landscape.landscape`.
"""

from fedscope.callable_module import make_callable
from fedscope.landscape.gradients.client_noise import client_gradient_noise, gradient_noise
from fedscope.landscape.gradients.results import GradientNoise, NoiseScale, Ratio
from fedscope.landscape.heterogeneity.cross_client import cross_client
from fedscope.landscape.heterogeneity.results import CrossClient
from fedscope.landscape.loss.batches import Batches
from fedscope.landscape.loss.batchnorm import frozen_copy
from fedscope.landscape.loss.state_space import StateSpace
from fedscope.landscape.matching.symmetry import Symmetry, permutation_symmetry
from fedscope.landscape.matching.weight_matching import Matched, match_weights
from fedscope.landscape.operators.adapters import as_operator
from fedscope.landscape.operators.base import LambdaOperator, Operator, Product
from fedscope.landscape.operators.by_batch.batch_mean import BatchMean
from fedscope.landscape.operators.empirical_fisher import EmpiricalFisher
from fedscope.landscape.operators.gauss_newton import GaussNewton
from fedscope.landscape.operators.hessian import Hessian
from fedscope.landscape.operators.monte_carlo_fisher import MonteCarloFisher
from fedscope.landscape.operators.probes import orthogonal, rademacher
from fedscope.landscape.paths.barriers import averaging_barrier, pair_barriers
from fedscope.landscape.paths.critical_sharpness import critical_sharpness, update_sharpness
from fedscope.landscape.paths.results import AveragingBarrier, CriticalStep, PairBarriers, UpdateSharpness
from fedscope.landscape.spectral.diagonal import deflated_diagonal, diagonal
from fedscope.landscape.spectral.eigenpairs import top_eigenpairs
from fedscope.landscape.spectral.estimator import Estimated, Estimator
from fedscope.landscape.spectral.hutchinson_trace import trace
from fedscope.landscape.spectral.layer_blocks import layer_eigenpairs, layer_patterns
from fedscope.landscape.spectral.linear_systems import Solution, solve
from fedscope.landscape.spectral.results import Density, Diagonal, Eigenpairs, Estimate, Trace
from fedscope.landscape.spectral.slq_density import spectral_density
from fedscope.landscape.spectral.subspace_overlap import principal_cosines, subspace_overlap
from fedscope.landscape.surfaces.barrier import barrier
from fedscope.landscape.surfaces.directions import Directions, eigen_directions, random_directions
from fedscope.landscape.surfaces.planes import Networks, best_plane, line_between, plane_through
from fedscope.landscape.surfaces.results import Axis, Mark, Surface
from fedscope.landscape.surfaces.surface import surface

__all__ = [
    "AveragingBarrier",
    "Axis",
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
    "NoiseScale",
    "Operator",
    "PairBarriers",
    "Product",
    "Ratio",
    "Solution",
    "StateSpace",
    "Surface",
    "Symmetry",
    "Trace",
    "UpdateSharpness",
    "as_operator",
    "averaging_barrier",
    "barrier",
    "best_plane",
    "client_gradient_noise",
    "critical_sharpness",
    "cross_client",
    "deflated_diagonal",
    "diagonal",
    "eigen_directions",
    "frozen_copy",
    "gradient_noise",
    "layer_eigenpairs",
    "layer_patterns",
    "line_between",
    "match_weights",
    "orthogonal",
    "pair_barriers",
    "permutation_symmetry",
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
    "update_sharpness",
]

make_callable(__name__, "fedscope.api.landscape:landscape")
