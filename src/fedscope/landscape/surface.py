"""The loss on a plane through the weights: L(w + a·d₀ + b·d₁)."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from fedscope.errors import UserError
from fedscope.landscape.batches import Batches
from fedscope.landscape.directions import Directions
from fedscope.landscape.flatloss import FlatLoss, LossFunction
from fedscope.landscape.normalization import BatchNormMode
from fedscope.landscape.progress import Progress
from fedscope.landscape.results import Axis, Surface

Coordinates = Sequence[float] | Tensor


def surface(
    model: nn.Module,
    loss_fn: LossFunction,
    batches: Batches,
    *,
    directions: Directions | tuple[Tensor, Tensor],
    values: tuple[Coordinates, Coordinates] | None = None,
    span: float = 1.0,
    grid: int = 41,
    bn: BatchNormMode = "eval",
    names: tuple[str, str] | None = None,
    progress: Progress | None = None,
) -> Surface:
    """Evaluate the sample-weighted mean loss on a grid; the same samples at every point.

    Non-finite losses stay where they are and are counted. ``recalibrate`` and ``eval`` keep the centre's
    BatchNorm statistics over the whole grid; ``batch`` renews them at every point.

    Args:
        model: any module; copied, never modified.
        loss_fn: (output, targets) ↦ scalar batch mean.
        batches: the samples.
        directions: a record, or two flat (n,) vectors over the parameters that require a gradient.
        values: the coordinates (a's, b's); left out, ``grid`` points from −span to span on both axes.
        span: half the width of the plane, in units of the directions.
        grid: points per axis.
        bn: what BatchNorm does, see ``frozen_copy``.
        names: of the axes; by default the record's, or d0 and d1.
        progress: called after every grid point.

    Raises:
        UserError: directions of another length than the parameters, or an axis without points.
    """
    loss = FlatLoss(model, loss_fn, batches, bn=bn)
    if isinstance(directions, Directions):
        kind, vectors, own = directions.name, directions.vectors, directions.axes
    else:
        kind, vectors, own = "given", directions, ("d0", "d1")
    for vector in vectors:
        if vector.shape != loss.center.shape:
            shape, n = tuple(vector.shape), len(loss.center)
            raise UserError(f"a direction has shape {shape}; the model's trainable parameters need ({n},)")
    d0, d1 = (vector.to(loss.device, torch.float64) for vector in vectors)
    line = torch.linspace(-span, span, grid, dtype=torch.float64)
    rows, columns = (torch.as_tensor(axis, dtype=torch.float64) for axis in values or (line, line))
    if rows.ndim != 1 or columns.ndim != 1 or not len(rows) or not len(columns):
        raise UserError(
            f"the axes have shapes {tuple(rows.shape)}, {tuple(columns.shape)}; give points on both"
        )
    center = loss.center.double()
    losses = torch.empty(len(rows), len(columns), dtype=torch.float64)
    for i, a in enumerate(rows.tolist()):
        row = center + a * d0
        for j, b in enumerate(columns.tolist()):
            losses[i, j] = loss.value((row + b * d1).to(loss.dtype))
            if progress:
                progress(i * len(columns) + j + 1, losses.numel())
    return Surface(
        axes=tuple(map(Axis, names or own, (rows, columns))),
        loss=losses,
        directions=kind,
        center_loss=loss.value(loss.center),
        non_finite=int((~losses.isfinite()).sum()),
    )
