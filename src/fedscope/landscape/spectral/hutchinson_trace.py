"""The trace: tr A = tr QAQᵀ + E[zᵀ(1 − P)A(1 − P)z], the first exact, the second by Hutchinson's probes.

P projects on the rows of Q, a Krylov basis that usually exists already, from λ_max. It holds the directions
of large curvature, and with them most of the variance 2‖A‖²_F of Hutchinson's (1990) estimator: deflation
(Girard 1987) with a Krylov basis in place of the random sketch of Hutch++ (Meyer et al. 2021).

It stops by Stein's (1945) two stages: the first probes fix the variance s² and with it how many are needed
for the standard error that was asked; s² is not looked at again. So Student's interval with the first
stage's degrees of freedom holds, as it does not if one stops once the running standard error is small.
The variance of ±1 probes is told by their whole products, much better than by the values zᵀRz: see
:mod:`fedscope.landscape.spectral.probe_tally`.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from fedscope.choices import MAX_PROBES, MIN_PROBES
from fedscope.errors import UserError
from fedscope.landscape.operators.base import Operator, Product
from fedscope.landscape.operators.basis.krylov_basis import Subspace
from fedscope.landscape.operators.probes import Sampler, ended, generator_of, probe_products, rademacher
from fedscope.landscape.operators.progress_callback import Progress
from fedscope.landscape.spectral.deflation import (
    STEPS,
    Extend,
    affordable,
    deflate_further,
    growing,
    variance_saved,
)
from fedscope.landscape.spectral.probe_tally import TraceTally, remainder
from fedscope.landscape.spectral.spectral_results import Probed, Trace

DEFAULT_RTOL = 0.05


def trace(
    op: Operator,
    *,
    known: Subspace | None = None,
    rtol: float | None = None,
    probes: int | None = None,
    sampler: Sampler = rademacher,
    generator: torch.Generator | None = None,
    seed: int | None = None,
    max_probes: int = MAX_PROBES,
    min_probes: int = MIN_PROBES,
    max_basis: int | None = None,
    keep: int = 0,
    basis_folder: Path | None = None,
    block: int | None = None,
    progress: Progress | None = None,
) -> Trace:
    """Estimate tr A with its standard errors.

    ``stderr_probe`` is the error on these samples, with ``dof_probe`` degrees of freedom. ``stderr_data`` is
    that of the samples as a draw from their population, from the batches' own trace estimates; it is
    corrected for the probes' noise in them (see ``probed_data_error``). ``error`` bounds what products that
    are not exact have moved the value by (``Product.form_error``), and is in the intervals.
    A sampler that ends (``orthogonal``) gives the exact value, with ``stderr_probe`` 0. A non-finite product
    ends the run and the value is not finite.

    Args:
        op: symmetric operator.
        known: a basis with its products by ``op``; its part of the trace is exact.
        rtol: the standard error wanted, relative to the value; 0.05 if neither this nor ``probes`` is given.
        probes: take exactly so many instead.
        sampler: distribution of the probes.
        generator: draws the probes.
        seed: of such a generator instead; 0 if neither is given.
        max_probes: an end to the search for ``rtol``: a trace near zero has no relative precision.
        min_probes: with ``rtol``, the probes of the first stage.
        max_basis: with ``rtol``, Lanczos enlarges the basis (or begins one) up to so many rows, as long as it
            saves more probes than it costs products; by default as many as fit in 2 GiB, and 0 for none.
        keep: return so many of the first probes with their products, ``Trace.probed``, at the most those of
            the first stage.
        basis_folder: of a file for a basis that is begun here, see ``top_eigenpairs``.
        block: probes that share a pass over the data; None: eight, or as many as take 1 GiB.
        progress: called after every product; with ``rtol`` the total is known from the second stage on.

    Raises:
        UserError: both ``rtol`` and ``probes`` given, or both ``generator`` and ``seed``; fewer than 1 probe,
            or a first stage of fewer than 2.
    """
    if rtol is not None and probes is not None:
        raise UserError("give rtol or probes, not both: one says when to stop, the other how many to take")
    most = max_probes if probes is None else probes
    if most < 1:
        raise UserError(f"{most} probes were asked for; at least 1 is needed")
    if probes is None and min_probes < 2:
        raise UserError(f"min_probes is {min_probes}; a standard error needs at least 2")
    generator = generator_of(generator, seed)
    seed = generator.initial_seed()
    vectors = sampler(op.shape[0], generator, op.dtype, op.device)
    tally = TraceTally(op, known, signs=sampler is rademacher)
    run = _TraceRun(
        op, vectors, tally, block, lambda done: progress(done, run.total, tally.text) if progress else None
    )
    run.total = probes
    if probes is not None:
        probed = _probed(run.take(probes, keep), known)
    else:
        goal = DEFAULT_RTOL if rtol is None else rtol
        room = affordable(op) if max_basis is None else max_basis
        first, grows = min(min_probes, max_probes), min(room, op.shape[0]) > _rows(known)
        taken = run.take(first, first if grows else keep)
        probed = _probed(taken[:keep], known)
        if grows:
            run.enlarge(taken, goal, lambda: growing(op, known, generator, room, basis_folder))
        tally.fix_variance()
        while tally.finite and (missing := min(tally.needed(goal), max_probes) - tally.probes) > 0:
            before = tally.probes
            run.total = run.steps + before + int(missing)
            run.take(int(missing), 0)
            if tally.probes == before:
                break
    return replace(tally.result(exact=ended(vectors), seed=seed, steps=run.steps), probed=probed)


def _probed(taken: Sequence[tuple[Tensor, Product]], known: Subspace | None) -> Probed | None:
    """Return probes z with A z, which is R z and what the basis knows of it."""
    if not taken:
        return None
    vectors = torch.stack([z for z, _ in taken])
    images = torch.stack([product.vector for _, product in taken])
    return Probed(
        vectors, images if known is None else (images + known.known_products(vectors)).to(images.dtype)
    )


class _TraceRun:
    """Takes probes and Krylov steps, and adds them to the tally."""

    def __init__(
        self,
        op: Operator,
        vectors: Iterator[Tensor],
        tally: TraceTally,
        block: int | None,
        seen: Callable[[int], None],
    ) -> None:
        self._op, self._vectors, self._tally, self._block, self._seen = op, vectors, tally, block, seen
        self.steps = 0
        self.total: int | None = None  # probes and Krylov steps in all, where they are known

    def take(self, count: int, keep: int) -> list[tuple[Tensor, Product]]:
        """Take up to ``count`` probes, none after a product that is not finite; return the first ``keep``."""
        taken: list[tuple[Tensor, Product]] = []
        rest = remainder(self._op, self._tally.known)
        for z, product in probe_products(rest, self._vectors, count, self._block):
            if not self._tally.finite:
                break
            self._tally.add(z, product)
            if len(taken) < keep:
                taken.append((z, product))
            self._seen(self._tally.probes + self.steps)
            del z, product  # a block stays as long as one of its probes does
        return taken

    def enlarge(
        self, taken: Sequence[tuple[Tensor, Product]], rtol: float, growing: Callable[[], Extend]
    ) -> None:
        tally = self._tally
        if tally.finite and self._growth_pays(rtol):
            probes = torch.stack([z for z, _ in taken])
            images = torch.stack([product.vector for _, product in taken])
            extend = growing()
            while self._growth_pays(rtol) and (grown := self._grown(extend)):
                deflate_further(images, probes, grown, _rows(tally.known))
                tally.deflate(grown, probes, images)
                self._seen(tally.probes + self.steps)  # with the estimate of the larger basis

    def _growth_pays(self, rtol: float) -> bool:
        known, tally = self._tally.known, self._tally
        if tally.needed(rtol) <= tally.probes or tally.error:  # images of inexact products stay as they are
            return False
        if known is None or len(known.rows) <= STEPS:
            return True
        return variance_saved(known, STEPS) > (rtol * tally.mean) ** 2

    def _grown(self, extend: Extend) -> Subspace | None:
        before, after = self._tally.known, extend(STEPS)
        if len(after.rows) == _rows(before):
            return None
        self.steps += after.matvecs - (before.matvecs if before else 0)
        self._seen(self._tally.probes + self.steps)
        return after


def _rows(known: Subspace | None) -> int:
    return 0 if known is None else len(known.rows)
