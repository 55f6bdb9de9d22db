"""Intervals of kept draws under several rules, and how often they hold the truth.

Rules for λ_max differ in the quantile of the data's standard error: Student's t with the degrees of freedom
of the kurtosis (fedscope's), n − 1, or those of the batches' forms in place of the samples'; the normal z;
and the bootstrap-t over samples (Efron 1979; Hall 1988). All are on a logarithmic scale as fedscope's, those
called linear are not. Each is taken with the standard error of n independent samples, and times √(1 − n/N)
for draws without replacement from N (``finite``).

A ratio is the median half-width over 1.96 standard deviations of the estimate over draws: 1 for an interval
as narrow as can be.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from statistics import fmean, median, stdev
from typing import Any

import numpy as np
import torch
from scipy.special import betaincinv
from tables import row
from torch import Tensor

from fedscope.landscape import Eigenpairs, Estimate
from fedscope.statistics.intervals import combined, data_stderr, effective_number, interval, sample_error
from fedscope.streams import torch_stream
from fedscope.workflows.curvature.resources import BATCHES

Result = dict[str, Any]
Interval = tuple[float, float]
Rule = Callable[["Draw"], Interval]
RESAMPLES = 999


@dataclass(frozen=True)
class Draw:
    """λ_max of a draw of n samples, and the factor on its standard error."""

    value: float
    bias: float
    residual: float
    samples: Tensor  # (n,) float64: vᵀH_i v
    batches: Tensor  # (B,) float64: vᵀH_b v
    factor: float

    @classmethod
    def of(cls, kept: Result, factor: float) -> "Draw":
        """Return a draw as the campaign keeps it."""
        value, bias, residual = (float(kept[name]) for name in ("value", "bias", "residual"))
        return cls(value, bias, residual, _tensor(kept["samples"]), _tensor(kept["batches"]), factor)

    @property
    def lean(self) -> float:
        """The bias, which a finite population lowers as it lowers the variance."""
        return self.factor**2 * self.bias

    @property
    def centre(self) -> float:
        """The value less its bias."""
        return self.value - self.lean

    def with_error(self, stderr: float, dof: float) -> Interval:
        """Return fedscope's own interval for another standard error."""
        pairs = replace(
            Eigenpairs.bare(_tensor([self.value]), torch.zeros(1, 1), 0, 0),
            residuals=_tensor([self.residual]),
            bias_data=_tensor([self.lean]),
            bias_most=_tensor([self.lean]),
            stderr_data=_tensor([stderr * self.factor]),
            dof_data=_tensor([dof]),
        )
        return pairs.interval()


def _tensor(numbers: Any) -> Tensor:
    return torch.as_tensor(np.asarray(numbers), dtype=torch.float64)


def student(dof: Callable[[int, float], float], *, logarithmic: bool = True) -> Rule:
    """Return Student's rule; ``dof`` of n and the degrees of freedom by the kurtosis are those to take."""

    def rule(draw: Draw) -> Interval:
        stderr, known = sample_error(draw.samples)
        taken = dof(len(draw.samples), known)
        if logarithmic:
            return draw.with_error(stderr, taken)
        low, high = interval(draw.centre, stderr * draw.factor, taken)
        return low - draw.residual, high + draw.residual

    return rule


def batches(draw: Draw) -> Interval:
    """Return the interval where the samples' forms cannot be told: from B near-equal batches."""
    count = len(draw.batches)
    return draw.with_error(data_stderr(draw.batches, [1] * count), count - 1)


@cache
def resamples(size: int) -> Tensor:
    """Return the share of each of n samples in each resample, (R, n)."""
    drawn = torch.randint(size, (RESAMPLES, size), generator=torch.Generator().manual_seed(0))
    return torch.zeros(drawn.shape, dtype=torch.float64).scatter_add_(
        1, drawn, torch.full(drawn.shape, 1 / size, dtype=torch.float64)
    )


