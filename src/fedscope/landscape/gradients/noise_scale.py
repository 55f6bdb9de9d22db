"""The scatter of gradients over samples and over clients, without bias, from gradients of batches.

With a batch's gradient g_b over n_b of a client's N samples and their mean ĝ = Σ n_b g_b / N,

    t = Σ_b n_b ‖g_b − ĝ‖² / (B − 1),   E t = tr Σ;      u = ‖ĝ‖² − t/N,   E u = ‖G‖²,

whatever the batches' sizes. For batches of one size these are what McCandlish et al. (2018, appendix A.1) get
from the squared norms at two batch sizes, n_b and N. The gradient noise scale
is B_simple = tr Σ/‖G‖². Clients' samples are independent, so ⟨ĝ_k, ĝ_j⟩ is unbiased as it is, and with the
matrix U of these, u on its diagonal,

    ‖g‖² = pᵀUp,   ζ² = Σ_k p_k ‖g_k − g‖² = Σ_k p_k U_kk − pᵀUp,   B² = Σ_k p_k U_kk / pᵀUp.

ζ² is the bound of Koloskova et al. (2020, assumption 3) at this point, and B² that of Karimireddy et al.
(2020, SCAFFOLD, (A1)) with G = 0. Without the correction, noise of few samples counts as difference between
clients: by Σ_k p_k (1 − p_k) tr Σ_k / N_k in ζ².

A sample of the mixture F = Σ_k p_k F_k has tr Σ = Σ_k p_k tr Σ_k + ζ².

Errors are over draws of samples, by the delete-one-batch jackknife within each client; the clients are these,
not a draw of clients. Batches must be independent draws of a client's samples. All numbers are quadratic in
the noise ε_k of the ĝ_k, and where noise is larger than what it hides the jackknife counts the variance of
the quadratic part twice (Efron and Stein 1981). With its coefficients A and the covariances C_k = Σ_k/N_k
that is 2 Σ_kj A_kj² tr(C_k C_j), which is taken off once, but no more than half of all. The rest of the
variance of a squared length is in proportion to it, and its interval is Wilson's. Samples drawn without
replacement from N' count 1 − N/N' of the variances of ‖g‖² and ζ²: nothing where all were taken.
Those of tr Σ count whole, since a trace depends on which samples share a batch as well.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from fedscope.landscape.gradients.inner_products import BatchProducts, products_of_covariances
from fedscope.landscape.gradients.noise_results import GradientNoise, NoiseScale, Ratio
from fedscope.landscape.spectral.spectral_results import Estimate
from fedscope.statistics.standard_errors import combined, sample_error

FEWEST = 3  # batches: two leave nothing to compare where one is left out
_TOLD = 2.0  # standard errors from which on a length is told from 0


@dataclass(frozen=True)
class Forms:
    """S numbers of K clients, none negative, and their errors."""

    values: Tensor  # (S,) float64
    moved: Sequence[Tensor]  # K of (B, S): what each batch adds to an error, squared and summed
    twice: Tensor  # (S, S): of the variances that ``moved`` gives, what these count twice
    added: Tensor  # (S,): what noise adds to the numbers before they are corrected

    def __call__(self, row: Tensor) -> Estimate:
        return Estimate(
            float(_form(row, self.values)), math.sqrt(self._spread(row, row)), self._dof(row), low=0.0
        )

    def square(self, row: Tensor) -> Estimate:
        """Return the estimate of a squared length, whose variance grows with it: linear noise does."""
        variance, slope = self._of_square(row)
        value = float(_form(row, self.values))
        return Estimate(value, math.sqrt(variance), self._dof(row), slope, low=0.0)

    def ratio(self, one: Tensor, other: Tensor, *, square: bool = False, offset: float = 0.0) -> Ratio:
        """Return the ratio of a form, or with ``square`` of a squared length, to one, plus ``offset``."""
        x, y = float(_form(one, self.values)), float(_form(other, self.values))
        first, second, slope = self._spread(one, one), self._spread(other, other), 0.0
        both = (self._spread(one + other, one + other) - first - second) / 2
        second = self._of_square(other)[0]
        if square:
            first, slope = self._of_square(one)
        dof = self._dof(one - x / y * other if y else one)
        return Ratio(x, y, (first, second), both, dof, slope, offset)

    def _of_square(self, row: Tensor) -> tuple[float, float]:
        """Return the variance of a squared length at its estimate, or at 0, and its slope.

        It is q of the quadratic noise, and a part in proportion to the length. Where the estimate is less
        than two standard errors the batches do not tell that part: noise that has q when squared, and adds T
        to the length, gives 2q/T along the directions that have most of it.
        """
        value, variance = float(_form(row, self.values)), self._spread(row, row)
        quadratic, added = self._twice(row, row), float(_form(row, self.added))
        if value < _TOLD * math.sqrt(variance):
            slope = 2 * quadratic / added if added > 0 else 0.0
            return max(variance, quadratic + slope * max(value, 0.0)), slope
        return variance, max(variance - quadratic, 0.0) / value if value > 0 else 0.0

    def _spread(self, one: Tensor, other: Tensor) -> float:
        found = float(_form(one, self._together) @ _form(other, self._together))
        return max(found - self._twice(one, other), found / 2)

    def _twice(self, one: Tensor, other: Tensor) -> float:
        return float(_form(one, _form(other, self.twice)))

    @cached_property
    def _together(self) -> Tensor:
        return torch.cat(list(self.moved))

    def _dof(self, row: Tensor) -> float:
        parts = [_form(row, part) for part in self.moved]
        return combined(*((float(part.norm()), sample_error(part)[1]) for part in parts))[1]


def _form(row: Tensor, numbers: Tensor) -> Tensor:
    """Return a form (S,) of numbers (…, S); one that it does not take in may be NaN."""
    taken = row != 0
    return numbers[..., taken] @ row[taken]


@dataclass(frozen=True)
class _GradientMoments:
    """Unbiased inner products U (…, K, K) and traces t (…, K)."""

    inner: Tensor
    traces: Tensor

    def numbers(self, p: Tensor) -> Tensor:
        """Return (…, 2 + 3K) numbers: ‖g‖², ζ², then t_k, ‖g_k‖² and ‖g_k − g‖² of all clients."""
        squares = self.inner.diagonal(dim1=-2, dim2=-1)
        onto = self.inner @ p
        whole = (onto @ p)[..., None]
        between = (squares @ p)[..., None] - whole
        return torch.cat([whole, between, self.traces, squares, squares - 2 * onto + whole], -1)


def gradient_noise_of(
    products: Sequence[BatchProducts], p: Tensor, *, gradients: int, passes: float
) -> GradientNoise:
    """Return the noise scales of K clients from their batches' inner products; of one batch they are NaN."""
    clients = len(products)
    whole = _moments(products)
    moved = [_moved(products, whole, k, p) for k in range(clients)]
    form = Forms(whole.numbers(p), moved, _quadratic(products, p), _added(products, whole.traces, p))
    unit = torch.eye(len(form.values), dtype=torch.float64)
    g2, zeta2 = unit[0], unit[1]
    traces, squares, apart = (unit[2 + part * clients : 2 + (part + 1) * clients] for part in range(3))
    mixed = p @ traces + zeta2

    def scale(trace: Tensor, square: Tensor, of: Sequence[BatchProducts]) -> NoiseScale:
        samples, batches = sum(int(one.sizes.sum()) for one in of), sum(len(one.sizes) for one in of)
        return NoiseScale(form(trace), form.square(square), form.ratio(trace, square), samples, batches)

    return GradientNoise(
        clients=tuple(scale(traces[k], squares[k], [one]) for k, one in enumerate(products)),
        whole=scale(mixed, g2, products),
        within=form(p @ traces),
        between=form.square(zeta2),
        apart=tuple(form.square(row) for row in apart),
        relative=form.ratio(zeta2, g2, square=True),
        dissimilarity=form.ratio(zeta2, g2, square=True, offset=1.0),
        weights=p,
        gradients=gradients,
        passes=passes,
    )


