"""Curvature and loss landscapes of any PyTorch model: operators, and plain functions of them."""

from fedscope.landscape.barrier import barrier
from fedscope.landscape.batches import Batches
from fedscope.landscape.clients import cross_client
from fedscope.landscape.density import spectral_density
from fedscope.landscape.diagonal import deflated_diagonal, diagonal
from fedscope.landscape.directions import Directions, eigen_directions, random_directions
from fedscope.landscape.eigen import top_eigenpairs
from fedscope.landscape.gaussnewton import EmpiricalFisher, GaussNewton
from fedscope.landscape.hessian import Hessian
from fedscope.landscape.layers import layer_eigenpairs, layer_patterns
from fedscope.landscape.normalization import frozen_copy
from fedscope.landscape.operators import LambdaOperator, Operator, Product
from fedscope.landscape.overlap import principal_cosines, subspace_overlap
from fedscope.landscape.planes import Networks, best_plane, line_between, plane_through
from fedscope.landscape.probes import orthogonal, rademacher
from fedscope.landscape.results import (
    Axis,
    CrossClient,
    Density,
    Diagonal,
    Eigenpairs,
    Estimate,
    Mark,
    Surface,
    Trace,
)
from fedscope.landscape.statespace import StateSpace
from fedscope.landscape.surface import surface
from fedscope.landscape.trace import trace

__all__ = [
    "Axis",
    "Batches",
    "CrossClient",
    "Density",
    "Diagonal",
    "Directions",
    "Eigenpairs",
    "EmpiricalFisher",
    "Estimate",
    "GaussNewton",
    "Hessian",
    "LambdaOperator",
    "Mark",
    "Networks",
    "Operator",
    "Product",
    "StateSpace",
    "Surface",
    "Trace",
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
    "spectral_density",
    "subspace_overlap",
    "surface",
    "top_eigenpairs",
    "trace",
]
