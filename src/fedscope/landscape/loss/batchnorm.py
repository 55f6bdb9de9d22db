"""What BatchNorm does while curvature is measured: an explicit, recorded choice.

``eval`` uses the running statistics stored in the checkpoint. ``recalibrate`` first re-estimates them on
the given batches, as averaged weights need. ``batch`` uses the statistics of the batch itself; the loss is
then no longer a mean over samples, so it is defined for a single batch only.
"""

import logging
from collections import Counter
from collections.abc import Callable
from typing import get_args
from weakref import WeakValueDictionary

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from fedscope.choices import BatchNormMode
from fedscope.errors import UserError
from fedscope.landscape.loss.batches import Batches
from fedscope.landscape.loss.copies import whole_copy
from fedscope.landscape.loss.trees import arguments, cloned, count

_LOG = logging.getLogger("fedscope")
_TOLD = WeakValueDictionary[int, nn.Module]()  # by their identity: a module need have no hash


def frozen_copy(model: nn.Module, *, bn: BatchNormMode = "eval", batches: Batches) -> nn.Module:
    """Return a deep copy of ``model`` fit for repeated, identical evaluations; ``model`` is not touched.

    In the copy dropout is off, no parameter requires a gradient, and BatchNorm acts as ``bn`` says.

    Args:
        model: any module; its parameters' device and dtype must suit ``batches``.
        bn: ``eval``, ``recalibrate`` or ``batch``.
        batches: the samples to be analysed; read by ``recalibrate`` only.

    Raises:
        UserError: an unknown mode; batch statistics (by ``batch``, or because a layer keeps no running
            ones) over more than one batch; a batch too small for ``recalibrate``.
    """
    if bn not in get_args(BatchNormMode):
        raise UserError(f"bn is {bn!r}; choose one of {', '.join(get_args(BatchNormMode))}")
    if bn == "eval" and _TOLD.get(id(model)) is not model and (new := never_run(model)):
        _LOG.warning(new)
    tell_elsewhere(model)
    frozen = whole_copy(model).eval().requires_grad_(False)
    frozen.zero_grad(set_to_none=True)
    for module in frozen.modules():
        if isinstance(module, nn.Embedding | nn.EmbeddingBag):
            module.sparse = False  # a form of the gradient that has no second derivative
    layers = [module for module in frozen.modules() if isinstance(module, _BatchNorm)]
    if bn == "batch":
        _forget_running_statistics(layers)
    if len(batches) > 1 and has_batch_statistics(frozen):
        raise UserError(
            f"BatchNorm would use batch statistics, which {len(batches)} batches do not share: put all "
            f"{batches.samples} samples in one batch, or use bn='eval' with layers that keep running ones"
        )
    if bn == "recalibrate":
        recalibrate(frozen, batches)
    return frozen


def has_batch_statistics(model: nn.Module) -> bool:
    return any(module.running_mean is None for module in model.modules() if isinstance(module, _BatchNorm))


def statistics(model: nn.Module) -> set[str]:
    """Return the names of the buffers that ``recalibrate`` and ``batch`` do not read."""
    return {
        f"{name}.{buffer}" if name else buffer
        for name, layer in model.named_modules()
        if isinstance(layer, _BatchNorm)
        for buffer, _ in layer.named_buffers(recurse=False)
    }


def never_run(model: nn.Module) -> str:
    """Return a sentence on BatchNorm layers whose statistics are those of a new layer; "" without such."""
    layers = [layer for layer in model.modules() if isinstance(layer, _BatchNorm)]
    new = sum(map(_is_new, layers))
    if not new:
        return ""
    which = "BatchNorm" if new == len(layers) else f"{new} of {len(layers)} BatchNorm layers"
    return (
        f"{which} never saw a sample (mean 0, variance 1, no batch counted), and these statistics are used: "
        "--bn recalibrate, or bn='recalibrate', estimates them on the samples"
    )


def tell_elsewhere(model: nn.Module) -> None:
    """Leave it to the caller to say what :func:`never_run` finds in a network: it is not logged again."""
    _TOLD[id(model)] = model


def _is_new(layer: _BatchNorm) -> bool:
    mean, variance, batches = layer.running_mean, layer.running_var, layer.num_batches_tracked
    if mean is None or variance is None or batches is None:
        return False
    return int(batches) == 0 and bool((mean == 0).all()) and bool((variance == 1).all())


def written_buffers(model: nn.Module, evaluate: Callable[[], object]) -> dict[tuple[nn.Module, str], Tensor]:
    """Return the buffers of ``model`` that an evaluation changes, as they were; the model has them back."""
    held = [(m, name, b) for m in model.modules() for name, b in m.named_buffers(recurse=False)]
    before = [buffer.detach().clone() for _, _, buffer in held]
    try:
        evaluate()
        after = [module.get_buffer(name) for module, name, _ in held]
        return {
            (module, name): old
            for (module, name, _), old, new in zip(held, before, after, strict=True)
            if old.layout is torch.strided and not torch.equal(old, new)
        }
    finally:
        for (module, name, _), old in zip(held, before, strict=True):
            module._buffers[name] = old


def _forget_running_statistics(layers: list[_BatchNorm]) -> None:
    # In eval mode a layer without running statistics normalises by the batch's own.
    for layer in layers:
        layer.running_mean = None
        layer.running_var = None
        layer.num_batches_tracked = None


@torch.no_grad()
def recalibrate(model: nn.Module, batches: Batches) -> None:
    """Re-estimate the running statistics of a frozen model on these batches, in place.

    A layer's statistics become the mean over its calls, each weighted by the samples of its batch. With equal
    batches that is what :func:`torch.optim.swa_utils.update_bn` gives, a layer that is used several times in
    one forward pass included.
    """
    layers = [module for module in model.modules() if isinstance(module, _BatchNorm)]
    momenta = [layer.momentum for layer in layers]
    seen: Counter[nn.Module] = Counter()
    samples = 0

    def weigh(layer: _BatchNorm, _: object) -> None:
        # Momentum n_b / n_so_far turns the running update into the sample-weighted mean.
        seen[layer] += samples
        layer.momentum = samples / seen[layer]

    handles = [layer.register_forward_pre_hook(weigh) for layer in layers]
    for layer in layers:
        layer.reset_running_stats()
        layer.train()
    try:
        for inputs, _ in batches:
            samples = count(inputs)
            positional, named = arguments(cloned(inputs))  # forward may write to them
            model(*positional, **named)
    except ValueError as error:
        raise UserError(f"a batch of {samples} is too small to recalibrate BatchNorm: {error}") from error
    finally:
        for handle in handles:
            handle.remove()
    for layer, momentum in zip(layers, momenta, strict=True):
        layer.momentum = momentum
        layer.eval()
