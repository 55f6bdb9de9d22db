"""How two methods are added field by field: each field of the record is declared with its rule and its type.

``at_most_one``  a slot: two methods that fill it differently do not go together
``chain``        a tuple: first the one's entries, then the other's
``union``        a mapping: the entries of both
``any_of``       a flag: whether either sets it
``joined``       a text: both, each once
"""

import dataclasses
from collections.abc import Callable, Mapping
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


FUNCTION = "function"  # the type of a field, or of its entries, that is called


def at_most_one(what: str, of: type | str = FUNCTION) -> Any:
    return field(default=None, metadata={"rule": _Slot(what), "holds": (None, of)})


def chain(of: type | str = FUNCTION) -> Any:
    return _declared(tuple, lambda _, a, __, b: a + b, of)


def union(of: type | str = FUNCTION) -> Any:
    return _declared(dict, lambda _, a, __, b: {**a, **b}, of)


def any_of() -> Any:
    return _declared(bool, lambda _, a, __, b: a or b, None)


def joined(separator: str, *, required: bool = False) -> Any:
    def rule(_: str, a: str, __: str, b: str) -> str:
        return separator.join(dict.fromkeys(text for text in (a, b) if text))

    metadata = {"rule": rule, "holds": (str, None)}
    return field(metadata=metadata) if required else field(default="", metadata=metadata)


def added(mine: Any, theirs: Any) -> dict[str, Any]:
    return {
        part.name: part.metadata["rule"](
            mine.name, getattr(mine, part.name), theirs.name, getattr(theirs, part.name)
        )
        for part in dataclasses.fields(mine)
    }


def check_types(record: Any) -> None:
    for part in dataclasses.fields(record):
        value, (whole, entry) = getattr(record, part.name), part.metadata["holds"]
        wrong = _wrong(value, whole, entry)
        if wrong:
            name = record.name if isinstance(record.name, str) else "a record"
            mend = (
                "; a comma after the one entry makes it a tuple"
                if whole is tuple and _is(value, entry)
                else ""
            )
            raise UserError(f"method {name}: {part.name} takes {_said(whole, entry)}, not {wrong}{mend}")


def _wrong(value: Any, whole: Any, entry: type | str | None) -> str:
    if whole is None:
        return "" if value is None or _is(value, entry) else _found(value)
    if not isinstance(value, Mapping if whole is dict else whole):
        return _found(value)
    if entry is None:
        return ""
    entries = value.values() if whole is dict else value
    keys = [key for key in value if not isinstance(key, str)] if whole is dict else []
    odd = keys or [one for one in entries if not _is(one, entry)]
    return f"one with {_found(odd[0])}" if odd else ""


def _is(value: Any, kind: type | str | None) -> bool:
    return callable(value) if not isinstance(kind, type) else isinstance(value, kind)


def _found(value: Any) -> str:
    return f"{type(value).__name__} {value!r:.60}"


def _said(whole: type | None, entry: type | str | None) -> str:
    one = entry.__name__ if isinstance(entry, type) else "function"
    names = {"str": "text", "bool": "true or false"}
    one = names.get(one, one)
    if whole is tuple:
        return f"a tuple of {one}s"
    if whole is dict:
        return f"a mapping from texts to {one}s"
    return f"a {one}" if whole is None else {str: "a text", bool: "true or false"}[whole]


def _declared(default: Callable[[], Any], rule: Rule, of: type | str | None) -> Any:
    return field(default_factory=default, metadata={"rule": rule, "holds": (default, of)})