def bootstrap(*, logarithmic: bool = True) -> Rule:
    """Return the bootstrap-t rule: quantiles of (θ* − θ)/s* over samples drawn again, in place of ± t."""

    def rule(draw: Draw) -> Interval:
        mean, stderr = float(draw.samples.mean()), sample_error(draw.samples)[0]
        shares = draw.samples / mean - 1
        shifts, squares = (resamples(len(shares)) @ torch.stack([shares, shares**2], 1)).unbind(1)
        t = ((squares - shifts**2) / (len(shares) - 1)).rsqrt()
        t *= shifts.clamp(min=-0.99).log1p() * (1 + shifts) if logarithmic else shifts
        reach = t.quantile(torch.tensor([0.975, 0.025], dtype=t.dtype)) * draw.factor * stderr / draw.centre
        low, high = (draw.centre * ((-reach).exp() if logarithmic else 1 - reach)).tolist()
        return low - draw.residual, high + draw.residual

    return rule


RULES: dict[str, Rule] = {
    "t, kurtosis": student(lambda n, known: known),
    "t, n − 1": student(lambda n, known: n - 1),
    "z": student(lambda n, known: math.inf),
    "t, batches": batches,
    "bootstrap-t": bootstrap(),
    "linear t, kurtosis": student(lambda n, known: known, logarithmic=False),
    "linear z": student(lambda n, known: math.inf, logarithmic=False),
    "linear bootstrap-t": bootstrap(logarithmic=False),
}


def judged(found: list[Interval], truth: float, deviation: float, numbers: list[int]) -> Result:
    """Return the coverage of intervals, in all and by how the draws are stored, and their ratio."""
    hits = [low <= truth <= high for low, high in found]
    by_order = [[hit for hit, number in zip(hits, numbers, strict=True) if number % 2 == k] for k in (0, 1)]
    return {
        "coverage": fmean(hits),
        "range": clopper_pearson(sum(hits), len(hits)),
        "sorted": fmean(by_order[0]) if by_order[0] else None,
        "shuffled": fmean(by_order[1]) if by_order[1] else None,
        "above": fmean(low > truth for low, _ in found),
        "below": fmean(high < truth for _, high in found),
        "ratio": median((high - low) / 2 for low, high in found) / (1.96 * deviation),
    }


def clopper_pearson(hits: int, count: int) -> list[float]:
    """Return the exact 95 % interval of a share (Clopper and Pearson 1934)."""
    low = float(betaincinv(hits, count - hits + 1, 0.025)) if hits else 0.0
    high = float(betaincinv(hits + 1, count - hits, 0.975)) if hits < count else 1.0
    return [low, high]


def eigenvalue_summary(kept: list[Result], truth: float, population: int) -> Result:
    """Return coverage by every rule of draws of one size, and what they have in common."""
    size, numbers = len(kept[0]["samples"]), [draw["number"] for draw in kept]
    plain = [Draw.of(draw, 1.0) for draw in kept]
    finite = [replace(draw, factor=math.sqrt(1 - size / population)) for draw in plain]
    centres = [draw.centre for draw in plain]
    deviation = stdev(centres) if len(kept) > 1 else math.nan
    return {
        "draws": len(kept),
        "deviation": deviation,
        "deviation_with_bias": stdev(draw.value for draw in plain) if len(kept) > 1 else math.nan,
        "mean_over_truth": fmean(centres) / truth,
        "mean_over_truth_with_bias": fmean(draw.value for draw in plain) / truth,
        "stderr": median(sample_error(draw.samples)[0] for draw in plain),
        "effective_samples": median(effective_number(draw.samples) for draw in plain),
        "dof": median(sample_error(draw.samples)[1] for draw in plain),
        "products": fmean(int(draw["matvecs"]) for draw in kept),
        "seconds": median(float(draw["seconds"]) for draw in kept),
        "cosine": median(float(draw["cosine"]) for draw in kept),
        "rules": {
            name: {
                which: judged([rule(draw) for draw in draws], truth, deviation, numbers)
                for which, draws in (("plain", plain), ("finite", finite))
            }
            for name, rule in RULES.items()
        },
    }


