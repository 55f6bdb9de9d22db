"""Symmetric linear operators known by their products: the one interface all curvature quantities use.

Symbols: n rows and columns, m vectors in a block, B batches, T named blocks of consecutive coordinates, r
rows of a basis. Several vectors are the rows of a matrix, so that each is contiguous.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, overload

import torch
from torch import Tensor

from fedscope.errors import UserError
from fedscope.landscape.operators.algebra.combination import Combination
from fedscope.landscape.operators.algebra.exports import (
    DENSE_MEMORY,
    Blocks,
    dense,
    flattened,
    scipy_operator,
    unflattened,
)
from fedscope.landscape.printing import Printed
from fedscope.statistics.standard_errors import finite_population

if TYPE_CHECKING:
    from scipy.sparse.linalg import LinearOperator


@dataclass(frozen=True, repr=False)
class Product(Printed):
    """A v and, where A is a weighted mean over batches A_b, what each batch's part of it says."""

    vector: Tensor  # (n,) in the operator's dtype
    forms: Tensor | None  # (B,) float64: vᵀA_b v
    onto: Tensor | None = None  # (B, r) float64: uᵢᵀA_b v for the rows uᵢ that were given
    error: float = 0.0  # a bound on the distance of ``vector`` from A v; 0: rounding alone
    form_error: float = 0.0  # at least the size of vᵀ``vector`` − vᵀA v as a rule, and a sign it may have


