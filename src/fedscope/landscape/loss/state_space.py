"""Coordinates for all that a network computes with: its trainable parameters and BatchNorm's statistics.

A plane through several networks passes through them only if what it moves is all they differ in. Running
means move linearly and running variances geometrically: a combination is positive wherever it lies, and
equal to a network's own at that network.

Symbols: n trainable parameters, s running statistics.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from fedscope.errors import UserError
from fedscope.landscape.loss.batchnorm import frozen_copy, recalibrate
from fedscope.landscape.loss.flat_loss import FlatLoss

_LEAST = torch.finfo(torch.float32).tiny


@dataclass(frozen=True)
class StateSpace:
    """Names and shapes of a network's coordinates.

    Attributes:
        parameters: name → shape of the trainable parameters, in the order of ``named_parameters``.
        means: name → shape of the running means, in the order of ``named_modules``.
        variances: the same of the running variances.
        fixed: names of what no slice moves: frozen parameters, buffers that are not BatchNorm's.
    """

    parameters: Mapping[str, torch.Size]
    means: Mapping[str, torch.Size]
    variances: Mapping[str, torch.Size]
    fixed: tuple[str, ...] = ()

    @classmethod
    def of(cls, model: nn.Module) -> "StateSpace":
        """Return the coordinates of ``model``."""
        norms = {
            name: module.running_mean.shape
            for name, module in model.named_modules()
            if isinstance(module, _BatchNorm) and module.running_mean is not None
        }
        trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
        # By identity: a tied parameter has several names in a state_dict.
        moving = {id(p) for p in trained.values()}
        moving |= {id(buffer) for name in norms for buffer in model.get_submodule(name).buffers()}
        return cls(
            {name: p.shape for name, p in trained.items()},
            {_joined(name, "running_mean"): shape for name, shape in norms.items()},
            {_joined(name, "running_var"): shape for name, shape in norms.items()},
            tuple(name for name, t in model.state_dict(keep_vars=True).items() if id(t) not in moving),
        )

    @property
    def n(self) -> int:
        """The number of trainable parameters: the first coordinates."""
        return sum(shape.numel() for shape in self.parameters.values())

    @property
    def size(self) -> int:
        """The number of all coordinates, n + s."""
        return self.n + sum(shape.numel() for shape in (*self.means.values(), *self.variances.values()))

    def flat(self, state: Mapping[str, Tensor]) -> Tensor:
        """Return the (n + s,) float64 coordinates of a state_dict.

        The variance 0 of a channel that is constant counts as the smallest normal float32 number, which
        BatchNorm's ε makes the same.

        Raises:
            UserError: a tensor is missing, has another shape, or is a variance below zero.
        """
        own = {**self.parameters, **self.means, **self.variances}
        for name, shape in own.items():
            if name not in state or state[name].shape != shape:
                found = tuple(state[name].shape) if name in state else "nothing"
                raise UserError(f"the networks differ: {name} is {tuple(shape)} in one, {found} in the other")
        pieces = [state[name].detach().double().reshape(-1) for name in (*self.parameters, *self.means)]
        spread = [state[name].detach().double().reshape(-1) for name in self.variances]
        if any((piece < 0).any() for piece in spread):
            raise UserError("a running variance is negative: this network was not trained as it says")
        return torch.cat([*pieces, *(piece.clamp(min=_LEAST).log() for piece in spread)])

    def check_fixed(self, state: Mapping[str, Tensor], reference: Mapping[str, Tensor]) -> None:
        """Refuse networks that differ in what a slice does not move.

        Raises:
            UserError: a frozen parameter or a buffer differs; its name is said.
        """
        for name in self.fixed:
            if name not in state or not torch.equal(state[name].cpu(), reference[name].cpu()):
                raise UserError(
                    f"the networks differ in {name}, a frozen parameter or a buffer, which no slice moves; "
                    "take networks that share it"
                )

    def statistics(self, coordinates: Tensor) -> dict[str, Tensor]:
        """Return the running statistics, float64, at (n + s,) coordinates, by buffer name."""
        found = {}
        at = self.n
        for names, is_variance in ((self.means, False), (self.variances, True)):
            for name, shape in names.items():
                piece = coordinates[at : at + shape.numel()].view(shape)
                found[name] = piece.exp() if is_variance else piece
                at += shape.numel()
        return found


def _joined(module: str, buffer: str) -> str:
    return f"{module}.{buffer}" if module else buffer


class Recalibrated:
    """Re-estimates the statistics in a copy of a model."""

    def __init__(self, model: nn.Module, loss: FlatLoss) -> None:
        self._loss = loss
        self._model = frozen_copy(model, batches=loss.batches)
        space = StateSpace.of(model)
        self._names = (*space.means, *space.variances)

    def __call__(self, weights: Tensor) -> dict[str, Tensor]:
        own = dict(self._model.named_parameters())
        for name, piece in zip(self._loss.names, self._loss.split(weights), strict=True):
            own[name].copy_(piece)
        with self._loss.exact():
            recalibrate(self._model, self._loss.batches)
        buffers = dict(self._model.named_buffers())
        return {name: buffers[name] for name in self._names}
