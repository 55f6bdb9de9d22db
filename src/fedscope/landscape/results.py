"""What the analysis returns: frozen records with value, error bars, cost and seed.

Two kinds of error are kept apart: ``stderr_probe`` is the estimator's own (finitely many random probes on
the given samples), ``stderr_data`` is the data's (the samples are a finite draw; from the spread of the
per-batch contributions vᵀH_b v). For an eigenvalue it holds at the eigenvector found on those samples; that
the vector was chosen to fit them makes λ_max itself lean upward, more so on few samples, which no bar shows.
Where an operator has no batches, or only one, ``stderr_data`` is NaN.

Symbols: n parameters, T parameter tensors, k eigenpairs, M probes, K clients.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from fedscope.landscape.errorbars import sloped_interval

HESSIAN_SCHEMA = "fedscope/hessian/1"
LANDSCAPE_SCHEMA = "fedscope/landscape/1"

Pairs = Literal["distinct", "all_including_self"]
Reading = Literal["tensor", "parameter"]


@dataclass(frozen=True)
class Estimate:
    """A number and its standard error (NaN where it could not be formed)."""

    value: float
    stderr: float
    dof: float = math.inf  # degrees of freedom of the standard error
    slope: float = 0.0  # of the variance as a function of the true value, as squares have it

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Return Student's confidence interval, or Wilson's where the variance has a slope."""
        return sloped_interval(self.value, self.stderr, self.slope, self.dof, level)


@dataclass(frozen=True)
class Eigenpairs:
    """The algebraically largest eigenvalues, each certified by its residual ‖Hv − λv‖."""

    values: Tensor  # (k,) float64, descending
    vectors: Tensor  # (n, k) in the operator's dtype, unit columns
    residuals: Tensor  # (k,) float64
    stderr_data: Tensor  # (k,) float64
    converged: bool  # every residual ≤ tol·|λ_max|
    matvecs: int
    seed: int


@dataclass(frozen=True)
class Trace:
    """A Hutchinson estimate of tr H."""

    value: float
    stderr_probe: float
    stderr_data: float
    probes: int
    matvecs: int
    seed: int


@dataclass(frozen=True)
class Diagonal:
    """Hutchinson estimates of the diagonal of H and, from the same products, of each tensor's block trace."""

    parameter: Tensor  # (n,) float64: diag(H)
    tensor: Tensor  # (T,) float64: trace of each tensor's diagonal block
    parameter_stderr: Tensor  # (n,) float64
    tensor_stderr: Tensor  # (T,) float64
    names: tuple[str, ...]  # the T tensors
    groups: Tensor  # (G, n) float64: means of z⊙Hz over G disjoint groups of probes; G = 1 if exact
    tensor_groups: Tensor  # (G, T)
    trace: Trace  # the same products, summed
    probes: int
    matvecs: int
    seed: int


@dataclass(frozen=True)
class CrossClient:
    """How much the curvature of the clients' models differs (Mendieta et al. 2022, section 3.2).

    For clients k and j with diagonals D: H_N = (‖D_k‖ − ‖D_j‖)², H_D = ⟨D_k, D_j⟩ / (‖D_k‖·‖D_j‖), averaged
    over pairs. The published scripts have the ``tensor`` reading only, and no error bars.
    """

    clients: int
    pairs: Pairs
    H_N: Mapping[Reading, Estimate]
    H_D: Mapping[Reading, Estimate]
    H_N_matrix: Mapping[Reading, Tensor]  # (K, K) float64
    H_D_matrix: Mapping[Reading, Tensor]  # (K, K) float64
    probes: tuple[int, ...]  # of each client
    converged: bool | None  # whether the intervals are as narrow as was asked for; None: there are none
    matvecs: int


@dataclass(frozen=True)
class Density:
    """Spectral density by stochastic Lanczos quadrature, Gaussian-broadened; integrates to one."""

    grid: Tensor  # (m,) float64
    density: Tensor  # (m,) float64
    nodes: Tensor  # (M, steps) float64: Ritz values
    weights: Tensor  # (M, steps) float64: rows sum to one; 0 pads after breakdown
    sigma: float  # standard deviation of the broadening, in units of the eigenvalues
    negative_mass: Estimate  # share of eigenvalues below zero, error over probes
    matvecs: int
    seed: int


@dataclass(frozen=True)
class Axis:
    """One direction of a surface: its name and the coordinates along it."""

    name: str
    values: Tensor  # (m,) float64


@dataclass(frozen=True)
class Surface:
    """The loss on a grid w + a·d₀ + b·d₁; non-finite points are kept as they are."""

    axes: tuple[Axis, Axis]
    loss: Tensor  # (m₀, m₁) float64, first index along axes[0]
    directions: str
    center_loss: float
    non_finite: int
