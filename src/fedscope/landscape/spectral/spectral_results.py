"""Results of the analysis: frozen records with value, error bars, cost and seed.

Two kinds of error are kept apart: ``stderr_probe`` is the estimator's own (finitely many random probes on
the given samples), ``stderr_data`` is the data's (the samples are a finite draw; from the spread of the
samples' own vᵀH_i v, or of the batches'). As an eigenvector was chosen to fit those samples, λ_max is biased
upward, more so on few samples: ``bias_data``. Where an operator has no batches, or only one, a bias is NaN,
and so is an error that is known by batches alone.

Symbols: n parameters, T parameter tensors, k eigenpairs, M probes.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from fedscope.errors import UserError
from fedscope.landscape.operators.basis.krylov_basis import Subspace
from fedscope.landscape.printing import Printed
from fedscope.landscape.spectral.gauss_quadrature import share_limits
from fedscope.statistics.resolution import is_resolved
from fedscope.statistics.standard_errors import combined, interval, mean_stderr, sloped_interval


@dataclass(frozen=True, repr=False)
class Estimate(Printed):
    """A number and its standard error (NaN where it could not be formed).

    The value is as estimated: noise may have carried it out of the range of what it estimates.
    """

    value: float
    stderr: float
    dof: float = math.inf  # degrees of freedom of the standard error
    slope: float = 0.0  # of the variance as a function of the true value, as squares have it
    low: float = -math.inf  # the least that the true value can be
    high: float = math.inf  # the most
    ends: tuple[float, float] | None = None  # of the 95 % interval, where that is not Student's

    def __repr__(self) -> str:
        return f"Estimate({self.value:.6g} ± {self.stderr:.6g})"

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Return Student's confidence interval, or Wilson's where the variance has a slope.

        It is centred at the possible value that is nearest to the estimate, and not cut to the range.

        Raises:
            UserError: another level than 95 % of a value whose interval is known at that level alone.
        """
        if self.ends is not None:
            if level != 0.95:
                raise UserError(f"level is {level}; the interval of a largest value is known at 0.95 alone")
            return self.ends
        nearest = min(max(self.value, self.low), self.high)
        return sloped_interval(nearest, self.stderr, self.slope, self.dof, level)

    @property
    def resolved(self) -> bool:
        """Whether it lies in its range, and its 95 % interval leaves some of that out."""
        return is_resolved(self.value, self.interval(), self.low, self.high)


def probe_mean(values: Tensor, exact: bool) -> Estimate:
    """Return the mean of (M,) independent values; ``exact``: they are a complete set, without error."""
    return Estimate(float(values.mean()), 0.0 if exact else mean_stderr(values.tolist()), len(values) - 1)


PER_PAIR = (
    "values", "residuals", "stderr_data", "bias_data", "dof_data", "stderr_bias", "certified", "forms",
    "samples",
)  # fmt: skip