def runs(batches: int, most: int) -> list[range]:
    """Return at most ``most`` runs of consecutive batches, whose numbers of batches differ by one at most."""
    count = min(batches, most)
    return [range(batches * p // count, batches * (p + 1) // count) for p in range(count)]


class Operator(ABC):
    """A symmetric (n, n) matrix A seen through A v.

    Args:
        n: rows and columns.
        dtype: of the vectors it takes and returns.
        device: where they live.
        blocks: named stretches of coordinates (one per parameter tensor); one block if not given.
        weights: sample counts of the B batches that A is the weighted mean of, or ``None``.
        population: how many samples those were drawn from, see ``Batches``; ``None``: infinitely many.
        shapes: of the tensors that the blocks are, for vectors by name; flat if not given.
    """

    __array_ufunc__ = None  # so that NumPy's numbers leave ``2 * H`` to the operator

    def __init__(
        self,
        n: int,
        *,
        dtype: torch.dtype,
        device: torch.device | str,
        blocks: Blocks | None = None,
        weights: tuple[int, ...] | None = None,
        population: int | None = None,
        shapes: Sequence[torch.Size] | None = None,
    ) -> None:
        self.shape = (n, n)
        self.dtype = dtype
        self.device = torch.device(device)
        self.blocks: Blocks = blocks or (("all", n),)
        flat = [torch.Size([length]) for _, length in self.blocks]
        self.shapes: tuple[torch.Size, ...] = tuple(flat if shapes is None else shapes)
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

    def _alone(self, rows: Tensor) -> list[Product]:
        """Return the same products without what the batches say, if that is faster."""
        return self._apply(rows, None)

    def product(self, v: Tensor, *, onto: Tensor | None = None, by_batch: bool = True) -> Product:
        """Return A v for a (n,) vector, with the per-batch quadratic forms.

        Args:
            v: the vector.
            onto: (r, n) rows whose inner products with each batch's A_b v are wanted as well.
            by_batch: False: A v alone, to rounding; of small batches several are then taken together.

        Raises:
            UserError: ``v`` has another shape, or ``onto`` is given without ``by_batch``.
        """
        if onto is not None and not by_batch:
            raise UserError("onto is about batches; leave it out, or by_batch")
        if v.shape != (self.shape[0],):
            raise UserError(f"the vector has shape {tuple(v.shape)}; expected ({self.shape[0]},)")
        rows = v.to(self.device, self.dtype)[None]
        return (self._apply(rows, onto) if by_batch else self._alone(rows))[0]

    def products(self, rows: Tensor, *, by_batch: bool = True) -> list[Product]:
        """Return the products with the m rows of an (m, n) matrix, from one pass over the data.

        ``by_batch`` as of :meth:`product`.

        Raises:
            UserError: ``rows`` has another shape.
        """
        if rows.ndim != 2 or rows.shape[1] != self.shape[0]:
            raise UserError(f"the rows have shape {tuple(rows.shape)}; expected (m, {self.shape[0]})")
        rows = rows.to(self.device, self.dtype)
        return [] if not len(rows) else self._apply(rows, None) if by_batch else self._alone(rows)

    def sample_forms(self, v: Tensor) -> Tensor | None:
        """Return vᵀA_i v of each sample for a (n,) vector v, where A is the plain mean of N samples' A_i.

        (N,) float64, in the samples' order. None where A is no such mean, or the parts cannot be told.
        """
        return None

    def diagonal_parts(self, probes: Tensor, most: int) -> Tensor | None:
        """Return z ⊙ A_p z (m, P, n) of P ≤ ``most`` parts of the samples for the rows z (m, n) of ±1.

        The parts are the :func:`runs` of batches; each row has the mean diag A_p, and inner products of rows
        of different probes are unbiased for those of the diagonals. None where there are no batches, or what
        they say is not known. In the operator's dtype, at m products.
        """
        return None

    def matvec(self, v: Tensor) -> Tensor:
        """Return A v for a (n,) vector."""
        return self.product(v, by_batch=False).vector

    def matmat(self, V: Tensor) -> Tensor:
        """Return A V for a (n, m) matrix of columns, as other libraries have it."""
        found = self.products(V.T.contiguous(), by_batch=False)
        return torch.stack([product.vector for product in found], dim=1) if found else torch.empty_like(V)

    @overload
    def __matmul__(self, v: Tensor) -> Tensor: ...

    @overload
    def __matmul__(self, v: Mapping[str, Tensor]) -> dict[str, Tensor]: ...

    def __matmul__(self, v: Tensor | Mapping[str, Tensor]) -> Tensor | dict[str, Tensor]:
        """Return A v for a vector (n,), columns (n, m) or tensors by name; the answer has the same form."""
        if isinstance(v, Mapping):
            return self.unflatten(self.matvec(self.flatten(v)))
        if not isinstance(v, Tensor):
            raise UserError(
                f"H @ v takes a tensor or a dict of tensors, not {type(v).__name__}; NumPy arrays go to "
                "H.to_scipy() @ v"
            )
        if v.ndim not in (1, 2) or v.shape[0] != self.shape[0]:
            n = self.shape[0]
            raise UserError(f"v has shape {tuple(v.shape)}; H @ v takes ({n},), or ({n}, m) for m columns")
        return self.matvec(v) if v.ndim == 1 else self.matmat(v)

    def flatten(self, tensors: Mapping[str, Tensor]) -> Tensor:
        """Return tensors by name as one (n,) vector of the operator.

        Raises:
            UserError: a name is missing or unknown, or a tensor has another shape.
        """
        return flattened(tensors, self.blocks, self.shapes).to(self.device, self.dtype)

    def unflatten(self, v: Tensor) -> dict[str, Tensor]:
        """Return views of a (n,) vector by the names of the blocks, in their shapes.

        Raises:
            UserError: the vector has another shape.
        """
        return unflattened(v, self.blocks, self.shapes)

    def to_dense(self, *, memory: int = DENSE_MEMORY) -> Tensor:
        """Return A as a (n, n) tensor in the operator's dtype, on its device, at n products.

        Args:
            memory: bytes that it may take.

        Raises:
            UserError: it takes more.
        """
        return dense(self, memory)

    def to_scipy(self) -> "LinearOperator":
        """Return the operator for SciPy's solvers, in the NumPy dtype of the same name.

        For a dtype that NumPy lacks (bfloat16) that is float32, which holds its numbers exactly.
        """
        return scipy_operator(self)

    def _combination(self) -> Combination:
        return Combination({self: 1.0})

    def damped(self, by: float) -> "Operator":
        """Return A + c·1 for c = ``by``, at no further product."""
        return _Combined(self._combination().shifted(float(by)))

    def __add__(self, other: "Operator") -> "Operator":
        if isinstance(other, Operator):
            return _Combined(self._combination().plus(other._combination()))
        if not isinstance(other, Real):
            return NotImplemented
        if other == 0:
            return self
        raise UserError(f"a number is no operator: H.damped({other}) adds {other} times the identity")

    def __radd__(self, other: int) -> "Operator":  # sum() begins with 0
        return self + other  # type: ignore[operator,no-any-return]

    def __sub__(self, other: "Operator") -> "Operator":
        return self + (-other) if isinstance(other, Operator) else NotImplemented

    def __neg__(self) -> "Operator":
        return -1.0 * self

    def __mul__(self, factor: float) -> "Operator":
        if not isinstance(factor, Real):
            return NotImplemented
        return _Combined(self._combination().times(float(factor)))

    __rmul__ = __mul__

    def __truediv__(self, divisor: float) -> "Operator":
        if not isinstance(divisor, Real):
            return NotImplemented
        return self * (1 / float(divisor))


class _Combined(Operator):
    """Σ_i c_i A_i + s·1, see :mod:`fedscope.landscape.operators.algebra.combination`."""

    def __init__(self, terms: Combination) -> None:
        super().__init__(**terms.space())
        self._terms = terms

    def _apply(self, rows: Tensor, onto: Tensor | None) -> list[Product]:
        return self._terms.products(rows, onto, self.weights is not None)

    def _alone(self, rows: Tensor) -> list[Product]:
        return self._terms.products(rows, None, by_batch=False, alone=True)

    def _combination(self) -> Combination:
        return self._terms

    def sample_forms(self, v: Tensor) -> Tensor | None:
        if self.weights is None:
            return None
        return self._terms.sample_forms(v.to(self.device, self.dtype))

    def diagonal_parts(self, probes: Tensor, most: int) -> Tensor | None:
        return None if self.weights is None else self._terms.diagonal_parts(probes, most)


class Wrapper(Operator):
    """An operator made of another one on the same coordinates and samples."""

    def __init__(self, base: Operator) -> None:
        super().__init__(
            base.shape[0], dtype=base.dtype, device=base.device, blocks=base.blocks, shapes=base.shapes,
            weights=base.weights, population=base.population,
        )  # fmt: skip
        self._base = base
