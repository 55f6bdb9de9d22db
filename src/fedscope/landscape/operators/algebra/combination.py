"""Linear combinations A = Σ_i c_i A_i + s·1 of operators: sums, differences, multiples and damping are such.

What batches say goes along: where all A_i are means over batches of the same sizes, the part of batch b is
Σ_i c_i A_ib + s·1.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from torch import Tensor

from fedscope.errors import UserError

if TYPE_CHECKING:
    from fedscope.landscape.operators.base import Operator, Product


@dataclass(frozen=True)
class Combination:
    """Factors c_i of distinct operators A_i, one at least, and the multiple s of the identity."""

    factors: "dict[Operator, float]"
    shift: float = 0.0

    def plus(self, other: "Combination") -> "Combination":
        factors = dict(self.factors)
        for operator, factor in other.factors.items():
            factors[operator] = factors.get(operator, 0.0) + factor
        return Combination(factors, self.shift + other.shift)

    def times(self, factor: float) -> "Combination":
        return Combination({op: factor * c for op, c in self.factors.items()}, factor * self.shift)

    def shifted(self, by: float) -> "Combination":
        return replace(self, shift=self.shift + by)

    def space(self) -> dict[str, Any]:
        """Return the arguments of ``Operator`` that all terms share; None for what they do not agree in."""
        first, *others = self.factors
        for what in ("shape", "dtype", "device"):
            for other in others:
                ours, theirs = getattr(first, what), getattr(other, what)
                if ours != theirs:
                    raise UserError(f"operators of different {what} cannot be added: {ours} and {theirs}")

        def shared(what: str) -> Any:
            value = getattr(first, what)
            return value if all(getattr(other, what) == value for other in others) else None

        blocks, shapes = shared("blocks"), shared("shapes")
        return {
            "n": first.shape[0],
            "dtype": first.dtype,
            "device": first.device,
            "blocks": blocks if shapes else None,
            "shapes": shapes if blocks else None,
            "weights": shared("weights"),
            "population": shared("population"),
        }

    def products(
        self, rows: Tensor, onto: Tensor | None, by_batch: bool, *, alone: bool = False
    ) -> "list[Product]":
        """Return the products with the rows of an (m, n) matrix.

        ``by_batch``: the terms' batches are the same; ``alone``: without what the batches say.
        """
        found = [term._alone(rows) if alone else term._apply(rows, onto) for term in self.factors]
        factors = list(self.factors.values())
        products = []
        for v, *of_terms in zip(rows, *found, strict=True):
            vector = _sum(factors, [term.vector for term in of_terms])
            forms = _sum(factors, [term.forms for term in of_terms]) if by_batch else None
            inner = _sum(factors, [term.onto for term in of_terms]) if by_batch else None
            assert vector is not None
            if self.shift:
                vector = vector + self.shift * v
                forms = None if forms is None else forms + self.shift * _square(v)
                if inner is not None and onto is not None:
                    inner = inner + self.shift * (onto @ v).double()
            error = sum(abs(c) * term.error for c, term in zip(factors, of_terms, strict=True))
            form_error = sum(c * term.form_error for c, term in zip(factors, of_terms, strict=True))
            products.append(
                replace(
                    of_terms[0], vector=vector, forms=forms, onto=inner, error=error, form_error=form_error
                )
            )
        return products

    def sample_forms(self, v: Tensor) -> Tensor | None:
        return _sum(
            [*self.factors.values(), self.shift],
            [*(term.sample_forms(v) for term in self.factors), _square(v)],
        )

    def diagonal_parts(self, probes: Tensor, most: int) -> Tensor | None:
        found = [term.diagonal_parts(probes, most) for term in self.factors]
        total = _sum(list(self.factors.values()), found)
        return None if total is None else total + self.shift


def _sum(factors: list[float], parts: list[Tensor | None]) -> Tensor | None:
    total: Tensor | None = None
    for factor, part in zip(factors, parts, strict=True):
        if part is None:
            return None
        term = part if factor == 1 else factor * part
        total = term if total is None else total + term
    return total


def _square(v: Tensor) -> Tensor:
    wide = v.double()
    return wide @ wide
