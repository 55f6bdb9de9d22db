"""Linear forms of several numbers, and ratios of these, with errors from batches left out."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from fedscope.landscape.gradients.results import Ratio
from fedscope.landscape.spectral.results import Estimate
from fedscope.statistics.intervals import combined, sample_error

_TOLD = 2.0  # standard errors from which on a length is told from 0


@dataclass(frozen=True)
class Forms:
    """S numbers of K clients, none negative, and their errors."""

    values: Tensor  # (S,) float64
    moved: Sequence[Tensor]  # K of (B, S): what each batch adds to an error, squared and summed
    twice: Tensor  # (S, S): of the variances that ``moved`` gives, what these count twice
    added: Tensor  # (S,): what noise adds to the numbers before they are corrected

    def __call__(self, row: Tensor) -> Estimate:
        """Return the estimate of a form (S,)."""
        return Estimate(
            float(_form(row, self.values)), math.sqrt(self._spread(row, row)), self._dof(row), low=0.0
        )

    def square(self, row: Tensor) -> Estimate:
        """Return the estimate of a squared length, whose variance grows with it: linear noise does."""
        variance, slope = self._of_square(row)
        value = float(_form(row, self.values))
        return Estimate(value, math.sqrt(variance), self._dof(row), slope, low=0.0)

    def ratio(self, one: Tensor, other: Tensor, *, square: bool = False, offset: float = 0.0) -> Ratio:
        """Return the ratio of a form to a squared length, with ``offset`` added.

        ``square``: the first is a squared length too.
        """
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
        """Return the degrees of freedom, fewer where few batches make the error."""
        parts = [_form(row, part) for part in self.moved]
        return combined(*((float(part.norm()), sample_error(part)[1]) for part in parts))[1]


def _form(row: Tensor, numbers: Tensor) -> Tensor:
    """Return a form (S,) of numbers (…, S); one that it does not take in may be NaN."""
    taken = row != 0
    return numbers[..., taken] @ row[taken]
