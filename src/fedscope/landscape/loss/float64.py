"""A loss evaluated in float64 for a while, whatever the network's own precision."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from fedscope.errors import UserError
from fedscope.landscape.loss.flat_loss import FlatLoss
from fedscope.landscape.loss.streamed import Batch
from fedscope.landscape.loss.trees import mapped

Found = TypeVar("Found")
_CASTS = (Tensor.float, Tensor.half, Tensor.bfloat16, Tensor.to, Tensor.type, Tensor.type_as)


@contextmanager
def in_float64(loss: FlatLoss) -> Iterator[None]:
    """Hold weights and buffers of the loss's network in float64; its own bits are put back.

    Graphs that were made before end with it. ``loss.dtype`` and ``loss.center`` are of float64 within.
    """
    tensors = (*loss.model.parameters(), *loss.model.buffers())
    own = [(tensor, tensor.data) for tensor in tensors if tensor.is_floating_point()]
    before = loss.dtype, loss.center
    try:
        for tensor, data in own:
            tensor.data = data.double()
        loss.dtype, loss.center = torch.float64, loss.center.double()
        yield
    finally:
        for tensor, data in own:
            tensor.data = data
        loss.dtype, loss.center = before


def precisely(loss: FlatLoss, batch: Batch, function: Callable[[Batch], Found]) -> Found:
    """Return what a function finds for some samples, in float64 where the network and its loss run in it.

    The network is evaluated as it is, in no faster form, and the function sees ``loss.dtype``.
    """
    with torch.enable_grad(), loss.exact(), loss.plainly():
        try:
            with in_float64(loss), KeptPrecision():
                return function((mapped(_doubled, batch[0]), mapped(_doubled, batch[1])))
        except UserError:
            raise
        except Exception:  # whatever a network raises that runs in its own precision alone
            return function(batch)


class KeptPrecision(TorchFunctionMode):
    """Within it a tensor of float64 stays one where a network would round it, to softmax in float32, say."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        first = args[0] if args else None
        if not isinstance(first, Tensor) or first.dtype != torch.float64:
            return func(*args, **kwargs)
        wanted = kwargs.get("dtype")
        if isinstance(wanted, torch.dtype) and wanted.is_floating_point:
            kwargs["dtype"] = torch.float64
        found = func(*args, **kwargs)
        if func not in _CASTS or not found.is_floating_point() or found.device != first.device:
            return found
        return first


def _doubled(tensor: Tensor) -> Tensor:
    return tensor.double() if tensor.is_floating_point() else tensor
