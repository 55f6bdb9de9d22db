"""Results: frozen records with values, errors and cost. Symbols: K clients, B batches of one."""

import math
from dataclasses import dataclass

from scipy.special import stdtrit
from torch import Tensor

from fedscope.landscape.printing import Printed
from fedscope.landscape.spectral.spectral_results import Estimate
from fedscope.statistics.resolution import is_resolved


@dataclass(frozen=True, repr=False)
class Ratio(Printed):
    """A ratio x/y of two estimates that are not negative, with errors in common; plus ``offset``.

    Where the denominator is not told from 0 the ratio has no upper end.
    """

    numerator: float
    denominator: float
    variances: tuple[float, float]  # of the two
    covariance: float
    dof: float  # degrees of freedom of x − value·y
    slope: float = 0.0  # of the numerator's variance as a function of its true value, as squares have it
    offset: float = 0.0

    @property
    def value(self) -> float:
        """The ratio as estimated: below ``offset``, or infinite, where noise made it so."""
        if self.denominator == 0:
            return math.nan if self.numerator == 0 else math.copysign(math.inf, self.numerator)
        return self.offset + self.numerator / self.denominator

    @property
    def stderr(self) -> float:
        """The standard error to first order, which says little where the denominator is uncertain."""
        if self.denominator == 0:
            return math.nan
        r = self.numerator / self.denominator
        spread = self.variances[0] - 2 * r * self.covariance + r * r * self.variances[1]
        return math.sqrt(max(spread, 0.0)) / abs(self.denominator)

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Return Fieller's (1954) confidence interval; of one in pieces, what holds those above ``offset``.

        It holds all θ with (x − θy)² ≤ t²·(Var(x − θy) + slope·(θy − x)), t Student's quantile. (NaN, NaN)
        without errors.
        """
        x, y, (xx, yy), xy = self.numerator, self.denominator, self.variances, self.covariance
        if not all(map(math.isfinite, (x, y, xx, yy, xy))):
            return math.nan, math.nan
        t2 = float(stdtrit(self.dof, (1 + level) / 2)) ** 2 if xx or yy else 0.0
        a = y * y - t2 * yy
        b = x * y - t2 * xy + t2 * self.slope * y / 2
        c = x * x - t2 * (xx - self.slope * x)
        low, high = _within(a, b, c)
        return low + self.offset, high + self.offset

    @property
    def resolved(self) -> bool:
        """Whether it lies in its range, and its 95 % interval leaves some of that out."""
        return is_resolved(self.value, self.interval(), self.offset)


def _within(a: float, b: float, c: float) -> tuple[float, float]:
    """Return the ends of {θ: aθ² − 2bθ + c ≤ 0}; where it has no upper end, of what of it is not negative."""
    root = math.sqrt(max(b * b - a * c, 0.0))
    if a > 0:
        return (b - root) / a, (b + root) / a
    if a == 0 or b * b < a * c:
        return 0.0, math.inf
    first, second = sorted(((b - root) / a, (b + root) / a))  # all but what lies between
    return (0.0 if first >= 0 else max(second, 0.0)), math.inf


@dataclass(frozen=True, repr=False)
class NoiseScale(Printed):
    """The gradient noise scale tr Σ / ‖G‖² of a loss: the batch size at which noise equals signal.

    Σ is the covariance of the gradients of single samples, G their mean (McCandlish et al. 2018, Eq. 2.9).
    """

    trace: Estimate  # tr Σ
    square: Estimate  # ‖G‖²
    scale: Ratio  # tr Σ / ‖G‖²
    samples: int
    batches: int  # whose gradients were taken


@dataclass(frozen=True, repr=False)
class GradientNoise(Printed):
    """How K clients' gradients scatter at one network: g_k of F_k, g = Σ_k p_k g_k of F."""

    clients: tuple[NoiseScale, ...]  # K: of each F_k
    whole: NoiseScale  # of F, a sample of which is first one of a client: tr Σ = within + between
    within: Estimate  # Σ_k p_k tr Σ_k
    between: Estimate  # ζ² = Σ_k p_k ‖g_k − g‖²
    apart: tuple[Estimate, ...]  # K: ‖g_k − g‖²
    relative: Ratio  # ζ² / ‖g‖²
    dissimilarity: Ratio  # B² = Σ_k p_k ‖g_k‖² / ‖g‖² = 1 + ζ²/‖g‖²
    weights: Tensor  # (K,) float64: p
    gradients: int  # of batches that were evaluated
    passes: float  # over all samples, forward and backward, that these are
