"""How two methods are added field by field: each field of the record is declared with its rule.

``at_most_one``  a slot: two methods that fill it differently do not go together
``chain``        a tuple: first the one's entries, then the other's
``union``        a mapping: the entries of both
``any_of``       a flag: whether either sets it
``joined``       a text: both, each once
"""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from fedscope.errors import UserError

# (one method's name, its value, the other's name, its value) → the sum's value
Rule = Callable[[str, Any, str, Any], Any]


@dataclass(frozen=True)
class _Slot:
    """The rule of a field that one method may fill; ``what`` says in words what it holds."""

    what: str

    def __call__(self, mine: str, a: Any, theirs: str, b: Any) -> Any:
        if a is not None and b is not None and a != b:
            raise UserError(
                f"{mine} and {theirs} each bring {self.what}; a method has one: leave one of them out"
            )
        return b if a is None else a


def at_most_one(what: str) -> Any:
    """Declare a slot, empty unless it is filled; ``what`` says in words what it holds."""
    return field(default=None, metadata={"rule": _Slot(what)})


def chain() -> Any:
    """Declare a tuple whose entries add up."""
    return _declared(tuple, lambda _, a, __, b: a + b)


def union() -> Any:
    """Declare a mapping whose entries add up."""
    return _declared(dict, lambda _, a, __, b: {**a, **b})


def any_of() -> Any:
    """Declare a flag that holds for a sum if it holds for a part."""
    return _declared(bool, lambda _, a, __, b: a or b)


def joined(separator: str, *, required: bool = False) -> Any:
    """Declare a text; that of a sum has both, each once, and the separator between them."""

    def rule(_: str, a: str, __: str, b: str) -> str:
        return separator.join(dict.fromkeys(text for text in (a, b) if text))

    return field(metadata={"rule": rule}) if required else _declared(str, rule)


def added(mine: Any, theirs: Any) -> dict[str, Any]:
    """Return the fields of the sum of two records, by name.

    Raises:
        UserError: both fill a slot that takes one.
    """
    return {
        part.name: part.metadata["rule"](
            mine.name, getattr(mine, part.name), theirs.name, getattr(theirs, part.name)
        )
        for part in dataclasses.fields(mine)
    }


def _declared(default: Callable[[], Any], rule: Rule) -> Any:
    return field(default_factory=default, metadata={"rule": rule})