def _moments(products: Sequence[BatchProducts]) -> _GradientMoments:
    inner = torch.stack([one.sizes @ one.onto / one.sizes.sum() for one in products])
    inner = (inner + inner.T) / 2
    traces = torch.stack([_trace(one, inner[k, k]) for k, one in enumerate(products)])
    for k, one in enumerate(products):
        inner[k, k] -= one.finite * traces[k] / one.sizes.sum() if one.finite else 0
    return _GradientMoments(inner, traces)


def _trace(one: BatchProducts, square: Tensor) -> Tensor:
    """Return t of a client with ‖ĝ‖² = ``square``; NaN of one batch."""
    return ((one.sizes @ one.squares) - one.sizes.sum() * square) / (len(one.sizes) - 1)


def _moved(products: Sequence[BatchProducts], whole: _GradientMoments, k: int, p: Tensor) -> Tensor:
    """Return each of client k's batches' part of the numbers' errors, (B, S): their squares add up."""
    one, numbers = products[k], whole.numbers(p)
    count, total = len(one.sizes), one.sizes.sum()
    clients = len(products)
    factors = torch.full_like(numbers, one.finite)
    factors[2 : 2 + clients] = 1.0  # a trace depends on which samples share a batch, too
    if count < FEWEST:
        unknown = torch.full((count, len(numbers)), torch.nan, dtype=torch.float64)
        return torch.where(factors > 0, unknown, 0.0)
    w = one.sizes / total
    left, rest = 1 - w, total - one.sizes
    rows = (whole.inner[k] - w[:, None] * one.onto) / left[:, None]
    own = one.sizes @ one.onto[:, k] / total
    plain = (own - 2 * w * one.onto[:, k] + w**2 * one.squares) / left**2  # ‖ĝ_k‖² without each batch
    traces = (one.sizes @ one.squares - one.sizes * one.squares - rest * plain) / (count - 2)
    rows[:, k] = plain - one.finite * traces / rest
    inner, every = whole.inner.repeat(count, 1, 1), whole.traces.repeat(count, 1)
    inner[:, k], inner[:, :, k] = rows, rows
    every[:, k] = traces
    without, odds = _GradientMoments(inner, every).numbers(p), 1 / w - 1
    pseudo = numbers / w[:, None] - odds[:, None] * without  # as in statistics.intervals.deleted
    mean = count * numbers - left @ without
    scaled: Tensor = (pseudo - mean) * factors.sqrt() / (odds * count).sqrt()[:, None]
    return scaled