def first_order(forms: Tensor, size: int, draws: int) -> Result:
    """Return coverage by every rule of draws whose λ_max is the mean of the population's forms (N,).

    They cost no product, so that there can be more, and leave out that each draw has its own eigenvector.
    """
    drawn = [forms[torch.randperm(len(forms), generator=torch_stream(1, "coverage", size, i))[:size]]
             for i in range(draws)]  # fmt: skip
    common = {"bias": 0, "residual": 0, "matvecs": 0, "seconds": 0, "cosine": 1}
    kept = [
        {"value": part.mean(), "samples": part, "number": i, **common,
         "batches": [batch.mean() for batch in part.tensor_split(BATCHES)]}
        for i, part in enumerate(drawn)
    ]  # fmt: skip
    return eigenvalue_summary(kept, float(forms.mean()), len(forms))


def trace_summary(kept: list[Result], population: int) -> Result:
    """Return the coverage of the trace's intervals; the mean of the estimates is the truth."""
    values = [float(draw["value"]) for draw in kept]
    truth, deviation = fmean(values), stdev(values) if len(kept) > 1 else math.nan

    def intervals(size: int | None) -> list[Interval]:
        factor = 1.0 if size is None else math.sqrt(1 - size / population)
        return [_trace_interval(draw, factor) for draw in kept]

    numbers = [draw["number"] for draw in kept]
    size = int(kept[0]["size"])
    return {
        "draws": len(kept),
        "truth": truth,
        "truth_stderr": deviation / math.sqrt(len(kept)),
        "deviation": deviation,
        "plain": judged(intervals(None), truth, deviation, numbers),
        "finite": judged(intervals(size), truth, deviation, numbers),
    }


def _trace_interval(draw: Result, factor: float) -> Interval:
    probe, data = ((float(draw[f"stderr_{of}"]), float(draw[f"dof_{of}"])) for of in ("probe", "data"))
    return Estimate(float(draw["value"]), *combined(probe, (data[0] * factor, data[1]))).interval()


def control_summary(cold: list[Result], warm: list[Result]) -> Result:
    """Return how draws from a random start differ from the same draws from the population's eigenvector."""
    known = {draw["number"]: draw for draw in warm}
    pairs = [(draw, known[draw["number"]]) for draw in cold if draw["number"] in known]
    return {
        "draws": len(pairs),
        "difference": max(abs(float(one["value"] / other["value"]) - 1) for one, other in pairs),
        "bias": [fmean(float(pair[k]["bias"] / pair[k]["value"]) for pair in pairs) for k in (0, 1)],
        "products": [fmean(int(pair[k]["matvecs"]) for pair in pairs) for k in (0, 1)],
    }


def tables(record: Result) -> str:
    """Return the rules' coverage and ratios as Markdown, a network and a size after the other."""
    lines = [row(["network", "n", "draws", "rule", "coverage", "95 % range", "ratio", "finite", "ratio"])]
    lines.append(row(["---", "---:", "---:", "---", *["---:"] * 5]))
    for name, network in record["networks"].items():
        for size, found in network.get("lambda", {}).items():
            for rule, entry in found["rules"].items():
                plain, finite = entry["plain"], entry["finite"]
                low, high = plain["range"]
                cells = [
                    f"{plain['coverage']:.1%}", f"{low:.1%} to {high:.1%}", f"{plain['ratio']:.2f}",
                    f"{finite['coverage']:.1%}", f"{finite['ratio']:.2f}",
                ]  # fmt: skip
                lines.append(row([name, str(size), str(found["draws"]), rule, *cells]))
    return "\n".join(lines)
