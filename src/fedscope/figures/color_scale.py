"""One scale for a metric of several checkpoints: heights, colours, levels and the display ceiling.

Losses: the scale is logarithmic where every finite loss is positive and linear otherwise. Walls that would
hide the minima are cut at a ceiling: with h the height (log₁₀ of the loss, or the loss), and q₃ a surface's
third quartile, the scale reaches at most ``RELIEFS`` times the gentlest surface's relief h(q₃) − h(min) above
the highest of the minima. On the logarithmic scale it is ``LOG_RELIEFS`` times, never under 1 nor over 6
decades, and nothing is cut that ends within a factor of 5 above the ceiling.

Accuracies are shown in percent, on a linear scale; so is any other metric, as it is. Neither is cut.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.colors import LogNorm, Normalize
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from fedscope.errors import UserError

RELIEFS, LOG_RELIEFS = 4.0, 1.25
DECADES = (1.0, 6.0)
BANDS = 48  # of the filled contours
SPARED = 5.0  # walls up to this many times the ceiling are not cut

Grid = NDArray[np.float64]


@dataclass(frozen=True)
class Scale:
    """The range of values that is drawn, and how a value becomes a height and a colour."""

    log: bool
    low: float
    high: float  # the ceiling where ``clipped``
    highest: float  # the largest finite value
    clipped: bool  # some finite values lie above ``high``
    metric: str = "loss"

    def height(self, values: Grid) -> Grid:
        """Return the heights, log₁₀ of the value or the value itself; NaN where it is not finite."""
        finite = np.where(np.isfinite(values), values, np.nan)
        return np.log10(finite) if self.log else finite

    def norm(self) -> Normalize:
        return (LogNorm if self.log else Normalize)(self.low, self.high)

    def bands(self) -> Grid:
        return (np.geomspace if self.log else np.linspace)(self.low, self.high, BANDS + 1)

    def ticks(self, count: int = 6) -> list[float]:
        return self._round(((1,), (1, 3), (1, 2, 5)), count)

    def lines(self) -> list[float]:
        return self._round(((1,), (1, 3), (1, 2, 5), (1, 1.5, 2, 3, 5, 7)), 9)

    def label(self) -> str:
        if is_percentage(self.metric):
            return f"{self.metric} (%)"
        if self.log:
            return f"{self.metric} (log scale)"
        return f"{self.metric}{' (linear scale: some losses are not positive)' * is_loss(self.metric)}"

    def format(self, value: float, *, digits: int = 6) -> str:
        return format_value(100 * value if is_percentage(self.metric) else value, digits=digits)

    def _round(self, mantissas: Sequence[tuple[float, ...]], count: int) -> list[float]:
        if self.log:
            exponents = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            families = [[m * 10.0**e for e in exponents for m in family] for family in mantissas]
            inside = [[v for v in family if self.low <= v <= self.high] for family in families]
            fitting = [family for family in inside if 3 <= len(family) <= count]
            if fitting:
                return fitting[-1]
            if len(inside[0]) > count:
                return inside[0][:: math.ceil(len(inside[0]) / count)]
        values = MaxNLocator(count, steps=[1, 2, 5, 10], min_n_ticks=3).tick_values(self.low, self.high)
        return [float(v) for v in values if self.low <= v <= self.high]


def is_percentage(metric: str) -> bool:
    return "accuracy" in metric.lower()


def is_loss(metric: str) -> bool:
    return metric.lower().endswith("loss")


def shared_scale(grids: Sequence[Grid], metric: str = "loss") -> Scale:
    finite = [grid[np.isfinite(grid)] for grid in grids]
    finite = [values for values in finite if values.size]
    if not finite:
        raise UserError(f"no {metric} on the grid is finite: choose a smaller --span")
    low, highest = (float(end) for end in (min(v.min() for v in finite), max(v.max() for v in finite)))
    log = low > 0 and is_loss(metric)
    high = min(highest, _ceiling(finite, log=log)) if is_loss(metric) else highest
    if not high > low:
        low, high = _around(low, log=log)
        if is_percentage(metric):
            low, high = max(low, 0.0), min(high, 1.0)
    return Scale(
        log=log, low=low, high=float(high), highest=highest, clipped=bool(highest > high), metric=metric
    )


def format_value(value: float, *, digits: int = 6) -> str:
    """Return a label of at most ``digits``: plain between 10⁻³ and 10⁴, mathtext powers of ten beyond."""
    rounded = float(f"{value:.{digits}g}")
    if rounded == 0 or 1e-3 <= abs(rounded) < 1e4:
        return f"{rounded:g}".replace("-", "−")
    mantissa, exponent = f"{rounded:.{digits - 1}e}".split("e")
    factor = "" if float(mantissa) == 1 else rf"{float(mantissa):g}\times"
    return f"${factor}10^{{{int(exponent)}}}$"


def _ceiling(finite: Sequence[Grid], *, log: bool) -> float:
    heights = [np.log10(values) if log else values for values in finite]
    base = max(h.min() for h in heights)
    reliefs = [float(np.quantile(h, 0.75) - h.min()) for h in heights]
    if log:
        reach = float(np.clip(LOG_RELIEFS * min(reliefs), *DECADES))
        ceiling = _round_down(10.0 ** min(base + reach, 308.0))
        return ceiling if max(float(h.max()) for h in heights) > math.log10(SPARED * ceiling) else math.inf
    uneven = [relief for relief in reliefs if relief > 0]
    return float(base + RELIEFS * min(uneven)) if uneven else math.inf


def _round_down(value: float) -> float:
    power = 10.0 ** math.floor(math.log10(value))
    return max(m * power for m in (1, 2, 5) if m == 1 or m * power <= value)


def _around(value: float, *, log: bool) -> tuple[float, float]:
    if log:
        return value / 1.5, value * 1.5
    margin = 0.5 * abs(value) or 0.5
    return value - margin, value + margin
