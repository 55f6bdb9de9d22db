"""Numbers of a network's outputs on the batches: the loss with its error, accuracy, and a user's own.

A loss is a mean over samples. Where it is computed sample by sample, by its ``reduction`` or by
:func:`torch.vmap`, and the mean is the batch's, its standard error comes from the spread over samples, else
from that over batches.
"""

import copy
import math
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from fedscope.errors import UserError
from fedscope.factories import reason
from fedscope.landscape.loss.checks import rounding
from fedscope.landscape.loss.flat_loss import FlatLoss, LossFunction
from fedscope.landscape.loss.trees import cloned, mapped
from fedscope.statistics.standard_errors import data_stderr, drawn_stderr, finite_population

Metric = Callable[[Any, Any], Tensor]
"""(output, targets) ↦ a value per sample, (samples,), or the scalar mean over the batch."""
Metrics = Mapping[str, Metric] | Iterable[str | Metric]


@dataclass(frozen=True)
class MetricMean:
    """A mean over all samples and its standard error, NaN where it could not be formed."""

    value: float
    stderr: float


def accuracy(output: Any, targets: Any) -> Tensor:
    """Return 1.0 for each sample whose largest logit is its label's, else 0.0.

    With logits (samples, classes, …) and labels (samples, …), the share of a sample's places.
    """
    if (
        not isinstance(output, Tensor)
        or not isinstance(targets, Tensor)
        or output.ndim < 2
        or targets.is_floating_point()
        or output.shape[:1] + output.shape[2:] != targets.shape
    ):
        kinds = [tuple(t.shape) if isinstance(t, Tensor) else type(t).__name__ for t in (output, targets)]
        raise UserError(
            f"accuracy needs logits (samples, classes) and labels (samples,), not {kinds[0]} and {kinds[1]}; "
            "give a function of (output, targets) of your own"
        )
    right = (output.argmax(1) == targets).double()
    return right.flatten(1).mean(1) if right.ndim > 1 else right


def named(metrics: Metrics) -> dict[str, Metric]:
    """Return metrics by name: ``accuracy``, functions by their own names, or a mapping as it is."""
    if isinstance(metrics, Mapping):
        return dict(metrics)
    found: dict[str, Metric] = {}
    for metric in metrics:
        if isinstance(metric, str) and metric != "accuracy":
            raise UserError(f"unknown metric {metric!r}; use 'accuracy' or a function of (output, targets)")
        function = accuracy if isinstance(metric, str) else metric
        name = getattr(function, "__name__", type(function).__name__)
        if name in found or name == "loss":
            raise UserError(f"two metrics are called {name!r}; give a mapping of names to functions")
        found[name] = function
    return found


class Metering:
    """Turns the outputs of all batches into the loss and the metrics.

    ``outputs``, of every batch at some weights, decide how errors are found.
    """

    def __init__(
        self, loss: FlatLoss, loss_fn: LossFunction, metrics: Mapping[str, Metric], outputs: Sequence[Any]
    ) -> None:
        self._loss, self._metrics = loss, dict(metrics)
        self._targets = [targets for _, targets in loss.batches]
        self._sizes = loss.batches.sizes
        self._single = loss_by_sample(loss, loss_fn, outputs)
        self._finite = finite_population(loss.batches.samples, loss.batches.population)
        self.names = ("loss", *self._metrics)

    @torch.inference_mode()
    def __call__(self, outputs: Sequence[Any]) -> list[MetricMean]:
        """Return the loss, then the metrics in their order; non-finite values as they are."""
        targets = self._targets
        with self._loss.exact():
            means = [self._loss.of(o, t).double() for o, t in zip(outputs, targets, strict=True)]
            found = [self._measured([m.reshape(1) for m in means])]
            if self._single is not None:
                single = zip(outputs, targets, strict=True)
                each = torch.cat([self._single(o, cloned(t)).double() for o, t in single])
                found = [MetricMean(found[0].value, drawn_stderr(_spread(each), self._finite))]
            for name, metric in self._metrics.items():
                try:
                    values = [metric(o, cloned(t)) for o, t in zip(outputs, targets, strict=True)]
                except UserError:
                    raise
                except Exception as error:  # whatever the user's function raises
                    raise UserError(f"the metric {name} fails: {reason(error)}") from error
                found.append(
                    self._measured(
                        [self._checked(name, v, n) for v, n in zip(values, self._sizes, strict=True)]
                    )
                )
        return found

    def _measured(self, values: list[Tensor]) -> MetricMean:
        if all(len(value) == size for value, size in zip(values, self._sizes, strict=True)):
            each = torch.cat(values)
            return MetricMean(float(each.mean()), drawn_stderr(_spread(each), self._finite))
        means = torch.stack([value.mean() for value in values])
        weights = torch.tensor(self._sizes, dtype=torch.float64, device=means.device)
        stderr = drawn_stderr(data_stderr(means, self._sizes), self._finite)
        return MetricMean(float((weights * means).sum() / weights.sum()), stderr)

    def _checked(self, name: str, value: Any, samples: int) -> Tensor:
        if not isinstance(value, Tensor) or value.shape not in ((), (samples,)):
            kind = f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
            raise UserError(f"the metric {name} has {kind}; it must return ({samples},) values or their mean")
        return value.double().reshape(-1)


@torch.no_grad()
def loss_by_sample(loss: FlatLoss, loss_fn: LossFunction, outputs: Sequence[Any]) -> Metric | None:
    """Return what gives the loss of each sample, (samples,), if its mean is the loss of every batch."""
    if loss.coupled:
        return None
    pairs = [(output, targets) for output, (_, targets) in zip(outputs, loss.batches, strict=True)]
    with loss.exact():
        wholes = [float(loss.of(output, targets)) for output, targets in pairs]
        for single in (_unreduced(loss_fn), _vectorised(loss_fn)):
            # A loss that does not run sample by sample raises anything; a warning says that it is slow.
            with suppress(Exception), warnings.catch_warnings(action="error"):
                found = (single(output, cloned(targets)).double() for output, targets in pairs)
                told = zip(found, wholes, loss.batches.sizes, strict=True)
                if all(_is_of(each, whole, samples, loss.dtype) for each, whole, samples in told):
                    return single
    return None


def _is_of(each: Tensor, whole: float, samples: int, dtype: torch.dtype) -> bool:
    room = rounding(dtype) * max(abs(whole), float(each.abs().max()))
    return each.shape == (samples,) and abs(float(each.mean()) - whole) <= room


def _unreduced(loss_fn: LossFunction) -> Metric:
    function: Any = copy.copy(loss_fn)
    bare = function if isinstance(function, nn.Module) else partial(function, reduction="none")
    if isinstance(bare, nn.Module):
        bare.__dict__["reduction"] = "none"

    def each(output: Any, targets: Any) -> Tensor:
        values: Tensor = bare(output, targets)
        return values.flatten(1).mean(1) if values.ndim > 1 else values

    return each


def _vectorised(loss_fn: LossFunction) -> Metric:
    def each(output: Any, targets: Any) -> Tensor:
        alone = [mapped(lambda tensor: tensor.unsqueeze(1), tree) for tree in (output, targets)]
        values: Tensor = torch.vmap(loss_fn)(*alone)
        return values

    return each


def _spread(each: Tensor) -> float:
    return float(each.std()) / len(each) ** 0.5 if len(each) > 1 else math.nan
