"""How often kept intervals hold the truth, and how wide they are.

A ratio is the median half-width over 1.96 standard deviations, over draws, of the value on the samples: 1
for an interval as narrow as an unbiased value's can be. ``ratio_of_centre`` has that of the value less its
bias instead.
"""

import math
from statistics import fmean, median, stdev
from typing import Any

from scipy.special import betaincinv
from tables import row

Result = dict[str, Any]


def clopper_pearson(hits: int, count: int) -> list[float]:
    """Return the exact 95 % interval of a share (Clopper and Pearson 1934)."""
    low = float(betaincinv(hits, count - hits + 1, 0.025)) if hits else 0.0
    high = float(betaincinv(hits + 1, count - hits, 0.975)) if hits < count else 1.0
    return [low, high]


def judged(kept: list[Result], truth: float, prefix: str = "") -> Result:
    """Return the coverage of the draws' intervals, in all and by how draws are stored, and the ratio."""
    numbers = {name: [float(draw[prefix + name]) for draw in kept] for name in ("value", "low", "high")}
    pairs = list(zip(numbers["low"], numbers["high"], strict=True))
    hits = [low <= truth <= high for low, high in pairs]
    by_order = [
        [hit for hit, draw in zip(hits, kept, strict=True) if draw["number"] % 2 == k] for k in (0, 1)
    ]
    width = median((high - low) / 2 for low, high in pairs)
    return {
        "draws": len(kept),
        "coverage": fmean(hits),
        "range": clopper_pearson(sum(hits), len(hits)),
        "sorted": fmean(by_order[0]) if by_order[0] else None,
        "shuffled": fmean(by_order[1]) if by_order[1] else None,
        "above": fmean(low > truth for low, _ in pairs),
        "below": fmean(high < truth for _, high in pairs),
        "half_width": width,
        "deviation": _deviation(numbers["value"]),
        "ratio": width / (1.96 * _deviation(numbers["value"])),
        "mean_over_truth": fmean(numbers["value"]) / truth,
        "products": fmean(int(draw[prefix + "matvecs"]) for draw in kept),
    }


def eigenvalue_summary(kept: list[Result], truth: float) -> Result:
    """Return the coverage of λ_max's interval, and what becomes of the bias."""
    found = judged(kept, truth)
    centres = [float(draw["value"] - draw["bias"]) for draw in kept]
    return found | {
        "centre_over_truth": fmean(centres) / truth,
        "deviation_of_centre": _deviation(centres),
        "ratio_of_centre": found["half_width"] / (1.96 * _deviation(centres)),
        "effective_samples": median(float(draw["effective_samples"]) for draw in kept),
        "seconds": median(float(draw["seconds"]) for draw in kept),
    }


def trace_summary(kept: list[Result]) -> Result:
    """Return the coverage of the trace's intervals; the mean of the estimates is the truth."""
    truth = fmean(float(draw["trace_value"]) for draw in kept)
    found = judged(kept, truth, "trace_")
    return found | {"truth": truth, "truth_stderr": found["deviation"] / math.sqrt(len(kept))}


def _deviation(values: list[float]) -> float:
    return stdev(values) if len(values) > 1 else math.nan


def tables(record: Result) -> str:
    """Return coverage and ratios as Markdown, a network and a size after the other."""
    names = [
        "network",
        "n",
        "draws",
        "effective",
        "value/truth",
        "less its bias",
        "coverage",
        "95 % range",
        "width",
    ]
    lines = [row([*names, "trace", "width"]), row(["---", *["---:"] * 10])]
    for name, network in record["networks"].items():
        for size, found in network.get("lambda_max_of_draws", {}).items():
            low, high = found["range"]
            total = network["trace_of_draws"].get(size)
            cells = [
                str(found["draws"]), f"{found['effective_samples']:.0f}", f"{found['mean_over_truth']:.3f}",
                f"{found['centre_over_truth']:.3f}", f"{found['coverage']:.1%}", f"{low:.1%} to {high:.1%}",
                f"{found['ratio']:.2f}",
                *([f"{total['coverage']:.1%}", f"{total['ratio']:.2f}"] if total else ["–", "–"]),
            ]  # fmt: skip
            lines.append(row([name, str(size), *cells]))
    return "\n".join(lines)