@dataclass(frozen=True, repr=False)
class Eigenpairs(Printed):
    """Eigenvalues at an end of the spectrum, each certified by its residual ‖Hv − λv‖.

    The errors of products that are not exact (``Product.error``) are in the residuals.
    """

    values: Tensor  # (k,) float64, descending
    vectors: Tensor  # (n, k) in the operator's dtype, unit columns
    residuals: Tensor  # (k,) float64
    stderr_data: Tensor  # (k,) float64
    bias_data: Tensor  # (k,) float64: how far above the population's values these lie on average
    dof_data: Tensor  # (k,) float64: degrees of freedom of stderr_data
    noise: float  # what rounding in the products may have shifted a value by; no digit below it counts
    converged: bool  # every residual is as small as was asked, and every value certified if that was asked
    matvecs: int
    seed: int
    certified: Tensor  # (k,) bool: known to be the i-th, but with a probability of 0.1 %
    stderr_bias: Tensor  # (k,) float64: standard error of bias_data, as many degrees of freedom as batches
    subspace: Subspace | None = None  # the Krylov basis with its products
    forms: Tensor | None = None  # (k, B) float64: each batch's vᵀH_b v
    samples: Tensor | None = None  # (k, N) float64: each sample's vᵀH_i v; None where they cannot be told

    @classmethod
    def bare(cls, values: Tensor, vectors: Tensor, matvecs: int, seed: int) -> "Eigenpairs":
        """Return the pairs of an estimator without errors."""
        unknown = torch.full_like(values, math.nan)
        uncertain = torch.zeros(len(values), dtype=torch.bool)
        return cls(
            values, vectors, unknown, unknown, unknown, unknown, math.nan, False, matvecs, seed, uncertain,
            unknown,
        )  # fmt: skip

    def some(self, chosen: Tensor) -> "Eigenpairs":
        """Return these pairs, by their positions."""
        rows = {name: one[chosen] for name in PER_PAIR if (one := getattr(self, name)) is not None}
        return replace(self, vectors=self.vectors[:, chosen.to(self.vectors.device)], **rows)

    def and_more(self, more: "Eigenpairs") -> "Eigenpairs":
        """Return these pairs and more of the same operator, descending."""
        both = {name: (getattr(self, name), getattr(more, name)) for name in PER_PAIR}
        rows: dict[str, Any] = {name: torch.cat(two) for name, two in both.items() if two[0] is not None}
        joined = replace(self, vectors=torch.cat([self.vectors, more.vectors], dim=1), **rows)
        return joined.some(joined.values.argsort(descending=True))

    def population(self, i: int = 0) -> Estimate:
        """Estimate the i-th eigenvalue of the population: the value less its bias, with both errors."""
        data = float(self.stderr_data[i]), float(self.dof_data[i])
        bias = float(self.stderr_bias[i]), 1.0 if self.forms is None else self.forms.shape[1] - 1.0
        return Estimate(float(self.values[i] - self.bias_data[i]), *combined(data, bias))

    def interval(self, i: int = 0, level: float = 0.95) -> tuple[float, float]:
        """Return a confidence interval of the i-th eigenvalue of the population.

        It is Student's on a logarithmic scale, unless the value is within two standard errors of 0: a draw
        without the few samples of high curvature has too low a value and too low an error together. The
        residual, which bounds the error of the value on these samples, is added at both ends.
        """
        (low, high), residual = _lognormal(self.population(i), level), float(self.residuals[i])
        return low - residual, high + residual


def _lognormal(estimate: Estimate, level: float) -> tuple[float, float]:
    value, stderr = estimate.value, estimate.stderr
    if not abs(value) > 2 * stderr:
        return estimate.interval(level)
    ends = interval(math.log(abs(value)), stderr / abs(value), estimate.dof, level)
    low, high = sorted(math.copysign(math.exp(end), value) for end in ends)
    return low, high


@dataclass(frozen=True, repr=False)
class Probed(Printed):
    """Probes with their products, for another estimate from the same ones."""

    vectors: Tensor  # (r, n): z
    images: Tensor  # (r, n): A z


@dataclass(frozen=True, repr=False)
class Trace(Printed):
    """An estimate of tr H."""

    value: float
    stderr_probe: float
    stderr_data: float
    probes: int
    matvecs: int  # those of a subspace that was given are not counted again
    seed: int
    dof_probe: float = math.nan  # degrees of freedom of stderr_probe
    dof_data: float = math.nan  # of stderr_data: batches − 1
    deflated: int = 0  # dimensions of the subspace whose part of the trace is exact
    samples: tuple[float, ...] = ()  # M: the estimate by each probe, the exact part included
    batches: tuple[float, ...] = ()  # B: the estimate for each batch's part of H
    probed: Probed | None = None  # the first probes, where they were to be kept
    error: float = 0.0  # a bound on what inexact products moved the value by

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Return the confidence interval of the trace on these samples: the probes' error, and ``error``."""
        return self._wider(interval(self.value, self.stderr_probe, self.dof_probe, level))

    def population_interval(self, level: float = 0.95) -> tuple[float, float]:
        """Return the confidence interval of the trace on the samples' population: both errors."""
        errors = (self.stderr_probe, self.dof_probe), (self.stderr_data, self.dof_data)
        return self._wider(interval(self.value, *combined(*errors), level))

    def _wider(self, ends: tuple[float, float]) -> tuple[float, float]:
        return ends[0] - self.error, ends[1] + self.error


