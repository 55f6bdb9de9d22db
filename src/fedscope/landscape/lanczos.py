"""Lanczos tridiagonalisation with full reorthogonalisation.

After m steps, A Q = Q T + β_m q_{m+1} e_mᵀ with orthonormal Q (n, m) and tridiagonal T (m, m): α on its
diagonal, β beside it. Each new vector is orthogonalised twice against the whole basis (Parlett 1998,
section 6.9), so no ghost eigenvalues appear. Where the Krylov space is exhausted (β ≈ 0) a fresh random
vector orthogonal to the basis takes its place with β = 0, so that up to n steps are always possible.
"""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from fedscope.landscape.operators import Operator

_CHUNK = 1 << 22  # float64 numbers converted at a time


class Lanczos:
    """An incremental Lanczos process: call ``step`` as often as needed, up to n times.

    Args:
        op: symmetric operator.
        start: (n,) starting vector, not zero; normalised here.
        generator: draws the replacements after a breakdown.

    Attributes:
        alphas, betas: one entry of each per step; a β of exactly 0 marks a breakdown.
        finite: False once a product was not finite; no further step may be taken.
    """

    def __init__(self, op: Operator, start: Tensor, *, generator: torch.Generator) -> None:
        self._op = op
        self._generator = generator
        self._basis = torch.empty(1, op.shape[0], dtype=op.dtype, device=op.device)
        self._scale = 0.0
        self.alphas: list[float] = []
        self.betas: list[float] = []
        self.finite = True
        self._append(start.to(op.device, torch.float64))

    @property
    def steps(self) -> int:
        """Products taken so far."""
        return len(self.alphas)

    @property
    def basis(self) -> Tensor:
        """The (m, n) basis, one vector per row."""
        return self._basis[: self.steps]

    def tridiagonal(self, first: int = 0) -> Tensor:
        """Return T as (m, m) float64 on the CPU, from row and column ``first`` on."""
        alphas, betas = self.alphas[first:], self.betas[first:-1]
        diagonal = torch.tensor(alphas, dtype=torch.float64)
        beside = torch.tensor(betas, dtype=torch.float64)
        return torch.diag(diagonal) + torch.diag(beside, 1) + torch.diag(beside, -1)

    def step(self) -> None:
        """Take one product and extend the basis.

        Raises:
            ValueError: the basis already spans the whole space, or a product was not finite.
        """
        if self.steps == self._op.shape[0] or not self.finite:
            raise ValueError(f"no step is possible after {self.steps} steps (finite: {self.finite})")
        newest = self._basis[self.steps]
        image = self._op.product(newest).vector.double()
        alpha = float(newest.double() @ image)
        self.alphas.append(alpha)
        remainder = self._orthogonalised(image)
        beta = float(remainder.norm())
        self.finite = math.isfinite(alpha) and math.isfinite(beta)
        self._scale = max(self._scale, abs(alpha), beta)
        full = self.steps == self._op.shape[0]
        broken = beta <= 10 * torch.finfo(self._op.dtype).eps * self._scale
        self.betas.append(0.0 if full or broken else beta)
        if self.finite and not full:
            self._append(self._fresh() if broken else remainder)

    def combine(self, coefficients: Tensor) -> Tensor:
        """Return Q·coefficients for (m, k) float64 coefficients: (n, k), float64."""
        coefficients = coefficients.to(self._op.device)
        return torch.cat([piece.T @ coefficients for _, piece in self._wide_pieces()])

    def _fresh(self) -> Tensor:
        generator = self._generator
        draw = torch.randn(
            self._op.shape[0], generator=generator, device=generator.device, dtype=torch.float64
        )
        return self._orthogonalised(draw.to(self._op.device))

    def _append(self, vector: Tensor) -> None:
        row = self.steps
        if row == len(self._basis):
            room = self._basis.new_empty(min(2 * row, self._op.shape[0]), self._op.shape[0])
            room[:row] = self._basis
            self._basis = room
        self._basis[row] = (vector / vector.norm()).to(self._basis.dtype)

    def _orthogonalised(self, vector: Tensor) -> Tensor:
        vector = vector.clone()
        for _ in range(2):
            coefficients = torch.zeros(self.steps, dtype=torch.float64, device=vector.device)
            for columns, piece in self._wide_pieces():
                coefficients += piece @ vector[columns]
            for columns, piece in self._wide_pieces():
                vector[columns] -= piece.T @ coefficients
        return vector

    def _wide_pieces(self) -> Iterator[tuple[slice, Tensor]]:
        # Stretches of columns in float64, so that a long float32 basis is never held twice.
        width = max(1, _CHUNK // self.steps)
        for begin in range(0, self._op.shape[0], width):
            columns = slice(begin, begin + width)
            yield columns, self.basis[:, columns].double()
