"""Standard errors: over probes, over data, and by the jackknife over groups; and intervals from them."""

import math
from collections.abc import Sequence

import torch
from scipy.special import stdtr, stdtrit  # scipy.stats takes a second to import
from torch import Tensor


def mean_stderr(values: Sequence[float]) -> float:
    if len(values) < 2:
        return math.nan
    return float(torch.tensor(values, dtype=torch.float64).std() / len(values) ** 0.5)


def data_stderr(forms: Tensor | None, weights: Sequence[int] | None) -> float:
    """Return the standard error of a sample mean, from its means over B disjoint batches.

    With f_b the mean over n_b independent samples, N = Σ n_b and f̄ = Σ n_b f_b / N, the variance of f̄ is
    estimated without bias by Σ n_b (f_b − f̄)² / ((B − 1) N). NaN where there are fewer than two batches.
    """
    if forms is None or weights is None or len(weights) < 2:
        return math.nan
    counts = torch.tensor(weights, dtype=torch.float64, device=forms.device)
    mean = (counts * forms).sum() / counts.sum()
    variance = (counts * (forms - mean) ** 2).sum() / ((len(weights) - 1) * counts.sum())
    return float(variance.sqrt())


def sample_error(values: Tensor) -> tuple[float, float]:
    """Return the standard error of the mean of N independent values, and its degrees of freedom.

    The variance s² of heavy tails is known badly: Var s² = σ⁴ (κ/N − (N − 3)/(N² − N)) with their kurtosis κ.
    The degrees of freedom are those of a χ² that is known as well (Satterthwaite 1946): N − 1 for normal
    values, fewer for heavy tails. NaN for fewer than two values.
    """
    count = len(values)
    if count < 2:
        return math.nan, math.nan
    wide = values.double()
    centred = wide - wide.mean()
    variance = float(centred.square().mean())
    if variance == 0:
        return 0.0, count - 1
    kurtosis = float((centred**4).mean()) / variance**2
    loose = kurtosis / count - (count - 3) / (count * (count - 1))
    return math.sqrt(variance / (count - 1)), min(count - 1, max(1.0, 2 / loose))


def batches_freedom(batches: int, values: Tensor) -> float:
    """Return the degrees of freedom of a variance over the means of B batches of N values in all.

    Values (N,) of excess kurtosis κ leave the means one of κ·B/N, so that Var s² = σ⁴ (2/(B − 1) + κ/N). The
    degrees of freedom are those of a χ² known as well: B − 1 for normal values, fewer for heavy tails.
    """
    wide = values.double()
    centred = wide - wide.mean()
    excess = max(0.0, float((centred**4).mean() / centred.square().mean() ** 2) - 3)
    return 2 / (2 / (batches - 1) + excess / len(values))


def finite_population(samples: int, population: int | None) -> float:
    """Return the factor 1 − N/M on variances over N samples drawn from M without replacement.

    (Cochran 1977, section 2.6.) 1 where M is None, for an infinite population; 0 where all M were taken:
    nothing is left to chance.
    """
    return 1.0 if population is None else max(0.0, 1 - samples / population)


def drawn_stderr(stderr: float, factor: float) -> float:
    """Return a standard error over samples drawn from a finite population, by its ``factor`` on variances.

    0 where all there are were taken, even if ``stderr`` could not be formed, as of one batch.
    """
    return math.sqrt(factor) * stderr if factor else 0.0


def effective_number(parts: Tensor) -> float:
    """Return (Σq)²/Σq² of N parts: N if all are equal, 1 if one carries the sum; NaN if all are zero."""
    return float(parts.sum() ** 2 / parts.square().sum())