def _added(products: Sequence[BatchProducts], traces: Tensor, p: Tensor) -> Tensor:
    noise = torch.stack([one.finite * t / one.sizes.sum() for one, t in zip(products, traces, strict=True)])
    return _GradientMoments(noise.diag(), torch.zeros_like(noise)).numbers(p)


def _quadratic(products: Sequence[BatchProducts], p: Tensor) -> Tensor:
    """Return the covariance (S, S) of the numbers' quadratic parts."""
    clients = len(p)
    unit = torch.eye(clients, dtype=torch.float64)
    own = torch.einsum("ka,kb->kab", unit, unit)  # of ‖g_k‖²
    whole = torch.outer(p, p)
    cross = torch.einsum("ka,b->kab", unit, p)
    counts = torch.tensor([float(one.sizes.sum()) / max(len(one.sizes) - 1, 1) for one in products])
    coefficients = torch.cat([
        whole[None], (p.diag() - whole)[None], -counts.double()[:, None, None] * own, own,
        own - cross - cross.mT + whole,
    ])  # fmt: skip
    factors = torch.tensor([one.finite for one in products], dtype=torch.float64)
    known = products_of_covariances(products).nan_to_num(0.0)  # of one batch: nothing is taken off
    weighted = coefficients * (torch.outer(factors, factors) * known)
    return 2 * torch.einsum("sab,tab->st", coefficients, weighted)
