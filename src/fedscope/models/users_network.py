"""Networks of the user's own, as MODULE:FACTORY returns them, and pretrained ones, ``hf:NAME``."""

import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.parameter import is_lazy

from fedscope import pretrained
from fedscope.errors import UserError
from fedscope.factories import called, reason
from fedscope.lora import LoRA
from fedscope.models.pretrained import lora_adapters, networks
from fedscope.streams import seeded
from fedscope.task_loss import Loss, TaskLoss, is_class


def network(reference: str, generator: torch.Generator | None = None, lora: LoRA | None = None) -> nn.Module:
    """Return the network that ``reference`` makes; with a ``generator``, weights follow from it alone.

    The factory draws from the global generators, which are seeded from it and then set back. ``lora`` are the
    adapters of a pretrained network, whose own weights are then constant.
    """
    if generator is None:
        model = _made(reference, lora)
    else:
        with seeded(int(torch.randint(2**62, (), generator=generator))):
            model = _made(reference, lora)
    if not isinstance(model, nn.Module):
        raise UserError(f"--model {reference} returned {type(model).__name__}, not a torch.nn.Module")
    if any(map(is_lazy, model.parameters())):
        raise UserError(f"--model {reference} has layers without a shape: call it on some inputs before")
    return model


class FailsError(UserError):
    """A network raises an error on samples of its data."""


def _made(reference: str, lora: LoRA | None) -> Any:
    if not pretrained.is_network(reference):
        return called(reference, "--model")
    return networks.load(reference) if lora is None else lora_adapters.adapted(reference, lora)


def check_classifier(
    model: nn.Module, reference: str, inputs: Tensor, wanted: Tensor, loss: TaskLoss, classes: int
) -> int:
    """Return how many classes the network has, after a step on a few samples, which leave no trace.

    ``inputs`` and ``wanted`` are samples (B, …) and their classes (B,), of which there must be at least
    ``classes``; or sequences and what follows, both (B, T). With a loss of the user's own, what the network
    returns is between the two; it has one class where that is no logits of classes.
    """
    trainable = [p for p in model.parameters() if p.requires_grad]
    kinds = {t.dtype for t in (*model.parameters(), *model.buffers()) if t.is_floating_point()}
    if not trainable or kinds != {torch.float32}:
        found = ", ".join(sorted(str(kind).removeprefix("torch.") for kind in kinds)) or "nothing"
        raise UserError(
            f"--model {reference}: training needs float32 parameters, it has {found}; use .float()"
        )
    copied = _copied(model, reference).train()
    try:
        with seeded(0):
            logits = copied(inputs)
            if loss.own:
                _check_own(copied, loss.own, logits, inputs, wanted)
            elif _fit(logits, wanted, classes):
                loss(logits, wanted).backward()
    except UserError:
        raise
    except Exception as error:  # whatever the user's network raises
        raise FailsError(f"--model {reference} fails on the first samples: {reason(error)}") from error
    if loss.own:
        return int(logits.shape[-1]) if is_class(logits, wanted) else 1
    if not _fit(logits, wanted, classes):
        found = f"a tensor {tuple(logits.shape)}" if isinstance(logits, Tensor) else type(logits).__name__
        needed = ", ".join(map(str, wanted.shape))
        raise UserError(
            f"--model {reference} returned {found}; training needs logits ({needed}, {classes} or more)"
        )
    _check_one(copied.eval(), reference, inputs[:1], wanted[:1], classes)
    return int(logits.shape[-1])


def _check_own(model: nn.Module, loss: Loss, outputs: Any, inputs: Tensor, wanted: Tensor) -> None:
    """Refuse a loss of the user's own that cannot be trained with, or is a sum over samples."""
    value = loss(outputs, wanted)
    if not isinstance(value, Tensor) or value.ndim or not value.requires_grad:
        found = f"a tensor {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
        raise UserError(
            f"--loss returned {found}; it takes the mean over the samples, one number to differentiate"
        )
    value.backward()
    model.eval()
    with torch.no_grad():
        once, twice = (
            float(loss(model(torch.cat([inputs] * times)), torch.cat([wanted] * times))) for times in (1, 2)
        )
    if once and abs(twice - 2 * once) <= 1e-4 * abs(once):
        raise UserError(
            f"--loss is a sum over samples: {once:.6g} for {len(inputs)} samples, twice that for each "
            "of them twice; divide it by their number (reduction='mean')"
        )


def _copied(model: nn.Module, reference: str) -> nn.Module:
    try:
        return copy.deepcopy(model)
    except RuntimeError as error:  # of a tensor that was computed of others
        raise UserError(
            f"--model {reference} keeps a tensor that it computed of its parameters, as the older "
            "torch.nn.utils.weight_norm does, and cannot be trained; use torch.nn.utils.parametrizations"
        ) from error


def _check_one(model: nn.Module, reference: str, inputs: Tensor, wanted: Tensor, classes: int) -> None:
    """Refuse a network that loses the dimension of the samples where there is one, as in a last batch."""
    try:
        with torch.no_grad():
            logits = model(inputs)
    except Exception:  # whatever it raises: it takes several, and may never meet one
        return
    if not _fit(logits, wanted, classes):
        needed = ", ".join(map(str, (*wanted.shape, classes)))
        raise UserError(
            f"--model {reference} returned a tensor {tuple(logits.shape)} of one sample, not ({needed}): "
            "keep its first dimension (.flatten(1) in place of .squeeze()), for a last batch may be one"
        )


def _fit(logits: object, wanted: Tensor, classes: int) -> bool:
    return isinstance(logits, Tensor) and logits.shape[:-1] == wanted.shape and logits.shape[-1] >= classes


def check_stack(model: nn.Module, reference: str, inputs: Tensor, wanted: Tensor, loss: TaskLoss) -> None:
    """Refuse a network whose copies cannot be differentiated as one batched computation."""
    copied = _copied(model, reference).train()
    tensors = {name: torch.stack([p.detach()] * 2) for name, p in copied.named_parameters()}
    floats = {name: torch.stack([b] * 2) for name, b in copied.named_buffers() if b.is_floating_point()}
    others = {name: b for name, b in copied.named_buffers() if name not in floats}

    def of(
        weights: dict[str, Tensor], floats: dict[str, Tensor], others: dict[str, Tensor], x: Tensor, y: Tensor
    ) -> Tensor:
        return loss(functional_call(copied, weights | floats | others, (x,)), y)

    each = vmap(grad(of), in_dims=(0, 0, None, 0, 0))
    try:
        each(tensors, floats, others, torch.stack([inputs] * 2), torch.stack([wanted] * 2))
    except Exception as error:  # whatever batching meets in the user's network
        raise UserError(
            f"--model {reference} cannot be trained as a stack ({reason(error)}); leave --stack out"
        ) from error
