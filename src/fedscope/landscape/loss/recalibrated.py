"""BatchNorm's statistics re-estimated at any point of weight space, on the samples of a loss."""

from torch import Tensor, nn

from fedscope.landscape.loss.batchnorm import frozen_copy, recalibrate
from fedscope.landscape.loss.flat_loss import FlatLoss
from fedscope.landscape.loss.state_space import StateSpace


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
