"""Estimates of several clients' Hessian diagonals from shared probes, each beside a Krylov basis of its own.

A client's basis is built once, kept between the stages, and grown where a row saves more products than it
costs. With the part K of H that a basis knows (:class:`.krylov_basis.Subspace`), a probe z
estimates the diagonal by z ⊙ Hz + (diag K − z ⊙ Kz). The bracket is a control variate of mean 0 that needs no
product: where a basis has grown, all earlier probes, drawn again by their generator, are corrected by it.

The rows of a basis come from a start that is independent of the probes. How many there are is decided by the
variance of z ⊙ Rz summed over the n coordinates, which few probes tell, as for the trace
(:mod:`fedscope.landscape.spectral.deflation`): a row is worth its product while it lowers that variance by
more than ε², the variance that the mean of all probes is to have, on average over the clients.

Symbols: K clients, G groups, M probes, m rows of a basis, n parameters, T tensors.
"""

import math
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Protocol

import torch
from torch import Tensor

from fedscope.choices import Reading
from fedscope.errors import UserError
from fedscope.landscape.heterogeneity.similarity import first_equal
from fedscope.landscape.operators.algebra.exports import Blocks
from fedscope.landscape.operators.base import Operator
from fedscope.landscape.operators.basis.krylov_basis import Subspace
from fedscope.landscape.operators.probes import block_size
from fedscope.landscape.operators.progress_callback import Progress, continued
from fedscope.landscape.spectral.deflation import STEPS, growing, variance_saved
from fedscope.landscape.spectral.diagonal import block_sums, deflated_probes
from fedscope.landscape.spectral.spectral_results import Diagonal

MEMORY = 2 << 30  # bytes of the bases that are kept between stages


class Diagonals(Protocol):
    """How a client's diagonal is estimated: :func:`deflated_diagonal`, or :func:`diagonal`."""

    def __call__(
        self,
        op: Operator,
        *,
        known: Subspace | None,
        probes: int,
        generator: torch.Generator,
        groups: int,
        by_batch: bool,
        progress: Progress | None,
    ) -> Diagonal:
        """Return independent estimates of op's diagonal by ``groups`` of the probes."""


