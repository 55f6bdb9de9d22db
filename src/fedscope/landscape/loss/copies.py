"""Copies of a network, also of one that several processes share by sharded parameters.

PyTorch 2.13 has no second derivative of ``fully_shard``'s forward pass: its hooks put gathered weights in the
place of those that are differentiated in. A copy without hooks, of whole weights, has all of them.
"""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain

import torch.distributed as dist
from torch import Tensor, nn
from torch.jit import ScriptModule
from torch.nn.parameter import is_lazy

from fedscope.errors import UserError
from fedscope.landscape.loss.trees import within

_FLAT = "FullyShardedDataParallel"
_HOOKS = (
    "_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks",
    "_state_dict_pre_hooks", "_state_dict_hooks", "_load_state_dict_pre_hooks", "_load_state_dict_post_hooks",
)  # fmt: skip
_STATE = "__composable_api_state_key"  # begins the names of what fully_shard keeps in a module


def whole_copy(model: nn.Module) -> nn.Module:
    """Return a deep copy of a network that this process can evaluate alone; the network is not touched.

    That is ``copy.deepcopy``, but tensors that a network computed from others and keeps (``weight_norm``)
    are cut from what they were computed of. Parameters and buffers that are sharded (``DTensor``: by
    ``fully_shard``, ``parallelize_module``, ``distribute_tensor``) come out whole, the hooks that gather
    or distribute them are gone: every process of their mesh must call, and has n numbers more.

    Raises:
        UserError: a network in ``FullyShardedDataParallel``, which keeps no tensor by its name.
    """
    if any(type(module).__name__ == _FLAT for module in model.modules()):
        raise UserError(
            f"{_FLAT} keeps no parameter by its name; shard the network by fully_shard, or load its full "
            "state dict into one that is not sharded"
        )
    kept = (t for module in model.modules() for t in within(list(vars(module).values())) if not t.is_leaf)
    memo: dict[int, object] = {id(t): t.detach().clone() for t in kept}
    if not dist.is_available() or not dist.is_initialized() or not _is_sharded(model):
        return copy.deepcopy(model, memo)
    memo |= {id(t): _whole(t) for t in chain(model.parameters(), model.buffers()) if _is_shard(t)}
    for module in model.modules():
        hooks = chain.from_iterable(getattr(module, name).values() for name in _HOOKS)
        memo |= {id(hook): _nothing for hook in hooks if _is_distributed(hook)}
        memo |= {id(state): {} for name, state in vars(module).items() if name.startswith(_STATE)}
    with _own_classes(model):
        return copy.deepcopy(model, memo)


def check_made(model: nn.Module) -> None:
    lazy = next((name for name, p in model.named_parameters() if is_lazy(p)), None)
    if lazy:
        raise UserError(f"{lazy} has no shape before the first batch: call the model once on some inputs")
    scripted = (name or "the model" for name, m in model.named_modules() if isinstance(m, ScriptModule))
    if found := next(scripted, None):
        raise UserError(
            f"{found} is scripted or traced (torch.jit), of which no copy can be evaluated with other "
            "weights: give the module that it was made of"
        )


def _is_sharded(model: nn.Module) -> bool:
    from torch.distributed.fsdp import FSDPModule

    return any(isinstance(module, FSDPModule) for module in model.modules()) or any(
        map(_is_shard, chain(model.parameters(), model.buffers()))
    )


def _is_shard(tensor: Tensor) -> bool:
    from torch.distributed.tensor import DTensor

    return isinstance(tensor, DTensor)


def _whole(tensor: Tensor) -> Tensor:
    found: Tensor = tensor.detach().full_tensor()  # type: ignore[attr-defined]
    if not isinstance(tensor, nn.Parameter):
        return found
    return nn.Parameter(found, requires_grad=tensor.requires_grad)


def _is_distributed(hook: object) -> bool:
    return str(getattr(hook, "__module__", "")).startswith("torch.distributed.")


def _nothing(*_: object, **__: object) -> None:
    """Stand where a hook was."""


@contextmanager
def _own_classes(model: nn.Module) -> Iterator[None]:
    """Give modules back the classes that ``fully_shard`` replaced, which refuse to be copied, for a while."""
    from torch.distributed.fsdp import FSDPModule

    replaced = [(module, type(module)) for module in model.modules() if isinstance(module, FSDPModule)]
    try:
        for module, kind in replaced:
            module.__class__ = kind.__mro__[kind.__mro__.index(FSDPModule) + 1]
        yield
    finally:
        for module, kind in replaced:
            module.__class__ = kind
