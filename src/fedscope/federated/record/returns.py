"""What the functions of a method return: a check for each field of its record."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from fedscope.errors import suggestion
from fedscope.federated.record.method import Method, NetworkNeeds
from fedscope.federated.record.vectors import Vector
from fedscope.federated.record.views import Batch

RECALIBRATIONS = ("off", "report", "upload")
Check = Callable[[tuple[Any, ...], Any], Any]  # the arguments, the value returned → the value


@dataclass(frozen=True)
class OddError(Exception):
    """A return value that a field does not take."""

    found: str
    takes: str


def returns(method: Method) -> Mapping[str, Check]:
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
        "round_rates": _rate,
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
        raise OddError(_said(found), f"one of {', '.join(RECALIBRATIONS)}")
    return found


def _needs(_: tuple[Any, ...], found: Any) -> Any:
    known = NetworkNeeds.__annotations__
    takes = f"a mapping with some of {', '.join(known)}"
    _one(found, Mapping, takes)
    odd = [key for key in found if key not in known]
    if odd:
        raise OddError(f"one with {odd[0]!r}", takes)
    return found


def _batch(_: tuple[Any, ...], found: Any) -> Any:
    _one(found, Batch, "a Batch")
    if len(found.images) != len(found.labels):
        raise OddError(
            f"{len(found.images)} images and {len(found.labels)} labels", "a Batch of as many labels"
        )
    return found


def _context(_: tuple[Any, ...], found: Any) -> Any:
    raise OddError(_said(found), "a context manager")  # one is returned before it gets here


def _tensors_of(module: nn.Module) -> set[str]:
    return {name for name, _ in (*module.named_parameters(), *module.named_buffers())} | set(
        module.state_dict()
    )


def _modules_of(module: nn.Module) -> set[str]:
    return {before + name for name, _ in module.named_modules() for before in ("", "<")}


def _tensor_names(known: Callable[[nn.Module], set[str]], at: tuple[Any, ...], found: Any) -> Any:
    takes = "a list of names of the network's " + ("modules" if known is _modules_of else "tensors")
    if not isinstance(found, list | tuple):
        raise OddError(_said(found), takes)
    names = known(at[0])
    odd = next((name for name in found if name not in names), None)
    if odd is not None:
        raise OddError(f"a list with {odd!r}", takes + suggestion(str(odd), names))
    return found


def _labels(_: tuple[Any, ...], found: Any) -> Any:
    if not isinstance(found, list | tuple) or not all(isinstance(label, str) for label in found):
        raise OddError(_said(found), "a list of labels, which are texts")
    return found


def _scalar(_: tuple[Any, ...], found: Any) -> Any:
    if not isinstance(found, Tensor) or found.shape != () or not found.is_floating_point():
        raise OddError(_said(found), "a scalar: a tensor () of floating numbers")
    return found


def _tensor(found: Any, like: Tensor) -> Any:
    fits = isinstance(found, Tensor) and found.shape == like.shape
    if not fits or not found.is_floating_point() or found.device != like.device:
        raise OddError(_said(found, like.device), f"a tensor {_shape(like.shape)} of floating numbers")
    return found


def _gradient(at: tuple[Any, ...], found: Any) -> Any:
    gradient, state = found if isinstance(found, tuple) and len(found) == 2 else (found, {})
    _tensor(gradient, at[1].parameters)
    _vectors(state, at[1].state)
    return found


def _rate(_: tuple[Any, ...], found: Any) -> Any:
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise OddError(_said(found), "a number: the factor of the rate")
    return found


def _vectors(found: Any, like: Mapping[str, Tensor]) -> Any:
    takes = f"a mapping with some of {', '.join(like)}" if like else "an empty mapping: no state is declared"
    _one(found, Mapping, takes)
    for name, vector in found.items():
        if name not in like:
            raise OddError(f"{name!r}, which is not declared", takes + suggestion(str(name), like))
        try:
            _tensor(vector, like[name])
        except OddError as odd:
            raise OddError(f"for {name!r} {odd.found}", odd.takes) from None
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
        raise OddError(_said(found), "the model and the state: (tensor, mapping)")
    model, state = found
    _tensor(model, step.mean)
    _vectors(state, step.state)
    return found


def _one(found: Any, kind: Any, takes: str) -> Any:
    if not isinstance(found, kind):
        raise OddError(_said(found), takes)
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
