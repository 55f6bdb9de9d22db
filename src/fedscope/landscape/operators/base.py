"""Symmetric linear operators known by their products: the one interface all curvature quantities use.

Symbols: n rows and columns, m vectors in a block, B batches, T named blocks of consecutive coordinates, r
rows of a basis. Several vectors are the rows of a matrix, so that each is contiguous.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from fedscope.statistics.intervals import finite_population

if TYPE_CHECKING:
    from scipy.sparse.linalg import LinearOperator

Blocks = tuple[tuple[str, int], ...]
"""Names and lengths of consecutive stretches of coordinates, in order; the lengths sum to n."""


@dataclass(frozen=True)
class Product:
    """A v and, where A is a weighted mean over batches A_b, what each batch's part of it says."""

    vector: Tensor  # (n,) in the operator's dtype
    forms: Tensor | None  # (B,) float64: vᵀA_b v
    onto: Tensor | None = None  # (B, r) float64: uᵢᵀA_b v for the rows uᵢ that were given


@dataclass(frozen=True)
class DiagonalParts:
    """What batches' diagonals look like to m probes z: the parts x_b = z ⊙ A_b z, each with mean diag A_b.

    Inner products of parts of different probes are unbiased for those of the diagonals.
    """

    blocks: Tensor  # (m, B, T) float64: their sums over the operator's blocks
    onto: Tensor  # (m, B, r) float64: their inner products with the rows that were given
    gram: Tensor  # (B, m, m) float64: of the probes' parts with each other
    whole: Tensor  # (m, m) float64: that of Σ_b (n_b/N) x_b


class Operator(ABC):
    """A symmetric (n, n) matrix A seen through A v.

    Args:
        n: rows and columns.
        dtype: of the vectors it takes and returns.
        device: where they live.
        blocks: named stretches of coordinates (one per parameter tensor); one block if not given.
        weights: sample counts of the B batches that A is the weighted mean of, or ``None``.
        population: how many samples those were drawn from, see ``Batches``; ``None``: infinitely many.
    """

    def __init__(
        self,
        n: int,
        *,
        dtype: torch.dtype,
        device: torch.device | str,
        blocks: Blocks | None = None,
        weights: tuple[int, ...] | None = None,
        population: int | None = None,
    ) -> None:
        self.shape = (n, n)
        self.dtype = dtype
        self.device = torch.device(device)
        self.blocks: Blocks = blocks or (("all", n),)
        self.weights = weights
        self.population = population
        if sum(length for _, length in self.blocks) != n:
            raise ValueError(f"the blocks {self.blocks} do not add up to n = {n}")

    @abstractmethod
    def _apply(self, rows: Tensor, onto: Tensor | None) -> list[Product]:
        """Return the products with the rows of an (m, n) matrix of the right dtype and device, m ≥ 1.

        An operator over batches also fills ``Product.onto``, for ``onto`` (r, n).
        """

    @property
    def finite_population(self) -> float:
        """The factor of a finite population on variances over the samples; 1 for an infinite one."""
        return finite_population(sum(self.weights or ()), self.population)

    def product(self, v: Tensor, *, onto: Tensor | None = None) -> Product:
        """Return A v for a (n,) vector, with the per-batch quadratic forms.

        Args:
            v: the vector.
            onto: (r, n) rows whose inner products with each batch's A_b v are wanted as well.

        Raises:
            ValueError: ``v`` has another shape.
        """
        if v.shape != (self.shape[0],):
            raise ValueError(f"the vector has shape {tuple(v.shape)}; expected ({self.shape[0]},)")
        return self._apply(v.to(self.device, self.dtype)[None], onto)[0]

    def products(self, rows: Tensor) -> list[Product]:
        """Return the products with the m rows of an (m, n) matrix, from one pass over the data.

        Raises:
            ValueError: ``rows`` has another shape.
        """
        if rows.ndim != 2 or rows.shape[1] != self.shape[0]:
            raise ValueError(f"the rows have shape {tuple(rows.shape)}; expected (m, {self.shape[0]})")
        return self._apply(rows.to(self.device, self.dtype), None) if len(rows) else []

    def sample_forms(self, v: Tensor) -> Tensor | None:
        """Return vᵀA_i v of each sample for a (n,) vector v, where A is the plain mean of N samples' A_i.

        (N,) float64, in the samples' order. None where A is no such mean, or the parts cannot be told.
        """
        return None

    def diagonal_parts(self, probes: Tensor, onto: Tensor) -> DiagonalParts | None:
        """Return each batch's part of z ⊙ A z for the m rows of an (m, n) matrix of ±1, at m products.

        None where the operator has no batches, or cannot tell them.

        Args:
            probes: (m, n) in the operator's dtype, on its device.
            onto: (r, n) rows whose inner products with the parts are wanted.
        """
        return None

    def matvec(self, v: Tensor) -> Tensor:
        """Return A v for a (n,) vector."""
        return self.product(v).vector

    def matmat(self, V: Tensor) -> Tensor:
        """Return A V for a (n, m) matrix of columns, as other libraries have it."""
        found = self.products(V.T.contiguous())
        return torch.stack([product.vector for product in found], dim=1) if found else torch.empty_like(V)

    def to_scipy(self) -> "LinearOperator":
        """Return the operator for SciPy's solvers, in the NumPy dtype of the same name.

        For a dtype that NumPy lacks (bfloat16) that is float32, which holds its numbers exactly.
        """
        from scipy.sparse.linalg import LinearOperator

        def numbers(tensor: Tensor) -> np.ndarray:
            return (tensor.float() if self.dtype == torch.bfloat16 else tensor).cpu().numpy()

        def apply(v: np.ndarray) -> np.ndarray:
            return numbers(self.matvec(torch.as_tensor(v.reshape(-1))))

        def apply_all(V: np.ndarray) -> np.ndarray:
            return numbers(self.matmat(torch.as_tensor(V)))

        dtype = numbers(torch.empty(0, dtype=self.dtype)).dtype
        return LinearOperator(self.shape, matvec=apply, rmatvec=apply, matmat=apply_all, dtype=dtype)

    def __add__(self, other: "Operator") -> "Operator":
        return _Sum(self, other)

    def __mul__(self, factor: float) -> "Operator":
        return _Scaled(self, factor)

    __rmul__ = __mul__


