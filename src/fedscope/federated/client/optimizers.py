"""The local optimizers: from the gradients of K clients to their steps, and what is kept between two steps.

SGD: u ← βu + g, and the step is u, or with Nesterov momentum g + βu. Adam (Kingma and Ba 2015, Algorithm 1):
m ← β₁m + (1 − β₁)g, v ← β₂v + (1 − β₂)g², and the step is m̂/(√v̂ + ε) with m̂ = m/(1 − β₁ᵗ), v̂ = v/(1 − β₂ᵗ)
after t steps. In both g holds the weight decay λw; AdamW (Loshchilov and Hutter 2019, Algorithm 2) shrinks
the parameters by ηλ instead, before its step.
"""

import math
from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from fedscope.federated.record.tasks import LocalSettings
from fedscope.federated.record.vectors import RowLayout, Vector


class Optimizer(Protocol):
    """Turns gradients into steps; ``state`` (stack, width) is what it remembers of each client."""

    vectors: Sequence[Vector]  # that lie side by side in a row of ``state``
    state: Tensor

    def direction(self, w: Tensor, gradient: Tensor, lr: Tensor) -> Tensor:
        """Return the steps (K, P) in units of −η; may overwrite ``gradient`` and decay ``w``, both (K, P)."""


def optimizer(settings: LocalSettings, rows: Tensor, parameters: int) -> Optimizer:
    kind = Sgd if settings.optimizer == "sgd" else Adam
    return kind(settings, rows, parameters)


class Sgd:
    """Stochastic gradient descent, with momentum where there is any."""

    def __init__(self, settings: LocalSettings, rows: Tensor, parameters: int):
        self._settings = settings
        self.vectors: Sequence[Vector] = (Vector("velocity"),) if settings.momentum else ()
        self.state = rows.new_zeros(len(rows), RowLayout(self.vectors, parameters, parameters).width)

    def direction(self, w: Tensor, gradient: Tensor, lr: Tensor) -> Tensor:
        settings = self._settings
        if settings.weight_decay:
            gradient.add_(w, alpha=settings.weight_decay)
        if not settings.momentum:
            return gradient
        velocity = self.state[: len(w)]
        velocity.mul_(settings.momentum).add_(gradient)
        return gradient.add_(velocity, alpha=settings.momentum) if settings.nesterov else velocity


class Adam:
    """Adam, and AdamW, whose weight decay is no part of the gradient."""

    def __init__(self, settings: LocalSettings, rows: Tensor, parameters: int):
        self._settings = settings
        self.vectors: Sequence[Vector] = (
            Vector("first_moment"),
            Vector("second_moment"),
            Vector("adam_steps", "number"),
        )
        self._layout = RowLayout(self.vectors, parameters, parameters)
        self.state = rows.new_zeros(len(rows), self._layout.width)

    def direction(self, w: Tensor, gradient: Tensor, lr: Tensor) -> Tensor:
        settings = self._settings
        if settings.optimizer == "adamw":
            w.mul_(1 - settings.weight_decay * lr)
        elif settings.weight_decay:
            gradient.add_(w, alpha=settings.weight_decay)
        first, second, steps = self._layout.split(self.state[: len(w)]).values()
        steps.add_(1)
        first.lerp_(gradient, 1 - settings.beta1)
        second.mul_(settings.beta2).addcmul_(gradient, gradient, value=1 - settings.beta2)
        root = (second / _weight(settings.beta2, steps)).sqrt_().add_(settings.eps)
        return (first / _weight(settings.beta1, steps)).div_(root)


def _weight(beta: float, steps: Tensor) -> Tensor:
    return -torch.expm1(steps * (math.log(beta) if beta else -math.inf))
