"""The decided differences between records, in sentences, and the record that is best in a quantity."""

import math
from collections import Counter
from collections.abc import Sequence
from itertools import combinations

from fedscope.errors import UserError
from fedscope.figures.digits import format_estimate
from fedscope.records.differences import Difference, differences, differences_to_first, judged
from fedscope.records.hessian_record import HessianRecord
from fedscope.records.quantities import HEADLINES, Quantity


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


def best(records: Sequence[HessianRecord]) -> dict[Quantity, int]:
    """Return the quantities in which one record is decidedly better than every other, and its place.

    A quantity that one record lacks is left out; so are all where not all have the same samples.
    """
    found: dict[Quantity, int] = {}
    if len(comparable(records)) < len(records):
        return found
    pairs = list(combinations(range(len(records)), 2))
    rows = judged([differences(records[place], records[other]) for place, other in pairs])
    for quantity in HEADLINES:
        won = Counter(
            other if one.verdict == quantity.better else place
            for (place, other), row in zip(pairs, rows, strict=True)
            for one in row
            if one.quantity == quantity.symbol and one.verdict in ("lower", "higher")
        )
        for place, times in won.items():
            if times == len(records) - 1:
                found[quantity] = place
    return found


def sentences(records: Sequence[HessianRecord], names: Sequence[str]) -> list[tuple[str, str]]:
    rows = differences_to_first(records)
    found = []
    for quantity in HEADLINES if rows else ():
        pairs = [
            (name, one)
            for name, row in zip(names[1:], rows, strict=True)
            for one in row
            if one.quantity == quantity.symbol and not math.isnan(one.value)
        ]
        clauses = _clauses(quantity, names[0], pairs)
        shown = zip(names, map(quantity.compared, records), strict=True)
        if unclear := [name for name, one in shown if one and not one.is_resolved]:
            clauses.append(f"unresolved for {_listed(unclear)}")
        if clauses:
            found.append((quantity.symbol, "; ".join(clauses) + "."))
    return found


def _clauses(quantity: Quantity, reference: str, pairs: Sequence[tuple[str, Difference]]) -> list[str]:
    clauses = []
    said = (*(quantity.words or ()), "undecided against {reference}: {}")
    for verdict, words in zip(("lower", "higher", "undecided"), said, strict=True):
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


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
