"""A checked method: the functions of other packages, whose faults name the method, the field and the line.

A function of fedscope's own is left as it is: its fault is fedscope's.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, fields, replace
from functools import partial, wraps
from types import TracebackType
from typing import Any

import torch
from torch import Tensor, nn

from fedscope.errors import UserError, suggestion
from fedscope.factories import reason
from fedscope.federated.record.method import Method, NetworkNeeds
from fedscope.federated.record.vectors import Vector
from fedscope.federated.record.views import Batch

RECALIBRATIONS = ("off", "report", "upload")


class MethodError(UserError):
    """A fault in a function of a method; the message names the method and the field."""


@dataclass(frozen=True)
class _OddError(Exception):
    """A return value that a field does not take."""

    found: str
    takes: str


def checked(method: Method) -> Method:
    """Return the method with each function of another package checked wherever it is called.

    A :class:`MethodError` is raised there for what the function raises, but a :class:`UserError`, and for a
    value of another type, shape or dtype than the field takes.
    """
    changed: dict[str, Any] = {}
    for part in fields(method):
        value, check = getattr(method, part.name), _returns(method).get(part.name)
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
    """Refuse vectors of ``field`` that no function returns.

    Raises:
        MethodError: there is one.
    """
    missing = [name for name in declared if name not in returned]
    if missing:
        has = f"they return {', '.join(returned)}" if returned else "they return none"
        raise MethodError(
            f"method {method}: none of its functions returns {missing[0]!r}, which is in {field}; {has}"
        )


Check = Callable[[tuple[Any, ...], Any], Any]  # the arguments, the value returned → the value


def _checked(method: Method, check: Check, field: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function, checked if it is not fedscope's own."""
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
        except _OddError as odd:
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


def _returns(method: Method) -> Mapping[str, Check]:
    """Return what each field's functions return: a check that gives the value, or raises ``_OddError``."""
    return {
        "network_needs": _needs,
        "checks": _anything,
        "single_image_checks": _anything,
        "random_start": _flag,
        "terms_see_personal": _flag,
        "equal_steps": _flag,
        "recalibration": _recalibration,
        "personal": partial(_tensor_names, _tensors_of),
        "masks": partial(_tensor_names, _tensors_of),
        "taps": partial(_tensor_names, _modules_of),
        "draws": _anything,
        "batch_transform": _batch,
        "forward_context": _context,
        "task_terms": _scalar,
        "notes": _labels,
        "parameter_terms": _scalar,
        "logits": lambda at, found: _tensor(found, at[0]),
        "ascent_loss": _scalar,
        "gradient_at": _gradient,
        "gradient_maps": lambda at, found: _tensor(found, at[0].parameters),
        "local_rate": _rate,
        "after_clip": lambda at, found: _tensor(found, at[0].parameters),
        "after_momentum": lambda at, found: _tensor(found, at[0].parameters),
        "each_step": lambda at, found: _vectors(found, at[0].state),
        "finish": partial(_finished, method.uploads),
        "server": _server,
        "server_notes": lambda at, found: _vectors(found, at[0].state),
        "sends": lambda at, found: _tensor(found, at[0].kept),
        "averages": lambda at, found: _tensor(found, at[0].model),
    }


def _anything(_: tuple[Any, ...], found: Any) -> Any:
    return found


def _flag(_: tuple[Any, ...], found: Any) -> Any:
    return _one(found, bool, "True or False")


def _recalibration(_: tuple[Any, ...], found: Any) -> Any:
    if found not in RECALIBRATIONS:
        raise _OddError(_said(found), f"one of {', '.join(RECALIBRATIONS)}")
    return found


def _needs(_: tuple[Any, ...], found: Any) -> Any:
    known = NetworkNeeds.__annotations__
    takes = f"a mapping with some of {', '.join(known)}"
    _one(found, Mapping, takes)
    odd = [key for key in found if key not in known]
    if odd:
        raise _OddError(f"one with {odd[0]!r}", takes)
    return found


def _batch(_: tuple[Any, ...], found: Any) -> Any:
    _one(found, Batch, "a Batch")
    if len(found.images) != len(found.labels):
        raise _OddError(
            f"{len(found.images)} images and {len(found.labels)} labels", "a Batch of as many labels"
        )
    return found


