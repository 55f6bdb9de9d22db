"""What a network costs, in the convention of FedAlign's Tables 5 and 7 (Mendieta et al. 2022).

Multiply-accumulates of all convolutions and linear layers, plus the elements that enter a global average
pool; normalisation, ReLUs and the products inside a loss are free. Operations are counted as PyTorch runs
them, so that a sub-network of a module counts as what it is.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

Normalisation = nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d | nn.GroupNorm | nn.LayerNorm

_aten = torch.ops.aten
_SPATIAL = {2, 3}


@dataclass(frozen=True)
class Operations:
    """What some forward passes compute, as far as it is counted."""

    products: int  # multiply-accumulates of convolutions and linear layers
    pooled: int  # elements that enter a global average pool

    @property
    def total(self) -> int:
        return self.products + self.pooled


def multiply_accumulates(function: Callable[[], object]) -> int:
    """Return the papers' count of everything that runs inside ``function()``: see :func:`operations`."""
    return operations(function).total


def operations(function: Callable[[], object]) -> Operations:
    """Count what runs inside ``function()``, without gradients.

    Counts the whole batch: divide by its size. A linear layer counts where it has a bias (one without is a
    plain matrix product, as losses contain), an average pool where it is a mean over the last two dimensions
    of four. What ``function`` does to running statistics is done.
    """
    pool = {_aten.mean: _pooled}
    with torch.no_grad(), FlopCounterMode(display=False, custom_mapping=pool) as counter:
        function()
    counts: dict[object, int] = counter.get_flop_counts().get("Global", {})
    products = counts.get(_aten.convolution, 0) + counts.get(_aten.addmm, 0)  # a product and a sum each
    return Operations(products // 2, counts.get(_aten.mean, 0))


def norm_affine(model: nn.Module) -> int:
    layers = (module for module in model.modules() if isinstance(module, Normalisation))
    return sum(parameter_count(layer) for layer in layers)


def norm_statistics(model: nn.Module) -> int:
    return sum(buffer.numel() for buffer in model.buffers() if buffer.is_floating_point())


def parameter_count(model: nn.Module) -> int:
    """Return the number of scalars in the parameters, frozen ones included, shared ones once."""
    return sum(parameter.numel() for parameter in model.parameters())


def _pooled(shape: torch.Size, dims: Sequence[int] | None = None, *_: object, **__: object) -> int:
    whole = len(shape) == 4 and {dim % 4 for dim in dims or ()} == _SPATIAL
    return shape.numel() if whole else 0