def probed_data_error(estimates: Tensor, weights: Sequence[int] | None) -> tuple[float, float]:
    """Return the standard error of ``data_stderr`` and its degrees of freedom, for batches seen by probes.

    ``estimates`` (M, B): independent unbiased estimates of each batch's mean. The spread S² of their means
    over probes holds the probes' noise as well; products of different probes do not, and give the corrected

        U = Σ_b n_b Σ_{i≠j} d_ib d_jb / (M (M − 1) (B − 1) N),   d_ib = f_ib − f̄_i.

    Where the noise is more than half of S², so that U itself is mostly noise, S²/2 is returned instead; of a
    single probe S². Of samples one by one it is :func:`sample_error`.
    """
    if weights is None or len(weights) < 2 or not len(estimates):
        return math.nan, math.nan
    if len(estimates) == 1 and set(weights) == {1}:
        return sample_error(estimates[0])
    counts = torch.tensor(weights, dtype=torch.float64, device=estimates.device)
    shares = counts / counts.sum() / (len(weights) - 1)
    deviations = estimates - (estimates @ counts / counts.sum())[:, None]
    probes = len(estimates)
    spread = (shares * deviations.mean(0) ** 2).sum()
    if probes > 1:
        noise = (shares * deviations.var(0)).sum() / probes
        spread = torch.maximum(spread - noise, spread / 2)
    return float(spread.sqrt()), len(weights) - 1


def combined(*errors: tuple[float, float]) -> tuple[float, float]:
    """Return the (standard error, degrees of freedom) of a sum of independent errors (Satterthwaite 1946)."""
    variance = sum(stderr**2 for stderr, _ in errors)
    loose = sum(stderr**4 / dof if dof > 0 else math.nan for stderr, dof in errors if stderr != 0)
    return math.sqrt(variance), variance**2 / loose if loose != 0 else math.inf


def interval(value: float, stderr: float, dof: float, level: float = 0.95) -> tuple[float, float]:
    """Return Student's confidence interval of a value whose standard error has ``dof`` degrees of freedom.

    (value, value) where the error is exactly 0; (NaN, NaN) where it could not be formed.
    """
    if stderr == 0:
        return value, value
    reach = float(stdtrit(dof, (1 + level) / 2)) * stderr if dof > 0 else math.nan
    return value - reach, value + reach


def p_value(value: float, stderr: float, dof: float) -> float:
    """Return the probability that Student's t is as far from 0 as a value, if 0 is the truth.

    1 for the value 0, 0 for another one whose error is exactly 0, NaN where the error could not be formed.
    """
    if value == 0 or stderr == 0:
        return float(value == 0)
    return float(2 * stdtr(dof, -abs(value) / stderr)) if dof > 0 else math.nan


def jackknife_variance(left_out: Tensor) -> Tensor:
    """Return the jackknife variance of a statistic from its G leave-one-out values, along dimension 0.

    (G − 1)/G · Σ_g (θ_g − θ̄)² (Efron and Stein 1981).
    """
    groups = len(left_out)
    return (groups - 1) / groups * ((left_out - left_out.mean(0)) ** 2).sum(0)


def deleted(whole: Tensor, left_out: Tensor, shares: Tensor) -> tuple[Tensor, Tensor]:
    """Return the jackknife's bias and variance of a statistic from its values without each of B batches.

    ``shares`` (B,) are n_b/N. With θ̃_b = θ/w_b − (1/w_b − 1) θ_(−b), the bias is θ less the mean
    B θ − Σ (1 − w_b) θ_(−b), and the variance Σ (θ̃_b − that)² / (1/w_b − 1) / B (Busing, Meijer and van der
    Leeden 1999). For equal sizes these are Quenouille's (1956) and Tukey's (1958).
    """
    count, odds = len(shares), 1 / shares - 1
    mean = count * whole - ((1 - shares) * left_out).sum()
    pseudo = whole / shares - odds * left_out
    return whole - mean, ((pseudo - mean) ** 2 / odds).sum() / count


def sloped_interval(
    value: float, stderr: float, slope: float, dof: float, level: float = 0.95
) -> tuple[float, float]:
    """Return the interval of a value whose variance changes with the truth θ, as that of squares does.

    It holds all θ with (value − θ)² ≤ t²·(stderr² + slope·(θ − value)), t Student's quantile (Wilson 1927);
    without a slope it is Student's interval. Degenerate as :func:`interval`.
    """
    if stderr == 0 or slope == 0:
        return interval(value, stderr, dof, level)
    t = float(stdtrit(dof, (1 + level) / 2)) if dof > 0 else math.nan
    shift = t * t * slope / 2
    reach = math.hypot(shift, t * stderr)
    return value + shift - reach, value + shift + reach
