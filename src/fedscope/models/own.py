"""Networks of the user's own, as MODULE:FACTORY returns them."""

import copy

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.functional import cross_entropy

from fedscope.errors import UserError
from fedscope.factories import called, reason
from fedscope.streams import seeded


def network(reference: str, generator: torch.Generator | None = None) -> nn.Module:
    """Return the network that ``reference`` makes; with a ``generator``, weights follow from it alone.

    The factory draws from the global generators, which are seeded from it and then set back.

    Raises:
        UserError: the factory fails, or returns no module.
    """
    if generator is None:
        model = called(reference, "--model")
    else:
        with seeded(int(torch.randint(2**62, (), generator=generator))):
            model = called(reference, "--model")
    if not isinstance(model, nn.Module):
        raise UserError(f"--model {reference} returned {type(model).__name__}, not a torch.nn.Module")
    return model


def check_classifier(model: nn.Module, reference: str, inputs: Tensor, labels: Tensor, classes: int) -> int:
    """Return how many classes the network has, after a step on a few samples, which leave no trace.

    Args:
        model: float32, on the CPU.
        reference: what it is called in errors.
        inputs, labels: samples (B, …) and their classes (B,).
        classes: how many there must be at least.

    Raises:
        UserError: it has nothing to train, or not in float32; it fails on the samples, or returns no logits.
    """
    trainable = [p for p in model.parameters() if p.requires_grad]
    kinds = {t.dtype for t in (*model.parameters(), *model.buffers()) if t.is_floating_point()}
    if not trainable or kinds != {torch.float32}:
        found = ", ".join(sorted(str(kind).removeprefix("torch.") for kind in kinds)) or "nothing"
        raise UserError(
            f"--model {reference}: training needs float32 parameters, it has {found}; use .float()"
        )
    copied = copy.deepcopy(model).train()
    try:
        with seeded(0):
            logits = copied(inputs)
            if isinstance(logits, Tensor) and logits.ndim == 2 and logits.shape[1] >= classes:
                cross_entropy(logits, labels).backward()
    except Exception as error:  # whatever the user's network raises
        raise UserError(f"--model {reference} fails on the first samples: {reason(error)}") from error
    if not isinstance(logits, Tensor) or logits.ndim != 2 or logits.shape[1] < classes:
        found = f"a tensor {tuple(logits.shape)}" if isinstance(logits, Tensor) else type(logits).__name__
        raise UserError(
            f"--model {reference} returned {found}; training needs logits ({len(inputs)}, {classes} or more)"
        )
    return int(logits.shape[1])


def check_stack(model: nn.Module, reference: str, inputs: Tensor, labels: Tensor) -> None:
    """Refuse a network whose copies cannot be differentiated as one batched computation.

    Raises:
        UserError: they cannot.
    """
    copied = copy.deepcopy(model).train()
    tensors = {name: torch.stack([p.detach()] * 2) for name, p in copied.named_parameters()}
    floats = {name: torch.stack([b] * 2) for name, b in copied.named_buffers() if b.is_floating_point()}
    others = {name: b for name, b in copied.named_buffers() if name not in floats}

    def loss(
        weights: dict[str, Tensor], floats: dict[str, Tensor], others: dict[str, Tensor], x: Tensor, y: Tensor
    ) -> Tensor:
        return cross_entropy(functional_call(copied, weights | floats | others, (x,)), y)

    each = vmap(grad(loss), in_dims=(0, 0, None, 0, 0))
    try:
        each(tensors, floats, others, torch.stack([inputs] * 2), torch.stack([labels] * 2))
    except Exception as error:  # whatever batching meets in the user's network
        raise UserError(
            f"--model {reference} cannot be trained as a stack ({reason(error)}); leave --stack out"
        ) from error
