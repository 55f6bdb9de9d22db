"""Flatness gaps: each client's loss and the global one at the client's, global and anchor weights.

With f_k client k's loss on its own rows, F the global loss, w_k the client's weights and w̄ the global
ones, every quantity q of loss and curvature has four cells for each client:

                 at w_k            at w̄
    own f_k      q(f_k, w_k)       q(f_k, w̄)
    global F     q(F, w_k)         q(F, w̄)

What papers call flatness discrepancy, distance or incompatibility are differences of these cells;
:data:`GAPS` names the differences. Those along a row are of one function on common samples, and paired.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from fedscope.errors import UserError
from fedscope.landscape.heterogeneity.one_round.at_weights import Quantity
from fedscope.landscape.heterogeneity.one_round.paired import Paired, difference, total
from fedscope.landscape.printing import Printed

Function = Literal["own", "global"]
Point = Literal["own", "global", "start"]
Place = tuple[Function, Point]
FUNCTIONS: tuple[Function, ...] = get_args(Function)
POINTS: tuple[Point, ...] = get_args(Point)
GAPS: Mapping[str, tuple[Place, Place]] = {
    "discrepancy": (("global", "global"), ("own", "own")),
    "averaging_own": (("own", "global"), ("own", "own")),
    "averaging_global": (("global", "global"), ("global", "own")),
    "function_at_own": (("global", "own"), ("own", "own")),
    "function_at_global": (("global", "global"), ("own", "global")),
}
"""Each gap is the first cell less the second."""


@dataclass(frozen=True, repr=False)
class FlatnessGap(Printed):
    """One quantity in all cells."""

    quantity: Quantity
    shares: tuple[float, ...]  # (K,) p_k, which add up to 1
    cells: Mapping[Place, tuple[Paired, ...]]  # (K,) in each; of F at w̄ K times the same

    def mean(self, function: Function, point: Point) -> Paired:
        return total(zip(self.shares, self.cells[function, point], strict=True))

    def gaps(self, name: str) -> tuple[Paired, ...]:
        if name not in GAPS:
            raise UserError(f"there is no gap {name!r}; choose one of {', '.join(GAPS)}")
        first, second = (self.cells[place] for place in GAPS[name])
        return tuple(difference(one, other) for one, other in zip(first, second, strict=True))

    def gap(self, name: str) -> Paired:
        return total(zip(self.shares, self.gaps(name), strict=True))


def flatness_gap(
    quantity: Quantity, shares: Sequence[float], cells: Mapping[Place, Sequence[Paired]]
) -> FlatnessGap:
    """Return the table of a quantity from (K,) numbers in each cell, those of ``start`` where known."""
    missing = [place for pair in GAPS.values() for place in pair if place not in cells]
    if missing:
        raise UserError(f"the cell of the {missing[0][0]} function at the {missing[0][1]} weights is missing")
    check_shares(shares)
    wrong = [place for place, found in cells.items() if len(found) != len(shares)]
    if wrong:
        raise UserError(f"the cell {wrong[0]} has {len(cells[wrong[0]])} numbers for {len(shares)} clients")
    return FlatnessGap(quantity, tuple(shares), {place: tuple(found) for place, found in cells.items()})


def check_shares(shares: Sequence[float]) -> None:
    if not shares or min(shares) < 0 or abs(sum(shares) - 1) > 1e-9:
        raise UserError(f"the clients' shares {tuple(shares)} must be at least 0 and add up to 1")
