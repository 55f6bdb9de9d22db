"""A checkpoint of the registry, or of another program, as a network with its loss and samples."""

from typing import Any, Unpack

from torch import nn

from fedscope.api.printed_results import Result
from fedscope.api.sources import On, Weights, found
from fedscope.choices import BatchNormMode, OperatorName
from fedscope.errors import check_keywords
from fedscope.figures.text.hessian_table import Table
from fedscope.landscape.loss.batches import Batches
from fedscope.landscape.loss.flat_loss import LossFunction
from fedscope.landscape.operators.empirical_risk import LossOperator
from fedscope.workflows.curvature.measure_curvature import OPERATORS
from fedscope.workflows.sources.problem import Problem


class Checkpoint(Result):
    """A network with its weights, the loss, and the samples that it is analysed on."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem

    @property
    def model(self) -> nn.Module:
        """The network, in eval mode."""
        return self._problem.model

    @property
    def loss_fn(self) -> LossFunction:
        """(output, targets) ↦ the mean over the batch."""
        return self._problem.loss_fn

    @property
    def batches(self) -> Batches:
        """The samples, in a fixed order."""
        return self._problem.batches

    @property
    def info(self) -> dict[str, Any]:
        """What the file says of itself: settings, round, metrics, data; nothing of a plain state_dict."""
        return self._problem.info.model_dump() if self._problem.info else {}

    def operator(self, name: OperatorName = "hessian", *, bn: BatchNormMode = "eval") -> LossOperator:
        """Return the ``hessian``, ``ggn``, ``fisher`` or ``mcfisher`` of the loss, for own products.

        Raises:
            UserError: there is no such operator or mode.
        """
        check_keywords(type(self).operator, {}, On, name=name, bn=bn)
        return OPERATORS[name](self.model, self.loss_fn, self.batches, bn=bn)

    def table(self) -> Table:
        """Return network, data and weights."""
        entries = {**self._problem.checkpoint, **self._problem.description}
        entries["sha256"] = self._problem.sha256[:12]
        shown = ("model", "method", "dataset", "split", "samples", "round", "sha256")
        rows = [(name, str(entries[name])) for name in shown if entries.get(name) is not None]
        return Table(self._problem.title, ("", ""), tuple(rows), self._problem.notes)

    def to_dict(self) -> dict[str, Any]:
        """Return which weights and which samples these are."""
        return {
            "checkpoint": self._problem.checkpoint,
            "problem": self._problem.description,
            "info": self.info,
        }


def load(what: Weights | None = None, **on: Unpack[On]) -> Checkpoint:
    """Load a checkpoint with its network, its loss and the samples to analyse it on.

    Args:
        what: as for :func:`measure`; None: the registry's newest run.
        **on: samples, data and place, see :class:`On`.

    Raises:
        UserError: the checkpoint, its network or its data cannot be had.
    """
    check_keywords(load, on, On)
    (problem,) = found(() if what is None else (what,), on).problems
    return Checkpoint(problem)
