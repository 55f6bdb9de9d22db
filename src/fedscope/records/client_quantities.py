"""The means over the clients of a round, once each: as curves draw and name them, and as recipes do."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Literal, get_args

from fedscope.records.clients_record import QUANTITIES, SYMBOLS, Amount, ClientsRecord, Quantity
from fedscope.records.estimates import Entry, EstimateEntry
from fedscope.records.quantities import OVER_PAIRS

RoundsKind = Literal["gap", "alignment", "drift", "diagonals"]
ROUNDS_KINDS: tuple[RoundsKind, ...] = get_args(RoundsKind)
Term = Literal["measured", "first", "second", "remainder"]
GAP_NAMES = {
    "discrepancy": "F(w̄) − f_k(w_k)",
    "averaging_own": "f_k(w̄) − f_k(w_k)",
    "averaging_global": "F(w̄) − F(w_k)",
    "function_at_own": "F(w_k) − f_k(w_k)",
    "function_at_global": "F(w̄) − f_k(w̄)",
}
"""Each gap as the difference that it is."""
TERMS: dict[Term, str] = {
    "measured": "measured", "first": "first order", "second": "second order", "remainder": "remainder",
}  # fmt: skip
"""The cost of averaging and the terms of its expansion."""


@dataclass(frozen=True)
class ClientQuantity:
    """A mean over the clients of a round; None where it was not measured."""

    panel: str  # that it is drawn in
    line: str  # there; empty: it stands alone
    of: Callable[[ClientsRecord], Entry | None]
    kind: RoundsKind | None = None  # of figures that draw it by round; None: none does
    main: bool = False  # in the table; and drawn where several runs are compared, in a panel of its own
    recipe: tuple[str, str] | None = None  # its name and title in recipes; None: it is in none

    @property
    def name(self) -> str:
        return f"{self.panel}: {self.line}" if self.line else self.panel


def gap(record: ClientsRecord, *, quantity: Quantity, name: str) -> Amount | None:
    """Return a flatness gap, one of ``GAPS``."""
    found = record.of(quantity)
    return found.gap(name).mean if found else None


# a side is ``own``, by each client's own loss or Hessian, or ``overall``, by the global one
def _aligned(record: ClientsRecord, *, side: str, number: str) -> Amount | None:
    """Return the curvature along the updates [loss/w²], or their share in the top space."""
    return getattr(getattr(record.alignment, side), number) if record.alignment else None


def _cost(record: ClientsRecord, *, side: str, term: str) -> Amount | None:
    """Return the cost of averaging, or a term of its expansion [loss]."""
    return getattr(getattr(record.averaging, side).mean, term) if record.averaging else None


def _drift(record: ClientsRecord) -> EstimateEntry | None:
    """Return Σ p_k ‖w_k − θ‖² [w²], θ the round's result, without an error; of updates from it alone.

    Where θ is the mean of the uploads, that is their spread; where a server rule goes beyond the mean or an
    average is kept, it has the way from the mean to θ in it.
    """
    found = record.alignment
    if found is None or found.anchor != "global":
        return None
    lengths = (one.length for one in found.clients)
    total = math.fsum(one.share * length**2 for one, length in zip(record.clients, lengths, strict=True))
    return EstimateEntry(value=total, stderr=0.0, resolved=True)


def _barrier(record: ClientsRecord) -> EstimateEntry | None:
    return record.barriers.mean if record.barriers else None


def _rows() -> Iterator[ClientQuantity]:
    yield ClientQuantity("drift", "", _drift, recipe=("drift", "drift"))
    for quantity in QUANTITIES:
        title = f"gap of {'' if quantity == 'lambda_max' else 'the '}{SYMBOLS[quantity]}"
        for name in ("discrepancy", "averaging_global", "function_at_own"):  # the first: sum of the others
            main, of = name == "discrepancy", partial(gap, quantity=quantity, name=name)
            recipe = (f"gap_{quantity}", title) if main else None
            yield ClientQuantity(f"{SYMBOLS[quantity]} gap", GAP_NAMES[name], of, "gap", main, recipe)
    for number, panel in (("rayleigh", "curvature along Δ"), ("share", "share in top space")):
        for side, name in (("own", "own Hessian"), ("overall", "global Hessian")):
            recipe = ("along_updates", "curvature along updates")
            known = recipe if (side, number) == ("overall", "rayleigh") else None
            of_updates = partial(_aligned, side=side, number=number)
            yield ClientQuantity(panel, name, of_updates, "alignment", True, known)
    in_recipes: dict[Term, tuple[str, str]] = {
        "measured": ("averaging", "cost of averaging"),
        "second": ("averaging_second", "its second order"),
        "remainder": ("averaging_remainder", "its remainder"),
    }
    for side, function in (("overall", "F"), ("own", "own f_k")):
        for term, said in TERMS.items():
            if (side, term) != ("overall", "first"):  # it is zero
                cost, known = partial(_cost, side=side, term=term), in_recipes.get(term)
                main, recipe = term == "measured", known if side == "overall" else None
                yield ClientQuantity(f"cost of {function}", said, cost, "drift", main, recipe)
    for one in OVER_PAIRS:
        if one.is_compared and one.name.endswith("parameter"):
            yield ClientQuantity(one.mean or "", "", one.of, "diagonals", True)
    title = "barrier of two clients"
    yield ClientQuantity(title, "", _barrier, recipe=("barrier", title))


CLIENT_QUANTITIES = tuple(_rows())
