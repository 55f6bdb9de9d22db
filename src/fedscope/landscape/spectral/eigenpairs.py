"""The algebraically largest or smallest eigenvalues, by thick-restarted Lanczos, each with its residual.

The residual ‖Hv − λv‖ follows from the coefficients that the orthogonalisation measured, with a bound on
what storing rows in the operator's dtype lost, and costs no product. For a symmetric H an eigenvalue lies
within the residual of λ (Parlett 1998, theorem 4.5.1), so the residual is an error bound on the value, for
the operator as it computes: what its own rounding does to the products is ``noise``.

Symbols: m rows of the basis, θ and s eigenvalues and eigenvectors of the projected T, β the coupling.
"""

import math
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from fedscope.errors import UserError
from fedscope.landscape.operators.base import Operator
from fedscope.landscape.operators.probes import default_generator
from fedscope.landscape.operators.progress import Progress
from fedscope.landscape.spectral.data_error import SKETCH, eigenvalue_errors
from fedscope.landscape.spectral.lanczos import Lanczos
from fedscope.landscape.spectral.results import Eigenpairs
from fedscope.landscape.spectral.starting_vector import Start, starting_vector

Which = Literal["largest", "smallest", "both"]
MEMORY = 4 << 30  # bytes
CROWDED = 5e-3  # of an eigenvalue: the residual above which others beside it may have been passed over


