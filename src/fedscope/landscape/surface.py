"""The loss on a line or a plane of weight space: L(o + a·d₀) or L(o + a·d₀ + b·d₁)."""

from collections.abc import Sequence
from itertools import product

import torch
from torch import Tensor, nn

from fedscope.errors import UserError
from fedscope.landscape.batches import Batches
from fedscope.landscape.directions import Directions
from fedscope.landscape.flatloss import FlatLoss, LossFunction
from fedscope.landscape.grids import grid_values
from fedscope.landscape.normalization import BatchNormMode
from fedscope.landscape.progress import Progress
from fedscope.landscape.results import Axis, Surface
from fedscope.landscape.statespace import StateSpace

Coordinates = Sequence[float] | Tensor


def surface(
    model: nn.Module,
    loss_fn: LossFunction,
    batches: Batches,
    *,
    directions: Directions | tuple[Tensor, ...],
    values: tuple[Coordinates, ...] | None = None,
    span: float = 1.0,
    grid: int = 41,
    bn: BatchNormMode = "eval",
    names: tuple[str, ...] | None = None,
    progress: Progress | None = None,
) -> Surface:
    """Evaluate the sample-weighted mean loss on a grid; the same samples at every point.

    Non-finite losses stay where they are and are counted. With ``eval`` BatchNorm's statistics are where the
    directions move them, or the centre's over the whole grid, as with ``recalibrate``; ``batch`` renews them
    at every point.

    Args:
        model: any module; copied, never modified.
        loss_fn: (output, targets) ↦ scalar batch mean.
        batches: the samples.
        directions: a record, or flat (n,) vectors over the parameters that require a gradient.
        values: the coordinates (a's, b's); left out, what ``grid_values`` says.
        span: see ``grid_values``.
        grid: points per axis.
        bn: what BatchNorm does, see ``frozen_copy``.
        names: of the axes; by default the record's, or d0 and d1.
        progress: called after every grid point.

    Raises:
        UserError: directions of another length than the parameters, an axis without points, or statistics
            that would be recalibrated at the centre of directions that move them.
    """
    loss = FlatLoss(model, loss_fn, batches, bn=bn)
    space = StateSpace.of(getattr(model, "_orig_mod", model))
    if not isinstance(directions, Directions):
        directions = Directions("given", directions, tuple(f"d{i}" for i in range(len(directions))))
    n = len(loss.center)
    for vector in directions.vectors:
        if vector.ndim != 1 or len(vector) not in (n, space.size):
            shape = tuple(vector.shape)
            raise UserError(f"a direction has shape {shape}; the model's trainable parameters need ({n},)")
        if len(vector) > n and bn == "recalibrate":
            raise UserError(
                "a slice through several networks has their BatchNorm statistics; use --bn eval or batch"
            )
    vectors = torch.stack([v.to(loss.device, torch.float64) for v in directions.vectors])
    chosen = values or grid_values(directions, grid=grid, span=span)
    axes = [torch.as_tensor(axis, dtype=torch.float64) for axis in chosen]
    if any(axis.ndim != 1 or not len(axis) for axis in axes):
        shapes = ", ".join(str(tuple(axis.shape)) for axis in axes)
        raise UserError(f"the axes have shapes {shapes}; give points on each")
    origin = loss.center.double() if directions.origin is None else directions.origin.to(vectors)

    def value(point: Tensor) -> float:
        if len(point) > n and bn == "eval":
            for name, statistic in space.statistics(point).items():
                loss.model.get_buffer(name).copy_(statistic)
        return loss.value(point[:n].to(loss.dtype))

    losses = torch.empty([len(axis) for axis in axes], dtype=torch.float64)
    flat = losses.view(-1)
    for i, at in enumerate(product(*(axis.tolist() for axis in axes))):
        flat[i] = value(origin + torch.tensor(at, dtype=torch.float64, device=loss.device) @ vectors)
        if progress:
            progress(i + 1, len(flat))
    return Surface(
        axes=tuple(map(Axis, names or directions.axes, axes)),
        loss=losses,
        directions=directions.name,
        center_loss=value(origin),
        non_finite=int((~losses.isfinite()).sum()),
        marks=directions.marks,
        path=directions.path,
    )