def _context(_: tuple[Any, ...], found: Any) -> Any:
    raise _OddError(_said(found), "a context manager")  # one is returned before it gets here


def _tensors_of(module: nn.Module) -> set[str]:
    return {name for name, _ in (*module.named_parameters(), *module.named_buffers())} | set(
        module.state_dict()
    )


def _modules_of(module: nn.Module) -> set[str]:
    return {before + name for name, _ in module.named_modules() for before in ("", "<")}


def _tensor_names(known: Callable[[nn.Module], set[str]], at: tuple[Any, ...], found: Any) -> Any:
    takes = "a list of names of the network's " + ("modules" if known is _modules_of else "tensors")
    if not isinstance(found, list | tuple):
        raise _OddError(_said(found), takes)
    names = known(at[0])
    odd = next((name for name in found if name not in names), None)
    if odd is not None:
        raise _OddError(f"a list with {odd!r}", takes + suggestion(str(odd), names))
    return found


def _labels(_: tuple[Any, ...], found: Any) -> Any:
    if not isinstance(found, list | tuple) or not all(isinstance(label, str) for label in found):
        raise _OddError(_said(found), "a list of labels, which are texts")
    return found


def _scalar(_: tuple[Any, ...], found: Any) -> Any:
    if not isinstance(found, Tensor) or found.shape != () or not found.is_floating_point():
        raise _OddError(_said(found), "a scalar: a tensor () of floating numbers")
    return found


def _tensor(found: Any, like: Tensor) -> Any:
    fits = isinstance(found, Tensor) and found.shape == like.shape
    if not fits or not found.is_floating_point() or found.device != like.device:
        raise _OddError(_said(found, like.device), f"a tensor {_shape(like.shape)} of floating numbers")
    return found


def _gradient(at: tuple[Any, ...], found: Any) -> Any:
    gradient, state = found if isinstance(found, tuple) and len(found) == 2 else (found, {})
    _tensor(gradient, at[1].parameters)
    _vectors(state, at[1].state)
    return found


def _rate(_: tuple[Any, ...], found: Any) -> Any:
    return _one(found, float, "a number: the factor of the rate")


def _vectors(found: Any, like: Mapping[str, Tensor]) -> Any:
    takes = f"a mapping with some of {', '.join(like)}" if like else "an empty mapping: no state is declared"
    _one(found, Mapping, takes)
    for name, vector in found.items():
        if name not in like:
            raise _OddError(f"{name!r}, which is not declared", takes + suggestion(str(name), like))
        try:
            _tensor(vector, like[name])
        except _OddError as odd:
            raise _OddError(f"for {name!r} {odd.found}", odd.takes) from None
    return found


def _finished(uploads: tuple[Vector, ...], at: tuple[Any, ...], found: Any) -> Any:
    (end,) = at
    _one(found, Mapping, "a mapping")
    sizes = {"parameters": end.parameters, "model": end.values, "number": end.relative_size}
    further = {vector.name: sizes.get(vector.scope) for vector in uploads}
    personal = [name for name, like in further.items() if like is None]  # of a size that is not known here
    like = {name: vector for name, vector in further.items() if vector is not None}
    _vectors({name: v for name, v in found.items() if name not in personal}, {**end.memory, **like})
    return found


def _server(at: tuple[Any, ...], found: Any) -> Any:
    (step,) = at
    if not isinstance(found, tuple) or len(found) != 2:
        raise _OddError(_said(found), "the model and the state: (tensor, mapping)")
    model, state = found
    _tensor(model, step.mean)
    _vectors(state, step.state)
    return found


def _one(found: Any, kind: Any, takes: str) -> Any:
    if not isinstance(found, kind):
        raise _OddError(_said(found), takes)
    return found


def _said(found: Any, device: torch.device | None = None) -> str:
    if isinstance(found, Tensor):
        elsewhere = f" on {found.device}" if device and found.device != device else ""
        return f"a tensor {_shape(found.shape)} of {str(found.dtype).removeprefix('torch.')}{elsewhere}"
    if isinstance(found, tuple):
        return f"a tuple of {len(found)}"
    return "nothing (None)" if found is None else f"{type(found).__name__} {found!r:.60}"


def _shape(shape: torch.Size) -> str:
    return str(tuple(shape))
