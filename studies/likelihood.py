"""How likely printed numbers are under measured ones: a multivariate Student's t of their log-ratios.

y = log printed − log measured, of R rows and Q quantities, has the scale matrix

    training   s_q s_p ρ_qp [κ (1 + 1/n_rows) + (1 − κ) (1 + 1/n) δ_rows], the paper's training and n of ours
    growth     of short rows: g² ρ_qp (1 + 1/m), its common part 1/m from the m rows that it was measured on
    samples    m_q m_p ρ_qp [√(c_q c_p) + √((1 − c_q)(1 − c_p)) δ_rows] (1 + 1/D), the paper's draw and our D

with ρ_qp = 1 on the diagonal and the correlation of λ_max and trace beside it, and κ the share of a
training's variance that its seed gives to all rows alike. Few degrees of freedom ν say that the spreads
themselves are hardly known; the covariance is ν/(ν − 2) of the scale matrix. Infinitely many give the normal
distribution.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import helmert
from scipy.stats import chi2
from scipy.stats import f as f_distribution

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Errors:
    """The parts of the covariance; quantities in the order of the log-ratios."""

    training: Array  # (Q,)
    trainings: Array  # (R,) ours of each row
    samples: Array  # (Q,) of one draw
    draws: int
    common: Array  # (Q,) share of the samples' variance that all rows have in common
    short: NDArray[np.bool_]  # (R,)
    growth: float
    grown: int  # rows that the growth was measured on
    correlation: float
    alike: float = 0.0  # κ

    def covariance(self) -> Array:
        """Return the scale matrix (R·Q, R·Q), rows by rows."""
        rows, quantities = len(self.trainings), len(self.training)
        between = np.full((quantities, quantities), self.correlation)
        np.fill_diagonal(between, 1.0)
        single, every = np.eye(rows), np.ones((rows, rows))
        short = self.short.astype(np.float64)
        ours = 1 / np.sqrt(self.trainings)
        training = self.alike * (every + np.outer(ours, ours))
        training += (1 - self.alike) * np.diag(1 + 1 / self.trainings)
        growth = self.growth**2 * (np.diag(short) + np.outer(short, short) / max(1, self.grown))
        total = np.kron(training, between * np.outer(self.training, self.training))
        total += np.kron(growth, between)
        shared, own = (self.samples * np.sqrt(share) for share in (self.common, 1 - self.common))
        samples = np.kron(every, between * np.outer(shared, shared))
        samples += np.kron(single, between * np.outer(own, own))
        return np.asarray(total + (1 + 1 / self.draws) * samples, dtype=np.float64)


@dataclass(frozen=True)
class Fit:
    """One reading against the printed numbers."""

    log_likelihood: float
    factors: Array  # (Q,) printed over measured, the geometric mean over the rows
    ratios_only: float  # log-likelihood of the ratios between rows alone
    residual: float  # root mean square of the log-ratios less those of the factors
    p: float  # of log-ratios that are no nearer, if the reading is right


def fit(ratios: Array, errors: Errors, dof: float) -> Fit:
    """Return the likelihood of log-ratios (R, Q), and that of their contrasts between rows.

    The contrasts are free of any factor that all rows of a quantity have in common, and so of its error.
    """
    rows, quantities = ratios.shape
    covariance, y = errors.covariance(), ratios.reshape(-1)
    between = np.kron(helmert(rows), np.eye(quantities))  # ((R − 1)·Q, R·Q), orthonormal
    mean = ratios.mean(0)
    return Fit(
        log_density(y, covariance, dof),
        np.exp(mean),
        log_density(between @ y, between @ covariance @ between.T, dof),
        float(np.sqrt(np.mean((ratios - mean) ** 2))),
        tail(distance(y, covariance), len(y), dof),
    )


def log_density(y: Array, covariance: Array, dof: float) -> float:
    """Return the log-density of Student's t with a scale matrix, or of the normal distribution, at ``y``."""
    size, far = len(y), distance(y, covariance)
    determinant = float(np.linalg.slogdet(covariance)[1])
    if math.isinf(dof):
        return -0.5 * (far + determinant + size * math.log(2 * math.pi))
    constant = math.lgamma((dof + size) / 2) - math.lgamma(dof / 2) - 0.5 * size * math.log(dof * math.pi)
    return constant - 0.5 * determinant - 0.5 * (dof + size) * math.log1p(far / dof)


def distance(y: Array, covariance: Array) -> float:
    """Return the squared Mahalanobis distance of ``y`` from zero."""
    return float(y @ np.linalg.solve(covariance, y))


def tail(far: float, freedom: int, dof: float) -> float:
    """Return the chance of a squared distance of ``far`` or more, of so many free numbers."""
    if math.isinf(dof):
        return float(chi2.sf(far, freedom))
    return float(f_distribution.sf(far / freedom, freedom, dof))


def shares(log_likelihoods: Sequence[float]) -> list[float]:
    """Return the posterior shares under equal priors."""
    most = max(log_likelihoods, default=0.0)
    weights = [math.exp(one - most) for one in log_likelihoods]
    return [weight / sum(weights) for weight in weights]


def pooled_spread(
    groups: Mapping[str, Sequence[float]], scales: Mapping[str, float] | None = None
) -> float | None:
    """Return the standard deviation of the logarithms within groups; None where no group has two.

    ``scales``: what a group's deviations are multiplied by.
    """
    squares, freedom = 0.0, 0
    for name, values in groups.items():
        logs = [math.log(value) for value in values]
        mean, scale = sum(logs) / len(logs) if logs else 0.0, (scales or {}).get(name, 1.0)
        squares += sum((scale * (one - mean)) ** 2 for one in logs)
        freedom += max(0, len(logs) - 1)
    return math.sqrt(squares / freedom) if freedom else None