class LambdaOperator(Operator):
    """The operator of a function v ↦ A v, for tests and for matrices one has at hand."""

    def __init__(
        self,
        matvec: Callable[[Tensor], Tensor],
        n: int,
        dtype: torch.dtype = torch.float64,
        device: torch.device | str = "cpu",
        *,
        blocks: Blocks | None = None,
    ) -> None:
        super().__init__(n, dtype=dtype, device=device, blocks=blocks)
        self._matvec = matvec

    def _apply(self, rows: Tensor, onto: Tensor | None) -> list[Product]:
        return [Product(self._matvec(v), None) for v in rows]


class _Sum(Operator):
    """A + B; forms add where both are means over batches of the same sizes."""

    def __init__(self, left: Operator, right: Operator) -> None:
        for what in ("shape", "dtype", "device"):
            ours, theirs = getattr(left, what), getattr(right, what)
            if ours != theirs:
                raise ValueError(f"operators of different {what} cannot be added: {ours} and {theirs}")
        super().__init__(
            left.shape[0],
            dtype=left.dtype,
            device=left.device,
            blocks=left.blocks if left.blocks == right.blocks else None,
            weights=left.weights if left.weights == right.weights else None,
            population=left.population if left.population == right.population else None,
        )
        self._terms = (left, right)

    def _apply(self, rows: Tensor, onto: Tensor | None) -> list[Product]:
        pairs = zip(*(term._apply(rows, onto) for term in self._terms), strict=True)
        shared = self.weights is not None
        return [
            Product(
                left.vector + right.vector,
                _added(left.forms, right.forms) if shared else None,
                _added(left.onto, right.onto) if shared else None,
            )
            for left, right in pairs
        ]

    def sample_forms(self, v: Tensor) -> Tensor | None:
        """Return the sum of both terms' forms."""
        left, right = (term.sample_forms(v) for term in self._terms)
        return _added(left, right) if self.weights is not None else None


class Wrapper(Operator):
    """An operator made of another one on the same coordinates and samples."""

    def __init__(self, base: Operator) -> None:
        super().__init__(
            base.shape[0],
            dtype=base.dtype,
            device=base.device,
            blocks=base.blocks,
            weights=base.weights,
            population=base.population,
        )
        self._base = base


class _Scaled(Wrapper):
    """c·A."""

    def __init__(self, base: Operator, factor: float) -> None:
        super().__init__(base)
        self._factor = factor

    def _apply(self, rows: Tensor, onto: Tensor | None) -> list[Product]:
        def scaled(part: Tensor | None) -> Tensor | None:
            return None if part is None else self._factor * part

        return [
            Product(self._factor * product.vector, scaled(product.forms), scaled(product.onto))
            for product in self._base._apply(rows, onto)
        ]

    def sample_forms(self, v: Tensor) -> Tensor | None:
        """Return the multiples of the base's forms."""
        found = self._base.sample_forms(v)
        return None if found is None else self._factor * found

    def diagonal_parts(self, probes: Tensor, onto: Tensor) -> DiagonalParts | None:
        """Return the multiples of the base's parts."""
        found, c = self._base.diagonal_parts(probes, onto), self._factor
        return found and DiagonalParts(
            c * found.blocks, c * found.onto, c**2 * found.gram, c**2 * found.whole
        )


def _added(left: Tensor | None, right: Tensor | None) -> Tensor | None:
    return None if left is None or right is None else left + right
