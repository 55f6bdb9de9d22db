"""Fields of requests that are options of commands: help, group, bounds and needs stand beside the field.

    top_k: int = option(1, "Largest eigenvalues.", "Most used", bounds=Bounds(least=1))

From that come the command's option and its place in the help, what is refused of a value, on the command line
as in Python, and the refusal of an option that has no effect beside others.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, fields, is_dataclass
from math import inf, isfinite
from types import NoneType
from typing import Annotated, Any, Generic, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

from fedscope.errors import UserError, check_choices

Values = TypeVar("Values")
Asked = TypeVar("Asked")
T = TypeVar("T")
USED = "Most used"  # the first group of every command's help


class Rule(NamedTuple, Generic[Values]):
    """When parameters have an effect, and what the refusal says otherwise."""

    parameters: str
    have_effect: Callable[[Values], object]
    why: str  # {0} stands for the values


class Need(NamedTuple):
    """When a field of a request has an effect: a rule without the field's name."""

    have_effect: Callable[[Any], object]
    why: str


class Bounds(NamedTuple):
    """Between what a number lies."""

    least: float = -inf
    most: float = inf
    above: float = -inf
    below: float = inf

    def holds(self, value: float) -> bool:
        return self.least <= value <= self.most and self.above < value < self.below

    def __str__(self) -> str:
        words = ("at least", "at most", "above", "below")
        return " and ".join(f"{word} {one:g}" for word, one in zip(words, self, strict=True) if isfinite(one))


_ANY = Bounds()


class OptionField(NamedTuple):
    """A field of a request that is an option."""

    name: str
    kind: Any  # its type; of ``T | None`` that of T
    default: Any
    help: str
    group: str
    named: str  # the flag without dashes; empty: the field's name
    metavar: str | None
    bounds: Bounds
    needs: Sequence[Need]

    @property
    def flag(self) -> str:
        return f"--{(self.named or self.name).replace('_', '-')}"

    @property
    def parameter(self) -> str:
        """What click calls it."""
        return self.flag.lstrip("-").replace("-", "_")


def option(
    default: T, help: str, group: str, flag: str = "", *, metavar: str | None = None,
    bounds: Bounds = _ANY, needs: Sequence[Need] = (),
) -> T:  # fmt: skip
    """Return a field of a request that is an option of its command."""
    found: T = field(default=default, metadata={"option": (help, group, flag, metavar, bounds, needs)})
    return found


def own_fields(request: type[Any]) -> list[OptionField]:
    hints = get_type_hints(request)
    return [
        OptionField(one.name, plain_type(hints[one.name]), one.default, *one.metadata["option"])
        for one in fields(request)
        if "option" in one.metadata
    ]


def option_fields(request: type[Any]) -> list[OptionField]:
    """Return the options of a request and of those inside it."""
    return [
        *own_fields(request),
        *(one for inside in _inside(request).values() for one in option_fields(inside)),
    ]


def asked(request: type[Asked], values: Mapping[str, Any], **more: Any) -> Asked:
    """Return the request that the values of its options make, with ``more`` of its fields."""
    inside = {name: asked(kind, values) for name, kind in _inside(request).items()}
    own = {one.name: values[one.parameter] for one in own_fields(request) if one.parameter in values}
    return request(**{**inside, **own, **more})


def check_fields(request: object) -> None:
    """Refuse a value of a request that is none of its field's choices, or beyond its bounds."""
    check_choices(type(request), **vars(request))
    for one in own_fields(type(request)):
        value = getattr(request, one.name)
        if isinstance(value, int | float) and not one.bounds.holds(value):
            raise UserError(f"{one.name} is {value:g}; give a number {one.bounds}")


def check_effects(request: object, given: Mapping[str, str]) -> None:
    """Refuse options without effect, among those ``given``: each with its flag."""
    needing = dict[Need, list[str]]()
    for one in option_fields(type(request)):
        for need in one.needs:
            needing.setdefault(need, []).append(one.parameter)
    check([Rule(" ".join(names), *need) for need, names in needing.items()], given, request)


def check(rules: Sequence[Rule[Values]], given: Mapping[str, str], values: Values) -> None:
    """Refuse parameters without effect, among those ``given``: each with its flag."""
    for rule in rules:
        flags = [given[name] for name in rule.parameters.split() if name in given]
        if flags and not rule.have_effect(values):
            why, needed = rule.why.format(values), rule.why.partition("without ")[2]
            have, it = ("have", "them") if flags[1:] else ("has", "it")
            add = f", or add {needed}" if needed else ""
            raise UserError(f"{', '.join(flags)} {have} no effect {why}; leave {it} out{add}")


def _inside(request: type[Any]) -> dict[str, type[Any]]:
    hints: dict[str, type[Any]] = get_type_hints(request)
    return {name: kind for name, kind in hints.items() if is_dataclass(kind)}


def plain_type(annotation: Any) -> Any:
    """Return the type of an option: of ``T | None`` and of ``Annotated[T, …]`` that of T."""
    parts = get_args(annotation)
    if get_origin(annotation) is Annotated or (parts and parts[-1] is NoneType):
        return plain_type(parts[0])
    return annotation
