"""The outermost eigenvalues, each with its residual, and certified not to skip one.

Thick-restarted Lanczos finds them. The residual ‖Hv − λv‖ follows from the coefficients that the
orthogonalisation measured, with a bound on what storing rows in the operator's dtype lost, and costs no
product. For a symmetric H an eigenvalue lies within the residual of λ (Parlett 1998, theorem 4.5.1), so the
residual is an error bound on the value, for the operator as it computes: what its own rounding does to the
products is ``noise``. Errors that products say they have (``Product.error``) are in it (``verified``).

That an eigenvalue is near does not say that it is the i-th. For one at an end the random start tells how
likely a further one has been passed over (``unseen``). A start sees one copy of a multiple eigenvalue, so for
more a second process with a start of its own looks at what the eigenvectors found leave of H, until nothing
further out is there but with that probability (``missed``).

Symbols: m rows of the basis, θ and s eigenvalues and eigenvectors of the projected T, β the coupling.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from fedscope.choices import AtMost
from fedscope.errors import UserError
from fedscope.landscape.operators.base import Operator
from fedscope.landscape.operators.basis.row_space import reserves
from fedscope.landscape.operators.probes import generator_of
from fedscope.landscape.operators.progress_callback import Progress
from fedscope.landscape.spectral.data_error import SKETCH, eigenvalue_errors, told_by_sample
from fedscope.landscape.spectral.krylov.lanczos import Lanczos
from fedscope.landscape.spectral.krylov.missed import Look, look
from fedscope.landscape.spectral.krylov.ritz import Goal, Ritz, Wanted, Which, most_products, seen, verified
from fedscope.landscape.spectral.spectral_results import Eigenpairs

MEMORY = 4 << 30  # bytes
RANDOM_PART = 0.01  # of the starting vector's norm
_LEAST = 3  # products
Start = Tensor | Eigenpairs
"""(n,) a vector; (r, n) vectors in rows; or eigenpairs found elsewhere."""


def top_eigenpairs(
    op: Operator,
    *,
    k: int = 1,
    which: Which = "largest",
    tol: float = 1e-3,
    generator: torch.Generator | None = None,
    seed: int | None = None,
    start: Start | None = None,
    max_matvecs: int | None = None,
    max_basis: int | None = None,
    by_sample: bool = True,
    basis_folder: Path | None = None,
    progress: Progress | None = None,
) -> Eigenpairs:
    """Return the k eigenpairs at an end of the spectrum of a symmetric operator, or at both.

    Stops when every residual ‖Hv − λv‖ is at most tol·|λ_max| (tol times the largest size, unless the
    ``largest`` are wanted), of several values and of the smallest also ``OWN`` of its own size, or ten
    roundings of the operator's dtype at the size of its largest Ritz value, where that is more; and when an
    eigenvalue further out by more than ``OWN`` of the last one's size, copies included, has been passed over
    with a probability of at most 0.1 %. Or when ``max_matvecs`` products are spent: then ``converged`` is
    False, the residuals say how far it came, and ``certified`` which values are known to be the i-th. After
    a product that is not finite all is NaN.

    Args:
        op: symmetric operator on n coordinates.
        k: pairs wanted at an end, 1 ≤ k ≤ n (n/2 for both).
        which: the algebraically ``largest``, ``smallest`` or ``both``, or those of largest ``magnitude`` at
            whichever end; values are descending in any case.
        tol: residual relative to |λ_max|.
        generator: draws the Gaussian start.
        seed: of such a generator instead; 0 if neither is given.
        start: eigenvectors from a smaller sample or a neighbouring checkpoint, see ``starting_vector``. Then
            the residuals alone say when to stop, after three products at least: a start that is mostly known
            certifies little for its few products.
        max_matvecs: products allowed, at least as many as pairs; by default 300 and 30 for each.
        max_basis: rows kept, at least two more than pairs; a full basis is restarted with its best part, at
            the price of more products. Room for them is made at once. By default what fits 4 GiB, at least 20
            and 2 for each pair, with more room as it is needed.
        by_sample: tell the data's errors from the samples, not from the batches, at the cost of about two
            products for each pair.
        basis_folder: of a file for the Krylov basis, which changes no digit (on a CPU only): a folder on a
            disk, not one in memory (tmpfs). None: the basis is in memory.
        progress: called after every product, with the most that are allowed (``AtMost``).

    Raises:
        UserError: k, ``which``, ``max_matvecs`` or ``max_basis`` out of range, a ``start`` of another
            length, or both ``generator`` and ``seed`` given.
    """
    n = op.shape[0]
    wanted = Wanted.of(n, k, which)
    pairs = wanted.pairs
    budget = most_products(pairs) if max_matvecs is None else max_matvecs
    if budget < pairs:
        raise UserError(f"max_matvecs = {budget} is too small for {pairs} pairs: at least as many are needed")
    rows = max_basis or max(20 + 2 * pairs, MEMORY // (n * op.dtype.itemsize) - SKETCH)
    if rows < min(pairs + 2, n):
        raise UserError(f"max_basis = {rows} is too small for {pairs} pairs: take at least {pairs + 2}")
    generator = generator_of(generator, seed)
    seed = generator.initial_seed()
    known = max_basis or reserves(n, op.device, basis_folder)
    at_once = min(rows, budget, n) + 1 if known else None
    begin = partial(Lanczos, generator=generator, by_batch=True, folder=basis_folder, capacity=at_once)
    search = _EigenSearch(op, wanted, tol, generator, begin, budget, rows, progress)
    found = search.first(starting_vector(op, start, generator), 1.0 if start is None else RANDOM_PART)
    if found is None:
        return _undefined(op, pairs, search.spent, seed)
    if start is None and found.converged:
        found = found if bool(found.certified.all()) else search.completed(found)
        found = replace(found, converged=bool(found.certified.all()))
    found = search.verified(found, certain=start is None) if search.inexact else found
    found = replace(found, matvecs=search.spent, seed=seed)
    return told_by_sample(op, found) if by_sample else found


class _EigenSearch:
    """The products that are taken, and what they tell."""

    def __init__(
        self,
        op: Operator,
        wanted: Wanted,
        tol: float,
        generator: torch.Generator,
        begin: Callable[..., Lanczos],
        budget: int,
        rows: int,
        progress: Progress | None,
    ) -> None:
        self._op, self._wanted, self._tol, self._generator = op, wanted, tol, generator
        self._begin = begin
        self._budget, self._rows, self._progress = budget, rows, progress
        self._goal: Goal | None = None
        self._inner, self._known = 0.0, ""
        self.spent, self.inexact = 0, False

    def first(self, start: Tensor, random_part: float) -> Eigenpairs | None:
        """Return what one start finds; None after a product that was not finite."""
        krylov = self._begin(self._op, start, sketched=SKETCH)
        del start  # 8·n bytes that nothing reads again
        n, wanted = self._op.shape[0], self._wanted
        while True:
            krylov.step()
            if not krylov.finite:
                self.spent = krylov.matvecs
                return None
            last = krylov.steps == n or krylov.matvecs == self._budget
            full, ritz = krylov.steps == self._rows, None
            if krylov.steps >= wanted.pairs and (last or full or _is_due(krylov.steps)):
                ritz = Ritz.of(krylov, wanted, self._tol)
                self._goal, self._inner, self._known = ritz.goal, ritz.inner, ritz.text
                self.inexact = krylov.error > 0
            self._tell(krylov.matvecs)
            if ritz and (last or ritz.converged):
                sure = seen(krylov, ritz.goal, ritz.values, random_part)
                enough = bool(sure.all()) or (
                    krylov.steps >= _LEAST and (random_part < 1 or not wanted.alone)
                )
                if last or enough:
                    return self._result(krylov, ritz, sure)
            if full:
                _restart(krylov, wanted)

    def completed(self, found: Eigenpairs) -> Eigenpairs:
        """Return the pairs with those that one start cannot see, and which of them are certified."""
        assert self._goal
        pool, goal = found, self._goal
        while True:
            best = _outermost(pool, self._wanted)
            most = self._budget - self.spent
            if most < 1:
                return best
            looked = look(
                self._op,
                pool.vectors.T.contiguous(),
                goal,
                goal.limits(best.values),
                self._inner,
                generator=self._generator,
                begin=self._begin,
                most=most,
                after=partial(self._tell, before=self.spent),
            )
            if not len(looked.beyond):
                known = best.residuals <= goal.tolerances(best.values)
                return replace(best, certified=known & seen(looked.krylov, goal, best.values))
            pool = pool.and_more(_more(self._op, looked, pool))

    def _result(self, krylov: Lanczos, ritz: Ritz, sure: Tensor) -> Eigenpairs:
        subspace, vectors = krylov.subspace(), krylov.combine(ritz.coefficients)
        errors = eigenvalue_errors(self._op, subspace, ritz.positions)
        return Eigenpairs(
            values=ritz.values,
            vectors=vectors,
            residuals=ritz.residuals,
            stderr_data=errors.stderr,
            bias_data=errors.bias,
            dof_data=errors.dof,
            stderr_bias=errors.stderr_bias,
            noise=krylov.noise,
            converged=ritz.converged,
            matvecs=krylov.matvecs,
            seed=0,
            certified=sure & (ritz.residuals <= ritz.goal.tolerances(ritz.values)),
            subspace=subspace,
            forms=errors.forms,
        )

    def verified(self, found: Eigenpairs, *, certain: bool) -> Eigenpairs:
        assert self._goal
        self._tell(len(found.values), before=self.spent)
        return verified(self._op, found, replace(self._goal, error=0.0), certain=certain)

    def _tell(self, taken: int, before: int = 0) -> None:
        self.spent = before + taken
        if self._progress:
            self._progress(self.spent, AtMost(self._budget), self._known)


def _is_due(steps: int) -> bool:
    # Diagonalising T after every step would cost more than the products once m reaches the hundreds.
    return steps % max(1, steps // 20) == 0


def _restart(krylov: Lanczos, wanted: Wanted) -> None:
    """Keep the Ritz vectors nearest the wanted ends, half of what is beyond those wanted."""
    theta, s = torch.linalg.eigh(krylov.projected)
    kept = wanted.outermost(theta, (krylov.steps + wanted.pairs) // 2)
    krylov.restart(s[:, kept.sort().values])


def _more(op: Operator, looked: Look, known: Eigenpairs) -> Eigenpairs:
    """Return the pairs that a process in the complement of the known ones has found."""
    theta, s = torch.linalg.eigh(looked.krylov.projected)
    values, chosen = theta[looked.beyond], s[:, looked.beyond]
    errors = eigenvalue_errors(op, looked.krylov.subspace(), looked.beyond)
    return replace(
        known,
        values=values,
        vectors=looked.krylov.combine(chosen),
        residuals=looked.residuals(values, chosen),
        stderr_data=errors.stderr,
        bias_data=errors.bias,
        dof_data=errors.dof,
        stderr_bias=errors.stderr_bias,
        certified=torch.zeros(len(values), dtype=torch.bool),
        forms=errors.forms,
    )


def _outermost(found: Eigenpairs, wanted: Wanted) -> Eigenpairs:
    ascending = found.values.flip(0)
    return found.some(len(ascending) - 1 - wanted.among(ascending))


def _undefined(op: Operator, k: int, spent: int, seed: int) -> Eigenpairs:
    missing = torch.full((k,), math.nan, dtype=torch.float64)
    vectors = torch.full((op.shape[0], k), math.nan, dtype=op.dtype, device=op.device)
    return Eigenpairs.bare(missing, vectors, spent, seed)


def starting_vector(op: Operator, start: Start | None, generator: torch.Generator) -> Tensor:
    """Return (n,) float64: a Gaussian draw, or the sum of given vectors, normalised, and a little of it.

    Eigenvectors of a smaller sample, or of the checkpoint of a neighbouring round, nearly span those wanted.
    Lanczos takes one starting vector, so it begins with their sum, and a random part for what is new.
    """
    n = op.shape[0]
    random = torch.randn(n, generator=generator, device=generator.device, dtype=torch.float64).to(op.device)
    if start is None:
        return random
    rows = torch.atleast_2d(start.vectors.T if isinstance(start, Eigenpairs) else start)
    if rows.ndim != 2 or rows.shape[1] != n:
        raise UserError(f"the start has shape {tuple(rows.shape)}; its vectors must have length {n}")
    if not len(rows):
        raise UserError("the start has no vectors; leave it out")
    total = torch.zeros_like(random)
    for row in rows:
        wide = row.to(op.device, torch.float64)
        unit = wide / wide.norm()
        total += -unit if unit @ total < -0.5 else unit  # the sum never gets shorter: none cancel
    if not bool(total.isfinite().all()):
        raise UserError("the start holds a vector that is zero or not finite; leave it out")
    start_vector: Tensor = total / total.norm() + RANDOM_PART * random / random.norm()
    return start_vector
