"""Lanczos with full reorthogonalisation and thick restart, and projections from the same products.

After m steps, A Qᵀ = Qᵀ H + q bᵀ + E: orthonormal rows Q (m, n), the next row q, its coupling b (m,). H holds
the coefficients measured when each image was orthogonalised twice against the whole basis (Parlett 1998,
section 6.9), so that no ghost eigenvalues appear and ‖A v − θ v‖ of a v = Qᵀ s follows from H, b and s alone.
T is H's symmetric part, tridiagonal up to rounding; its skew part is what rounding did to the products. E is
what storing rows in the operator's dtype lost. A restart replaces Q by p of its Ritz vectors; b then
couples q to all of them (Wu and Simon 2000; Stewart 2001). Where the Krylov space is exhausted (‖b‖ ≈ 0) a
fresh random vector orthogonal to the basis takes q's place with b = 0, so that up to n steps are possible.
"""

import math
from itertools import islice
from pathlib import Path

import torch
from torch import Tensor

from fedscope.landscape.operators.base import Operator, Product
from fedscope.landscape.operators.basis.basis_rows import BasisRows
from fedscope.landscape.operators.basis.krylov_basis import Subspace
from fedscope.landscape.operators.basis.projections import onto
from fedscope.landscape.operators.probes import generator_of, rademacher
from fedscope.landscape.spectral.krylov.unseen import least, unseen


