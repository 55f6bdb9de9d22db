"""What the server does with the uploads: a weighted mean, summed in client order."""

import torch
from torch import Tensor, nn


class WeightedMean:
    """Accumulates Σ p_k w_k over state dicts, one at a time and in float64.

    BatchNorm running statistics are averaged with the weights; its batch counter takes the maximum (it has no
    effect at a fixed momentum).
    """

    def __init__(self) -> None:
        self._total: dict[str, Tensor] = {}

    def add(self, state: dict[str, Tensor], weight: float) -> None:
        """Add one upload with its share ``weight``; the shares of all uploads sum to one."""
        for name, tensor in state.items():
            if not tensor.is_floating_point():
                self._total[name] = torch.maximum(self._total.get(name, tensor), tensor).clone()
            elif name in self._total:
                self._total[name].add_(tensor, alpha=weight)
            else:
                self._total[name] = tensor.double() * weight

    def load_into(self, model: nn.Module) -> None:
        """Copy the mean into ``model``."""
        model.load_state_dict(self._total)