class ClientDiagonals:
    """Every client's group means over the probes so far.

    ``known`` are bases of clients, independent of the probes; a client whose basis does not fit in ``memory``
    bytes gets a new one in each stage. ``parameter`` holds K × (G, n) means of the diagonal, in the
    operator's dtype on the CPU, ``tensor`` K × (G, T) float64 means of the block traces, ``deflated`` the
    rows of the largest basis at its last probes.
    """

    def __init__(
        self,
        seed: int,
        groups: int,
        estimator: Diagonals,
        *,
        known: Sequence[Subspace | None] = (),
        memory: int = MEMORY,
        progress: Progress | None = None,
    ) -> None:
        self.parameter: list[Tensor] = []
        self.tensor: list[Tensor] = []
        self.probes = self.matvecs = self.deflated = 0
        self._groups, self._estimator, self._memory = groups, estimator, memory
        self._progress, self._start = progress, seed
        self._known = {client: basis for client, basis in enumerate(known) if basis is not None}
        self._draws = torch.Generator().manual_seed(seed).get_state()  # where the next stage's probes begin
        self._stages: list[tuple[Tensor, int]] = []  # of which each began so, and how many probes it had
        self._blocks: Blocks | None = None
        self._same: dict[int, int] = {}  # client → the first that is equal to it

    def add(self, operators: Iterable[Operator], probes: int) -> None:
        after, self.deflated = self._draws, 0
        for client, op in enumerate(operators):
            if self._same.get(client, client) < client:
                continue
            if self._blocks not in (None, op.blocks):
                raise UserError(
                    f"client {client} has other parameters than client 0; compare equal architectures"
                )
            self._blocks = op.blocks
            generator = _at(self._draws)
            known = self._known.get(client)
            found = self._estimator(
                op,
                known=known and known.kept(op.device),
                probes=probes,
                generator=generator,
                groups=self._groups,
                by_batch=False,
                progress=continued(self._progress, self.matvecs),
            )
            after = generator.get_state()
            self.matvecs += found.matvecs
            self.deflated = max(self.deflated, found.trace.deflated)
            self._merge(client, found, op.dtype)
            self._keep(client, found.subspace)
        if len(self.parameter) < 2:
            raise UserError(f"{len(self.parameter)} client given; cross-client curvature compares at least 2")
        if not self._stages:
            self._share()
        self._stages.append((self._draws, probes))
        self._draws = after
        self.probes += probes

    def grow(self, operators: Iterable[Operator], factor: float) -> bool:
        """Enlarge the bases where that is cheaper than ``factor`` times the probes; say whether any grew."""
        variances = [self._variance(one) for one in self.parameter]
        goal = sum(variances) / len(variances) / factor
        worth = {client for client, known in self._known.items() if _saved(known) > goal}
        grew = False
        for client, op in enumerate(operators if worth else ()):
            if client in worth:
                grew = self._grow(client, op, variances[client], goal) or grew
        return grew

    def means(self) -> dict[Reading, Tensor]:
        return {
            "parameter": torch.stack([one.mean(0) for one in self.parameter]),
            "tensor": torch.stack([one.mean(0) for one in self.tensor]),
        }

    def fresh(self) -> torch.Generator:
        """Return a generator that draws what no probe so far came from."""
        return _at(self._draws)

    def noise(self, reading: Reading) -> float:
        """Return the variance of the means over all probes relative to the squared norms, of all clients."""
        rows = self.parameter if reading == "parameter" else self.tensor
        noise = sum(map(self._variance, rows))
        signal = sum(float(part.double().mean(0).square().sum()) for one in rows for part in _pieces(one))
        return noise / (signal - noise) if signal > noise else math.inf

    def _grow(self, client: int, op: Operator, variance: float, goal: float) -> bool:
        before = self._known[client].kept(op.device)
        room = self._memory // len(self.parameter) // (op.shape[0] * op.dtype.itemsize) - 1
        draws = torch.Generator().manual_seed(self._start)  # of replacements after a breakdown
        extend, after = growing(op, before, draws, room), before
        while variance > goal and _saved(after) > goal:
            grown, had = extend(STEPS), len(after.rows)
            if len(grown.rows) == had:
                break
            after = grown
            variance -= (len(after.rows) - had) * _saved(after) / self.probes
        if len(after.rows) == len(before.rows):
            return False
        self.matvecs += after.matvecs - before.matvecs
        if self._progress:
            self._progress(self.matvecs, None)
        self.deflated = max(self.deflated, len(after.rows))
        self._deflate(client, op, before, after)
        self._known[client] = after.kept("cpu")
        return True

    def _deflate(self, client: int, op: Operator, before: Subspace, after: Subspace) -> None:
        """Correct a client's group means by what ``after`` knows and ``before`` did not."""
        change = torch.zeros(self._groups, op.shape[0], dtype=torch.float64, device=op.device)
        for begun, count in self._stages:
            sums = torch.zeros_like(change)
            vectors = deflated_probes(op, _at(begun))
            for first in range(0, count, width := block_size(op.shape[0])):
                rows = torch.stack(list(islice(vectors, min(width, count - first))))
                seen = rows.double() * (after.known_products(rows) - before.known_products(rows))
                for i, sample in enumerate(seen):
                    sums[(first + i) % self._groups] += sample
            sizes = [len(range(group, count, self._groups)) for group in range(self._groups)]
            sums /= torch.tensor(sizes, dtype=torch.float64, device=op.device)[:, None]
            change.add_(sums, alpha=count / self.probes)
        change.neg_().add_(after.diagonal() - before.diagonal())
        self.parameter[client] += change.to("cpu", self.parameter[client].dtype)
        self.tensor[client] += torch.stack([block_sums(one, op) for one in change]).cpu()

    def _variance(self, rows: Tensor) -> float:
        return sum(float(part.double().var(0).sum()) for part in _pieces(rows)) / self._groups

    def _merge(self, client: int, found: Diagonal, dtype: torch.dtype) -> None:
        new = found.groups.to("cpu", dtype), found.tensor_groups.cpu()
        for kept, groups in zip((self.parameter, self.tensor), new, strict=True):
            if client == len(kept):
                kept.append(groups)
            else:
                kept[client].lerp_(groups, found.probes / (self.probes + found.probes))

    def _share(self) -> None:
        """Let equal clients be one from here on: a basis that fits for one alone would part them."""
        self._same = dict(enumerate(first_equal(self.parameter)))
        for client, first in self._same.items():
            self.parameter[client], self.tensor[client] = self.parameter[first], self.tensor[first]
            if client > first:
                self._known.pop(client, None)

    def _keep(self, client: int, known: Subspace | None) -> None:
        if known is None or client in self._known:
            return
        taken = sum(other.rows.nbytes for other in (*self._known.values(), known))
        if taken <= self._memory:
            self._known[client] = known.kept("cpu")


def _saved(known: Subspace) -> float:
    """Return by how much the last rows of a basis each lowered a probe's variance; 0 of a single row.

    That is at most ‖R‖²_F, nearly reached where the diagonal is small beside the rest, as a network's is.
    """
    rows = min(STEPS, len(known.rows) - 1)
    return variance_saved(known, rows) / 2 if rows > 0 else 0.0  # a diagonal's is half of a trace's


def _at(state: Tensor) -> torch.Generator:
    generator = torch.Generator()
    generator.set_state(state)
    return generator


def _pieces(rows: Tensor) -> tuple[Tensor, ...]:
    pieces: tuple[Tensor, ...] = rows.split(_WIDTH, 1)
    return pieces


_WIDTH = 1 << 18  # columns converted to float64 at a time