class Lanczos:
    """An incremental Lanczos process: call ``step`` as often as needed, while there are fewer than n rows.

    Args:
        op: symmetric operator.
        start: (n,) starting vector, not zero; normalised here.
        generator: draws the replacements after a breakdown.
        by_batch: also collect Q A_b Qᵀ of each of B batches' part A_b, B·m² numbers, where there are any.
        dimension: of the space that the products stay in, where that is not all of the n coordinates.
        folder: of a file for the basis; None: it is in memory.
        capacity: rows that room is made for at once, the next one included; None: more as they come.
        image: (n,) A times ``start``, where it is known: the first step takes it and no product, and has no
            batches' parts.
        sketched: d, of random signs ±1/√d that also see what each A_b Qᵀ has outside the basis; d rows more.

    Attributes:
        steps: rows of the basis, m.
        matvecs: products taken.
        alphas: the α of each step before the first restart: vᵀAv of the row v that it took.
        betas: the β of each step, with which the next row was coupled; exactly 0 marks a breakdown.
        coupling: b, float64 on the CPU.
        finite: False once a product was not finite; no further step may be taken.
        error: a bound on the Frobenius norm of what the products themselves are off by.
    """

    def __init__(
        self,
        op: Operator,
        start: Tensor,
        *,
        generator: torch.Generator,
        by_batch: bool = False,
        sketched: int = 0,
        dimension: int | None = None,
        image: Tensor | None = None,
        folder: Path | None = None,
        capacity: int | None = None,
    ) -> None:
        self._op = op
        self.dimension = op.shape[0] if dimension is None else dimension
        self._generator = generator
        self._sketched = sketched if by_batch and len(op.weights or ()) > 1 else 0
        drawn = islice(rademacher(op.shape[0], generator_of(), op.dtype, op.device), self._sketched)
        signs = (sign / math.sqrt(self._sketched) for sign in drawn)
        self._rows = BasisRows(
            op.shape[0], op.dtype, op.device, folder=folder, capacity=capacity, fixed=signs
        )
        self._measured = torch.zeros(1, 1, dtype=torch.float64)  # H, with room to grow
        counts = torch.tensor(op.weights or (), dtype=torch.float64, device=op.device)
        self._shares = counts / counts.sum()
        self._batches = torch.zeros(len(counts), 1, 1, dtype=torch.float64) if by_batch else None
        self._images = torch.zeros(len(counts), self._sketched, 0, dtype=torch.float64)  # Sᵀ A_b Qᵀ
        self._scale = 0.0  # of ‖A‖
        self._lost = 0.0  # ‖E‖_F², a bound
        self.error = 0.0
        self.steps = self.matvecs = 0
        self.alphas: list[float] = []
        self.betas: list[float] = []
        self.coupling = torch.zeros(0, dtype=torch.float64)
        self.finite, self._restarted = True, False
        exact, start = start.dtype == torch.float64, start.to(op.device, torch.float64)
        self._image = None if image is None else Product((image / start.norm()).to(op.device, op.dtype), None)
        self._rows.append(start)
        self._start_eps = self.eps  # twice what rounding may have moved the start by, of its norm
        if exact and self.eps > torch.finfo(torch.float64).eps:
            self._start_eps = min(self.eps, 2 * self._rows.rounding(start) + torch.finfo(torch.float64).eps)

    @classmethod
    def resumed(cls, op: Operator, known: Subspace, *, generator: torch.Generator) -> "Lanczos":
        m = len(known.rows)
        process = cls(op, known.outside, generator=generator)
        process._rows = known.rows.continued(known.outside)
        process._measured = known.projected.clone()
        process._batches = None if known.batches is None else known.batches.clone()
        process._scale = max(float(known.projected.abs().max()), float(known.coupling.norm()))
        process._lost = m * (process.eps * process._scale) ** 2
        process.steps, process.matvecs = m, known.matvecs
        process.coupling, process.error = known.coupling.clone(), known.error
        return process

    @property
    def basis(self) -> Tensor:
        return self._rows.first(self.steps).tensor

    @property
    def projected(self) -> Tensor:
        """T: (m, m) float64 on the CPU."""
        inside = self._inside
        return (inside + inside.T) / 2

    @property
    def _inside(self) -> Tensor:
        """H."""
        return self._measured[: self.steps, : self.steps]

    @property
    def spans_all(self) -> bool:
        return self.steps == self.dimension

    @property
    def noise(self) -> float:
        """The spectral norm of H's skew part: how far rounding has shifted any eigenvalue of T."""
        inside = self._inside
        return float(torch.linalg.matrix_norm((inside - inside.T) / 2, 2))

    def residuals(self, theta: Tensor, s: Tensor) -> Tensor:
        """Return bounds on ‖A v − θ v‖ of v = Qᵀ s, stored in the operator's dtype, for columns s: (k,)."""
        inside = self._inside @ s - theta * s
        known: Tensor = (inside.square().sum(0) + (self.coupling @ s).square()).sqrt()
        return known + math.sqrt(self._lost) + self.eps * self._scale

    def unseen(self, at: float, random_part: float = 1.0) -> float:
        """Return a bound on the probability that the start has passed over an eigenvalue at or beyond ``at``.

        ``at`` is outside the Ritz values; the start has a random direction, or a random part of this norm.
        """
        if not self.finite:
            return 1.0
        return unseen(
            self.alphas, self.betas, at, self._op.shape[0], eps=self._start_eps, random_part=random_part
        )

    def has_seen(self, at: float, most: float, random_part: float = 1.0) -> bool:
        """Say whether that probability is at most ``most``, or the least that rounding lets be told."""
        return self.unseen(at, random_part) <= max(most, least(self._op.shape[0], self._start_eps))

    def subspace(self) -> Subspace:
        m = self.steps
        return Subspace(
            rows=self._rows.first(m),
            projected=self.projected,
            batches=None if self._batches is None else self._batches[:, :m, :m],
            outside=self._rows.row(m)
            if self.finite and m < self.dimension
            else torch.zeros(self._op.shape[0], dtype=self._op.dtype, device=self._op.device),
            coupling=self.coupling,
            matvecs=self.matvecs,
            beyond=self._beyond(),
            error=self.error,
        )

    def _beyond(self) -> Tensor | None:
        """Return Q A_b (1 − P) S, (B, m, d); None without a sketch."""
        if self._batches is None or not self._sketched:
            return None
        m = self.steps
        inside = self._rows.first(m).fixed_inner()
        return (self._images - inside.cpu() @ self._batches[:, :m, :m]).transpose(1, 2)

    def step(self) -> None:
        m, n = self.steps, self.dimension
        if m == n or not self.finite:
            raise ValueError(f"no step is possible after {m} steps (finite: {self.finite})")
        rows = self._rows.with_fixed() if self._sketched else self._rows
        seen = None if self._batches is None else onto(rows)
        product, self._image = self._image, None
        if product is None:
            product = self._op.product(self._rows.row(m), onto=seen, by_batch=self._batches is not None)
            self.matvecs += 1
        self.error = math.hypot(self.error, product.error)
        by_batch = images = None
        if self._batches is not None and product.onto is not None:
            images, by_batch = product.onto[:, : self._sketched], product.onto[:, self._sketched :]
        guess = None if by_batch is None else self._shares.to(by_batch.device) @ by_batch
        column, remainder = self._rows.orthogonalised(product.vector, guess)
        beta, size = float(remainder.norm()), float(column.norm())
        self.finite = math.isfinite(size) and math.isfinite(beta)
        self._scale = max(self._scale, size, beta)
        broken = m + 1 == n or beta <= 10 * self.eps * self._scale
        self._record(column.cpu(), None if by_batch is None else by_batch.cpu())
        if images is not None:
            self._images = torch.cat([self._images, images.cpu()[:, :, None]], dim=2)
        self.coupling = torch.zeros(m + 1, dtype=torch.float64)
        self.coupling[m] = 0.0 if broken else beta
        self.betas.append(float(self.coupling[m]))
        if not self._restarted:
            self.alphas.append(float(column[-1]))
        self._lost += (self.eps * math.hypot(size, beta)) ** 2 + (beta**2 if broken else 0.0)
        if self.finite and m + 1 < n:
            self._rows.append(self._fresh() if broken else remainder)

    def restart(self, keep: Tensor) -> None:
        """Replace the basis by the p rows keepᵀ Q; keep (m, p) float64 has eigenvectors of T as columns."""
        m, p = self.steps, keep.shape[1]
        self._rows.rotate(keep)
        image = self._inside @ keep
        smaller = keep.T @ image
        self._lost += float((image - keep @ smaller).square().sum()) + p * (self.eps * self._scale) ** 2
        self._measured[:p, :p] = smaller
        if self._batches is not None:
            self._batches[:, :p, :p] = keep.T @ self._batches[:, :m, :m] @ keep
            if self._sketched:
                self._images = self._images @ keep
        self.coupling = keep.T @ self.coupling
        self.steps, self._restarted = p, True

    def combine(self, coefficients: Tensor) -> Tensor:
        """Return Qᵀ·coefficients, (n, k) in the operator's dtype, for (m, k) float64 coefficients."""
        return self._rows.first(self.steps).combined(coefficients).T

    @property
    def eps(self) -> float:
        return torch.finfo(self._op.dtype).eps

    def _record(self, column: Tensor, by_batch: Tensor | None) -> None:
        m = self.steps
        if m == len(self._measured):
            self._measured = _wider(self._measured)
            self._batches = None if self._batches is None else _wider(self._batches)
        self._measured[m, :m] = self.coupling
        self._measured[: m + 1, m] = column
        if by_batch is None:
            self._batches = None
        elif self._batches is not None:
            self._batches[:, : m + 1, m] = by_batch
            self._batches[:, m, : m + 1] = by_batch
        self.steps = m + 1

    def _fresh(self) -> Tensor:
        generator = self._generator
        draw = torch.randn(
            self._op.shape[0], generator=generator, device=generator.device, dtype=torch.float64
        )
        return self._rows.orthogonalised(draw.to(self._op.device))[1]


def _wider(square: Tensor) -> Tensor:
    m = square.shape[-1]
    room = square.new_zeros(*square.shape[:-2], 2 * m, 2 * m)
    room[..., :m, :m] = square
    return room