@dataclass(frozen=True, repr=False)
class Diagonal(Printed):
    """Estimates of the diagonal of H and, from the same products, of each tensor's block trace."""

    parameter: Tensor  # (n,) float64: diag(H)
    tensor: Tensor  # (T,) float64: trace of each tensor's diagonal block
    parameter_stderr: Tensor  # (n,) float64
    tensor_stderr: Tensor  # (T,) float64
    dof: float  # degrees of freedom of these errors
    names: tuple[str, ...]  # the T tensors
    groups: Tensor  # (G, n) float64: estimates from G disjoint groups of probes; G = 1 if exact
    tensor_groups: Tensor  # (G, T)
    trace: Trace  # the same products, summed
    probes: int
    matvecs: int
    seed: int
    subspace: Subspace | None = None  # the basis whose part is exact, where one was made or given

    def tensors(self) -> dict[str, Estimate]:
        """Return each tensor's block trace with its error."""
        pairs = zip(self.tensor.tolist(), self.tensor_stderr.tolist(), strict=True)
        found = [Estimate(value, stderr, self.dof) for value, stderr in pairs]
        return dict(zip(self.names, found, strict=True))


@dataclass(frozen=True, repr=False)
class Density(Printed):
    """Spectral density by stochastic Lanczos quadrature, Gaussian-broadened; integrates to one.

    Its errors are over the M probes, with M − 1 degrees of freedom; 0 if the probes were a complete set.
    """

    grid: Tensor  # (m,) float64
    density: Tensor  # (m,) float64
    stderr: Tensor  # (m,) float64
    nodes: Tensor  # (M, steps) float64: Ritz values
    weights: Tensor  # (M, steps) float64: rows sum to one; 0 pads after breakdown
    sigma: float  # standard deviation of the broadening, in units of the eigenvalues
    moments: tuple[Estimate, Estimate]  # tr H / n and tr H² / n
    matvecs: int
    seed: int
    exact: bool = False  # a complete set of probes: nothing is random

    def band(self, level: float = 0.95) -> tuple[Tensor, Tensor]:
        """Return the lower and upper end of each point's own confidence interval; NaN for one probe."""
        reach = interval(0.0, 1.0, math.inf if self.exact else len(self.nodes) - 1, level)[1] * self.stderr
        return (self.density - reach).clamp(min=0), self.density + reach

    def mass(self, above: float) -> Estimate:
        """Return the share of eigenvalues greater than ``above``, with the error over probes."""
        return probe_mean((self.weights * (self.nodes > above)).sum(1), self.exact)

    @property
    def negative_mass(self) -> Estimate:
        """The share of eigenvalues below −σ, with the error over probes.

        Not below zero: most eigenvalues of a network lie so near to it that one node stands for them all,
        whose sign depends on the steps.
        """
        return probe_mean((self.weights * (self.nodes < -self.sigma)).sum(1), self.exact)

    def mass_interval(self, above: float, level: float = 0.95) -> tuple[float, float]:
        """Return an interval of the share greater than ``above``: the probes' error about both limits."""
        low, high = (probe_mean(limit, self.exact) for limit in self._limits(above))
        return max(low.interval(level)[0], 0.0), min(high.interval(level)[1], 1.0)  # NaN stays

    def mass_bounds(self, above: float) -> tuple[float, float]:
        """Return the limits of these probes' own share greater than ``above``: the error of finite steps."""
        low, high = self._limits(above)
        return float(low.mean()), float(high.mean())

    def _limits(self, above: float) -> tuple[Tensor, Tensor]:
        below = []
        for nodes, weights in zip(self.nodes, self.weights, strict=True):
            share = float(weights[nodes < above].sum())
            ended = bool((weights == 0).any())  # the probe's space: nothing is open
            below.append((share, share) if ended else share_limits(nodes, weights, above))
        limits = torch.tensor(below, dtype=torch.float64)
        return 1 - limits[:, 1], 1 - limits[:, 0]
