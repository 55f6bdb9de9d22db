"""One scale for the losses of several checkpoints: heights, colours, levels and the display ceiling.

The scale is logarithmic where every finite loss is positive and linear otherwise. Walls that would hide
the minima are cut at a ceiling: with h the height (log₁₀ of the loss, or the loss), and q₃ a surface's third
quartile, the scale reaches at most ``RELIEFS`` times the gentlest surface's relief h(q₃) − h(min) above the
highest of the minima, on the logarithmic scale never under 3 nor over 6 decades.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.colors import LogNorm, Normalize
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from fedscope.errors import UserError

RELIEFS = 4.0
DECADES = (3.0, 6.0)

Grid = NDArray[np.float64]


@dataclass(frozen=True)
class LossScale:
    """The range of losses that is drawn, and how a loss becomes a height and a colour."""

    log: bool
    low: float
    high: float  # the ceiling where ``clipped``
    highest: float  # the largest finite loss
    clipped: bool  # some finite losses lie above ``high``

    def height(self, loss: Grid) -> Grid:
        """Return the heights, log₁₀ of the loss or the loss itself; NaN where the loss is not finite."""
        finite = np.where(np.isfinite(loss), loss, np.nan)
        return np.log10(finite) if self.log else finite

    def norm(self) -> Normalize:
        """Return the colour normalisation."""
        return (LogNorm if self.log else Normalize)(self.low, self.high)

    def bands(self, count: int = 48) -> Grid:
        """Return the (count + 1,) boundaries of the filled contours."""
        return (np.geomspace if self.log else np.linspace)(self.low, self.high, count + 1)

    def ticks(self, count: int = 6) -> list[float]:
        """Return about ``count`` round losses inside the range."""
        return self._round_losses(((1,), (1, 3), (1, 2, 5)), count)

    def lines(self) -> list[float]:
        """Return the losses of the contour lines: closer than the ticks."""
        return self._round_losses(((1,), (1, 3), (1, 2, 5)), 9)

    def label(self) -> str:
        """Name the scale, and why it is linear where it is."""
        return "loss (log scale)" if self.log else "loss (linear scale: some losses are not positive)"

    def _round_losses(self, mantissas: Sequence[tuple[int, ...]], count: int) -> list[float]:
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


def shared_scale(losses: Sequence[Grid]) -> LossScale:
    """Return the one scale on which all ``losses`` are drawn.

    Raises:
        UserError: when no loss at all is finite.
    """
    finite = [grid[np.isfinite(grid)] for grid in losses]
    finite = [values for values in finite if values.size]
    if not finite:
        raise UserError("no loss on the grid is finite: choose a smaller --span")
    low, highest = min(v.min() for v in finite), max(v.max() for v in finite)
    log = bool(low > 0)
    high = min(highest, _ceiling(finite, log=log))
    if not high > low:
        low, high = _around(low, log=log)
    return LossScale(
        log=log, low=float(low), high=float(high), highest=float(highest), clipped=bool(highest > high)
    )


def format_loss(loss: float, *, digits: int = 6) -> str:
    """Return a label of at most ``digits``: plain between 10⁻³ and 10⁴, mathtext powers of ten beyond."""
    rounded = float(f"{loss:.{digits}g}")
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
        reach = float(np.clip(RELIEFS * min(reliefs), *DECADES))
        return _round_down(10.0 ** min(base + reach, 308.0))
    uneven = [relief for relief in reliefs if relief > 0]
    return float(base + RELIEFS * min(uneven)) if uneven else math.inf


def _round_down(value: float) -> float:
    """Return the largest of 1, 2, 5 times a power of ten that is not above ``value``."""
    power = 10.0 ** math.floor(math.log10(value))
    return max(m * power for m in (1, 2, 5) if m == 1 or m * power <= value)


def _around(loss: float, *, log: bool) -> tuple[float, float]:
    """A range around a loss that is the same everywhere."""
    if log:
        return loss / 1.5, loss * 1.5
    margin = 0.5 * abs(loss) or 0.5
    return loss - margin, loss + margin
