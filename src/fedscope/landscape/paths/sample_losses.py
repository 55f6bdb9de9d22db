"""The loss of each sample at any point of weight space, as fast as without derivatives."""

import torch
from torch import Tensor, nn

from fedscope.choices import BatchNormMode
from fedscope.landscape.loss.batches import Batches, Data
from fedscope.landscape.loss.flat_loss import LossFunction
from fedscope.landscape.loss.trees import cloned
from fedscope.landscape.operators.progress_callback import Progress
from fedscope.landscape.surfaces.forward import Forward
from fedscope.landscape.surfaces.point_metrics import loss_by_sample
from fedscope.statistics.standard_errors import data_stderr, drawn_stderr, finite_population, sample_error


class SampleLosses:
    """Evaluates networks at points of n coordinates, or of n + s with BatchNorm's statistics.

    BatchNorm by ``bn``. ``eval``: the point's own statistics, or the model's where the point has none.
    ``recalibrate``: re-estimated on the samples at every point, as REPAIR does for networks between others
    (Jordan et al. 2023): activations of an average vary less than those of its ends, and kept statistics
    then make a barrier that is none of the weights. ``batch``: the batch's own.

    Attributes:
        sizes: samples of each value: all 1, or the batches' where the loss of a sample cannot be told.
        finite: the factor of a finite population on variances.
    """

    def __init__(
        self, model: nn.Module, loss_fn: LossFunction, batches: Data, *, bn: BatchNormMode = "eval"
    ) -> None:
        model = getattr(model, "_orig_mod", model)
        samples = Batches.of(batches, loss=loss_fn)
        self._forward = Forward(model, loss_fn, samples, bn=bn, everywhere=bn == "recalibrate")
        self._loss, self.space = self._forward.loss, self._forward.space
        self._targets = [targets for _, targets in self._loss.batches]
        self._single = loss_by_sample(self._loss, loss_fn, self._forward.outputs())
        counts = self._loss.batches.sizes if self._single is None else (1,) * samples.samples
        self.sizes = torch.tensor(counts, dtype=torch.float64)
        self.finite = finite_population(samples.samples, samples.population)
        self.passes = 0
        self.progress: Progress | None = None

    @property
    def center(self) -> Tensor:
        return self._loss.center.double().cpu()

    @property
    def epsilon(self) -> float:
        """The relative rounding of weights and losses."""
        return torch.finfo(self._loss.center.dtype).eps

    def __call__(self, point: Tensor) -> Tensor:
        """Return the losses at a point: (N,) of the samples, or (B,) of the batches; float64, on the CPU."""
        at = point.to(self._loss.device, torch.float64)
        self._forward.load(at)
        self.passes += 1 if self._forward.recalibrated is None else 2
        found = self._values()
        if self.progress:
            self.progress(self.passes, None)
        return found

    def mean(self, values: Tensor) -> float:
        return float((self.sizes * values).sum() / self.sizes.sum())

    def error(self, values: Tensor) -> tuple[float, float]:
        if bool((self.sizes == self.sizes[0]).all()):
            stderr, dof = sample_error(values)
        else:
            counts = [int(size) for size in self.sizes]
            stderr, dof = data_stderr(values, counts), len(counts) - 1
        return drawn_stderr(stderr, self.finite), dof

    @torch.inference_mode()
    def _values(self) -> Tensor:
        outputs = self._forward.outputs()
        of = self._loss.of if self._single is None else self._single
        with self._loss.exact():
            pairs = zip(outputs, self._targets, strict=True)
            found = [of(output, cloned(targets)).double().reshape(-1).cpu() for output, targets in pairs]
        return torch.cat(found).clone()