def top_eigenpairs(
    op: Operator,
    *,
    k: int = 1,
    which: Which = "largest",
    tol: float = 1e-3,
    generator: torch.Generator | None = None,
    start: Start | None = None,
    max_matvecs: int | None = None,
    max_basis: int | None = None,
    progress: Progress | None = None,
) -> Eigenpairs:
    """Return the k eigenpairs at an end of the spectrum of a symmetric operator, or at both.

    Stops when every residual ‖Hv − λv‖ is at most tol·|λ_max| (for the smallest: of the largest size) or ten
    roundings of the operator's dtype at the size of its largest Ritz value, where that is more; or when
    ``max_matvecs`` products are spent: then ``converged`` is False and the residuals say how far it came.
    Of several largest ones each must also be known to ``CROWDED`` of its own size: a residual says that an
    eigenvalue is near, not that it is the i-th, and far down the list, where they are crowded and small next
    to λ_max, Ritz values that have not converged are near to some. After a non-finite product all is NaN.

    One starting vector sees each distinct eigenvalue once; the copies of a multiple eigenvalue are found
    when the Krylov space (nearly) breaks down, and that is awaited before k > 1 pairs are accepted, but an
    exactly multiple eigenvalue of an operator whose Krylov space does not break down may be listed once.

    Args:
        op: symmetric operator on n coordinates.
        k: pairs wanted at an end, 1 ≤ k ≤ n (n/2 for both).
        which: the algebraically ``largest``, ``smallest`` or ``both``; values are descending in any case.
        tol: residual relative to |λ_max|.
        generator: draws the Gaussian start; a fixed default if not given.
        start: eigenvectors from a smaller sample or a neighbouring checkpoint, see ``starting_vector``.
        max_matvecs: products allowed, at least as many as pairs; by default 300 and 6 for each.
        max_basis: rows kept, at least two more than pairs; a full basis is restarted with its best part, at
            the price of more products. By default what fits 4 GiB, at least 20 and 2 for each pair.
        progress: called after every product, with no known total.

    Raises:
        UserError: k, ``which``, ``max_matvecs`` or ``max_basis`` out of range, or a ``start`` of another
            length.
    """
    n = op.shape[0]
    wanted = _wanted(n, k, which)
    pairs = wanted.pairs
    budget = 300 + 6 * pairs if max_matvecs is None else max_matvecs
    if budget < pairs:
        raise UserError(f"max_matvecs = {budget} is too small for {pairs} pairs: at least as many are needed")
    rows = max_basis or max(20 + 2 * pairs, MEMORY // (n * op.dtype.itemsize) - SKETCH)
    if rows < min(pairs + 2, n):
        raise UserError(f"max_basis = {rows} is too small for {pairs} pairs: take at least {pairs + 2}")
    generator = generator or default_generator()
    seed = generator.initial_seed()
    krylov = Lanczos(
        op, starting_vector(op, start, generator), generator=generator, by_batch=True, sketched=SKETCH
    )
    known = ""
    while True:
        krylov.step()
        if not krylov.finite:
            return _undefined(op, pairs, krylov.matvecs, seed)
        last = krylov.steps == n or krylov.matvecs == budget
        full = krylov.steps == rows
        ritz = None
        if krylov.steps >= pairs and (last or full or _is_due(krylov.steps)):
            ritz = _Ritz.of(krylov, wanted, tol)
            known = ritz.text
        if progress:
            progress(krylov.matvecs, None, known)
        if ritz is None:
            continue
        done = ritz.converged and (krylov.steps == n or _complement_is_beyond(krylov, wanted, ritz))
        if done or last:
            return _result(op, krylov, ritz, seed)
        if full:
            _restart(krylov, wanted)


@dataclass(frozen=True)
class _Wanted:
    """How many eigenvalues are wanted at the lower and at the upper end."""

    low: int
    high: int

    @property
    def pairs(self) -> int:
        return self.low + self.high

    def of(self, count: int) -> Tensor:
        """Return their positions among ``count`` ascending values, descending; all where they are few."""
        if self.pairs >= count:
            return torch.arange(count).flip(0)
        high = torch.arange(count - self.high, count).flip(0)
        return torch.cat([high, torch.arange(self.low).flip(0)])


def _wanted(n: int, k: int, which: Which) -> _Wanted:
    if which not in get_args(Which):
        raise UserError(f"which is {which!r}; choose one of {', '.join(get_args(Which))}")
    most = n // 2 if which == "both" else n
    if not 1 <= k <= most:
        ends = "at both ends" if which == "both" else "at an end"
        raise UserError(f"k = {k} eigenpairs {ends} of an operator of size {n}; choose 1 to {most}")
    return _Wanted(low=0 if which == "largest" else k, high=0 if which == "smallest" else k)


@dataclass(frozen=True)
class _Ritz:
    """The wanted eigenpairs of T."""

    positions: Tensor  # (k,) among the ascending eigenvalues of T
    values: Tensor  # (k,) descending
    coefficients: Tensor  # (m, k)
    residuals: Tensor  # (k,)
    tolerance: float
    tolerances: Tensor  # (k,) none above ``tolerance``

    @classmethod
    def of(cls, krylov: Lanczos, wanted: _Wanted, tol: float) -> "_Ritz":
        theta, s = torch.linalg.eigh(krylov.projected)
        positions, size = wanted.of(len(theta)), float(theta.abs().max())
        scale = size if wanted.low else abs(float(theta[-1]))
        values, chosen = theta[positions], s[:, positions]
        rounding = 10 * torch.finfo(krylov.basis.dtype).eps * size
        tolerance = max(tol * scale, rounding)
        tolerances = torch.full_like(values, tolerance)
        if wanted.high > 1:
            tolerances[: wanted.high] = (values[: wanted.high].abs() * CROWDED).clamp(rounding, tolerance)
        return cls(positions, values, chosen, krylov.residuals(values, chosen), tolerance, tolerances)

    @property
    def text(self) -> str:
        """The outermost value with the worst residual, while the computation runs."""
        value, worst = float(self.values[0]), float(self.residuals.max())
        return f"λ ≈ {value:.4g}, residuals up to {worst:.1e} (asked: {float(self.tolerances.min()):.1e})"

    @property
    def converged(self) -> bool:
        return bool((self.residuals <= self.tolerances).all())


def _is_due(steps: int) -> bool:
    # Diagonalising T after every step would cost more than the products once m reaches the hundreds.
    return steps % max(1, steps // 20) == 0


def _complement_is_beyond(krylov: Lanczos, wanted: _Wanted, ritz: _Ritz) -> bool:
    """Say whether what a (near) breakdown left unseen has none of the wanted eigenvalues.

    Rows before the cut span an invariant space; what follows is a Lanczos process on its complement,
    which may hold further copies of the eigenvalues found. Its outermost eigenvalue must have converged, and
    lie no further out than the innermost wanted one of those before.
    """
    cut = krylov.cut
    if wanted.pairs == 1 or cut == 0:
        return wanted.pairs == 1 or not krylov.ending
    if cut < wanted.pairs:
        return False
    before = torch.linalg.eigvalsh(krylov.projected[:cut, :cut])
    after, s = torch.linalg.eigh(krylov.projected[cut:, cut:])
    reach = (krylov.coupling[cut:] @ s).abs()
    upper = after[-1] <= before[-wanted.high] + ritz.tolerance and reach[-1] <= ritz.tolerance
    lower = after[0] >= before[wanted.low - 1] - ritz.tolerance and reach[0] <= ritz.tolerance
    return bool((upper or not wanted.high) and (lower or not wanted.low))


def _restart(krylov: Lanczos, wanted: _Wanted) -> None:
    """Keep the Ritz vectors nearest the wanted ends, half of what is beyond those wanted."""
    m, cut = krylov.steps, krylov.cut
    size = (m + wanted.pairs) // 2
    parts = [part for part in (slice(0, cut), slice(cut, m)) if part.stop > part.start]
    blocks = [torch.linalg.eigh(krylov.projected[part, part]) for part in parts]
    theta, s = torch.cat([values for values, _ in blocks]), torch.block_diag(*(s for _, s in blocks))
    low = round(size * wanted.low / wanted.pairs)
    order = theta.argsort()
    kept = torch.cat([order[:low], order[m - (size - low) :]]).sort().values
    krylov.restart(s[:, kept], cut=int((kept < cut).sum()))


def _result(op: Operator, krylov: Lanczos, ritz: _Ritz, seed: int) -> Eigenpairs:
    subspace = krylov.subspace()
    errors = eigenvalue_errors(subspace, op.weights, ritz.positions)
    return Eigenpairs(
        values=ritz.values,
        vectors=krylov.combine(ritz.coefficients),
        residuals=ritz.residuals,
        stderr_data=errors.stderr,
        bias_data=errors.bias,
        dof_data=errors.dof,
        noise=krylov.noise,
        converged=ritz.converged,
        matvecs=krylov.matvecs,
        seed=seed,
        subspace=subspace,
        forms=errors.forms,
    )


def _undefined(op: Operator, k: int, spent: int, seed: int) -> Eigenpairs:
    missing = torch.full((k,), math.nan, dtype=torch.float64)
    return Eigenpairs(
        values=missing,
        vectors=torch.full((op.shape[0], k), math.nan, dtype=op.dtype, device=op.device),
        residuals=missing.clone(),
        stderr_data=missing.clone(),
        bias_data=missing.clone(),
        dof_data=math.nan,
        noise=math.nan,
        converged=False,
        matvecs=spent,
        seed=seed,
        subspace=None,
    )
