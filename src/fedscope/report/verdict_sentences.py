"""The decided differences between records, in sentences, and the record that is best in a quantity."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from fedscope.errors import UserError
from fedscope.figures.digits import format_estimate
from fedscope.records.differences import Difference, differences, differences_to_first, judged
from fedscope.records.estimates import Symbol
from fedscope.records.hessian_record import HessianRecord


@dataclass(frozen=True)
class Quantity:
    """A headline quantity, with words for lower and higher values; ``{}`` stands for the names."""

    better: str  # the verdict that is good
    lower: str
    higher: str
    symbol: Symbol | None = None  # of the mean over pairs of clients, in the reading of tensors


_FLAT = Quantity("lower", "{} {be} flatter than {reference}", "{} {be} sharper than {reference}")
_CLIENTS = "the clients of {} %s than those of {reference}"
QUANTITIES = {
    "λ_max": _FLAT,
    "trace": _FLAT,
    "H_N (tensor)": Quantity("lower", _CLIENTS % "differ less", _CLIENTS % "differ more", "H_N"),
    "H_D (tensor)": Quantity("higher", _CLIENTS % "agree less", _CLIENTS % "agree more", "H_D"),
}


def comparable(records: Sequence[HessianRecord]) -> list[HessianRecord]:
    """Return the first record and those with the same samples and quantities."""
    found = list(records[:1])
    for other in records[1:]:
        try:
            differences(records[0], other)
        except UserError:
            continue
        found.append(other)
    return found


def best(records: Sequence[HessianRecord]) -> dict[str, int]:
    """Return the quantities in which one record is decidedly better than every other, and its place.

    A quantity that one record lacks is left out; so are all where not all have the same samples.
    """
    found: dict[str, int] = {}
    if len(comparable(records)) < len(records):
        return found
    pairs = list(combinations(range(len(records)), 2))
    rows = judged([differences(records[place], records[other]) for place, other in pairs])
    for name, quantity in QUANTITIES.items():
        won = Counter(
            other if one.verdict == quantity.better else place
            for (place, other), row in zip(pairs, rows, strict=True)
            for one in row
            if one.quantity == name and one.verdict in ("lower", "higher")
        )
        for place, times in won.items():
            if times == len(records) - 1:
                found[name] = place
    return found


def sentences(records: Sequence[HessianRecord], names: Sequence[str]) -> list[tuple[str, str]]:
    rows = differences_to_first(records)
    found = []
    for title, quantity in QUANTITIES.items() if rows else ():
        pairs = [
            (name, one)
            for name, row in zip(names[1:], rows, strict=True)
            for one in row
            if one.quantity == title and not math.isnan(one.value)
        ]
        clauses = _clauses(quantity, names[0], pairs)
        if unclear := [name for name, r in zip(names, records, strict=True) if _unresolved(r, quantity)]:
            clauses.append(f"unresolved for {_listed(unclear)}")
        if clauses:
            found.append((title, "; ".join(clauses) + "."))
    return found


def _clauses(quantity: Quantity, reference: str, pairs: Sequence[tuple[str, Difference]]) -> list[str]:
    clauses = []
    for verdict, words in (
        ("lower", quantity.lower),
        ("higher", quantity.higher),
        ("undecided", "undecided against {reference}: {}"),
    ):
        named = [
            f"{name} ({_signed(one)}{f'; {one.reason}' if one.reason else ''})"
            for name, one in pairs
            if one.verdict == verdict
        ]
        if named:
            be = "is" if len(named) == 1 else "are"
            clauses.append(words.format(_listed(named), be=be, reference=reference))
    return clauses


def _signed(difference: Difference) -> str:
    return "+" * (difference.value > 0) + format_estimate(
        difference.value, difference.stderr, within=difference.bound
    )


def _unresolved(record: HessianRecord, quantity: Quantity) -> bool:
    if not quantity.symbol or not record.cross_client:
        return False
    mean = record.cross_client.compared(quantity.symbol, "tensor")
    return mean is not None and not mean.resolves(quantity.symbol)


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
