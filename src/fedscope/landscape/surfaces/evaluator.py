"""The numbers at a point o + a·d₀ (+ b·d₁) of weight space: a pure function of the coordinates."""

import hashlib
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from fedscope.choices import BatchNormMode, Precision
from fedscope.errors import UserError
from fedscope.landscape.loss.batches import Batches
from fedscope.landscape.loss.flat_loss import FlatLoss, LossFunction
from fedscope.landscape.loss.state_space import StateSpace
from fedscope.landscape.loss.trees import octets
from fedscope.landscape.surfaces.directions import Directions
from fedscope.landscape.surfaces.forward import Forward
from fedscope.landscape.surfaces.point_metrics import Metering, Metric

Point = tuple[float, ...]
Row = tuple[float, ...]
"""loss, its standard error, then each metric and its standard error."""


class Points:
    """Evaluates points.

    BatchNorm's statistics, by ``bn`` and the directions. ``eval``: as they are in the model, or at an origin
    that has them; they move where the directions have coordinates for them. ``recalibrate``: re-estimated,
    once, at the model, where the slice goes through the model and has no coordinates for statistics, so that
    the surface has the curvature of the model's Hessian; else at every point, because no one network's would
    do for all. ``batch``: the batch's own.
    """

    def __init__(
        self,
        model: nn.Module,
        loss_fn: LossFunction,
        batches: Batches,
        directions: Directions,
        *,
        bn: BatchNormMode = "eval",
        metrics: Mapping[str, Metric] | None = None,
        precision: Precision = "fp32",
    ) -> None:
        model = getattr(model, "_orig_mod", model)
        space = StateSpace.of(model)
        through = directions.origin is None and all(len(v) == space.n for v in directions.vectors)
        everywhere = bn == "recalibrate" and not through and bool(space.means)
        forward = Forward(model, loss_fn, batches, bn=bn, everywhere=everywhere, precision=precision)
        self._forward, self._loss = forward, forward.loss
        self.device, self.form = self._loss.device, self._loss.form
        self.axes = len(directions.vectors)
        self._origin, self._vectors = _fitting(directions, self._loss, space, model)
        self.statistics = (
            "of the batch" if bn == "batch"
            else "moved" if bn == "eval" and len(self._vectors[0]) > space.n
            else "kept" if bn == "eval"
            else f"recalibrated at {'every point' if everywhere else 'the origin'}"
        )  # fmt: skip
        origin = (0.0,) * self.axes
        self._load(origin)
        outputs = self._forward.outputs()
        self._metering = Metering(self._loss, loss_fn, metrics or {}, outputs)
        self.names = self._metering.names
        self.origin = self._row(outputs)
        self.seen = {origin: self.origin}

    def __call__(self, point: Point) -> Row:
        self._load(point)
        return self._row(self._forward.outputs())

    def _row(self, outputs: list[Any]) -> Row:
        found = self._metering(outputs)
        return tuple(number for measured in found for number in (measured.value, measured.stderr))

    def fingerprint(self) -> str:
        """Return a hash of what decides the rows: slice, samples, settings, and what these give.

        Another network, loss or metric is told from this one by its numbers, at the origin and a unit along
        all directions: a loss that is cut at some height may differ from others far from a minimum only.
        """
        corner = (1.0,) * self.axes
        self.seen[corner] = self(corner)
        settings = self._loss.names, self.names, self.statistics, self._forward.precision, self.seen
        digest = hashlib.sha256(f"{settings}".encode())
        digest.update(self._loss.batches.sha256.encode())
        for tensor in (self._origin, *self._vectors, self._loss.center, *self._loss.model.buffers()):
            digest.update(octets(tensor))
        return digest.hexdigest()

    def _load(self, point: Point) -> None:
        at = self._origin.clone()
        for coordinate, vector in zip(point, self._vectors, strict=True):
            at[: len(vector)] += coordinate * vector
        self._forward.load(at)


def _fitting(
    directions: Directions, loss: FlatLoss, space: StateSpace, model: nn.Module
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Return origin and vectors, float64 on the loss' device, if they fit the model."""
    n, s = space.n, space.size - space.n
    kinds = {tuple(vector.shape) for vector in directions.vectors}
    for shape in kinds:
        if shape not in ((n,), (n + s,)):
            also = f", or ({n + s},) with BatchNorm's statistics" if s else ""
            raise UserError(
                f"a direction has shape {shape}; the model's trainable parameters need ({n},){also}"
            )
    if len(kinds) > 1:
        raise UserError(f"the directions have shapes {sorted(kinds)}; give both with BatchNorm's statistics")
    length, origin = next(iter(kinds))[0], directions.origin
    if origin is None:
        origin = loss.center if length == n else space.flat(model.state_dict())
    if tuple(origin.shape) not in ((length,), (n + s,)):
        raise UserError(f"the origin has shape {tuple(origin.shape)}; the directions have ({length},)")
    vectors = tuple(vector.to(loss.device, torch.float64) for vector in directions.vectors)
    if not all(vector.isfinite().all() for vector in vectors):
        raise UserError(
            "a direction has entries that are not finite, so that no point of it can be evaluated"
        )
    return origin.to(loss.device, torch.float64), vectors
