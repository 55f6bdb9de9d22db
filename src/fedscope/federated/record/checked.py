"""A checked method: the functions of other packages, whose faults name the method, the field and the line."""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import fields, replace
from functools import partial, wraps
from types import TracebackType
from typing import Any

from fedscope.errors import UserError
from fedscope.factories import reason
from fedscope.federated.record.method import Method
from fedscope.federated.record.returns import Check, OddError, returns


class MethodError(UserError):
    """A fault in a function of a method; the message names the method and the field."""


def checked(method: Method) -> Method:
    """Return the method with each function of another package checked wherever it is called.

    A :class:`MethodError` is raised there for what the function raises, but a :class:`UserError`, and for a
    value of another type, shape or dtype than the field takes.
    """
    changed: dict[str, Any] = {}
    for part in fields(method):
        value, check = getattr(method, part.name), returns(method).get(part.name)
        if check is None or not value:
            continue
        one = partial(_checked, method, check)
        if isinstance(value, tuple):
            changed[part.name] = tuple(one(part.name, function) for function in value)
        elif isinstance(value, Mapping):
            changed[part.name] = {
                name: one(f"{part.name}[{name!r}]", function) for name, function in value.items()
            }
        else:
            changed[part.name] = one(part.name, value)
    return replace(method, **changed)


def check_all_returned(method: str, field: str, declared: Collection[str], returned: Collection[str]) -> None:
    missing = [name for name in declared if name not in returned]
    if missing:
        has = f"they return {', '.join(returned)}" if returned else "they return none"
        raise MethodError(
            f"method {method}: none of its functions returns {missing[0]!r}, which is in {field}; {has}"
        )


def _checked(method: Method, check: Check, field: str, function: Callable[..., Any]) -> Callable[..., Any]:
    plain = function
    while isinstance(plain, partial):
        plain = plain.func
    module = getattr(plain, "__module__", None) or type(plain).__module__
    if module.partition(".")[0] == "fedscope":
        return function
    name = f"{module}.{getattr(plain, '__qualname__', type(plain).__qualname__)}"
    where = f"method {method.name}: {field} ({name})"
    passing = (ValueError, UserError) if field == "single_image_checks" else (UserError,)

    @wraps(plain)
    def call(*arguments: Any) -> Any:
        with _faults(where, module, passing):
            found = function(*arguments)
            if field == "forward_context" and isinstance(found, AbstractContextManager):
                return _Context(found, partial(_faults, where, module))
        try:
            return check(arguments, found)
        except OddError as odd:
            raise MethodError(f"{where} returned {odd.found}; it takes {odd.takes}") from None

    return call


@contextmanager
def _faults(where: str, module: str, passing: tuple[type[Exception], ...] = (UserError,)) -> Iterator[None]:
    try:
        yield
    except passing:
        raise
    except Exception as error:  # whatever another package's function raises
        raise MethodError(f"{where} fails: {reason(error, module)}") from error


class _Context(AbstractContextManager[Any]):
    """Another package's context; what happens inside its block is not its fault."""

    def __init__(
        self, manager: AbstractContextManager[Any], faults: Callable[[], AbstractContextManager[None]]
    ):
        self._manager, self._faults = manager, faults

    def __enter__(self) -> Any:
        with self._faults():
            return self._manager.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        with self._faults():
            return self._manager.__exit__(kind, error, trace)
