"""The outputs of modules inside a network, read by hooks that do not change it."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from fedscope.errors import UserError


@contextmanager
def tapped(model: nn.Module, names: Sequence[str]) -> Iterator[dict[str, Tensor]]:
    """Collect the outputs of the named modules at each forward pass; the hooks are gone afterwards.

    ``<fc`` stands for the first input of ``fc``.
    """
    outputs: dict[str, Tensor] = {}

    def keep(name: str) -> None:
        def hook(_module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
            outputs[name] = inputs[0] if name.startswith("<") else output

        handles.append(model.get_submodule(name.removeprefix("<")).register_forward_hook(hook))

    handles: list[torch.utils.hooks.RemovableHandle] = []
    try:
        for name in dict.fromkeys(names):
            keep(name)
        yield outputs
    finally:
        for handle in handles:
            handle.remove()


def relu_outputs(model: nn.Module) -> list[str]:
    """Return the names of all ReLU modules of ``model``."""
    return [name for name, module in model.named_modules() if isinstance(module, nn.ReLU)]


def classifier_input(model: nn.Module) -> str:
    """Return the tap of what the last linear layer reads: the features of a sample, (B, features).

    Raises:
        UserError: there is none.
    """
    linear = [name for name, module in model.named_modules() if isinstance(module, nn.Linear)]
    if not linear:
        raise UserError(
            f"{type(model).__name__} has no nn.Linear, whose input the method reads: use another --method"
        )
    return f"<{linear[-1]}"
