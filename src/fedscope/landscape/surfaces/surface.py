"""The loss, and other numbers, on a line or a plane through weight space: L(o + a·d₀ + b·d₁)."""

import hashlib
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.distributed import ProcessGroup

from fedscope.choices import BatchNormMode, Precision
from fedscope.errors import UserError
from fedscope.landscape.loss.batches import Batches, Data
from fedscope.landscape.loss.flat_loss import LossFunction
from fedscope.landscape.operators.progress_callback import Progress
from fedscope.landscape.surfaces.adaptive import Grid, Mask, interpolated, refined, relative_error
from fedscope.landscape.surfaces.directions import Directions, grid_values
from fedscope.landscape.surfaces.evaluator import Point, Points
from fedscope.landscape.surfaces.point_cache import PointFile, SharedPoints
from fedscope.landscape.surfaces.point_metrics import Metrics, named
from fedscope.landscape.surfaces.surface_results import Axis, Mark, Surface
from fedscope.landscape.surroundings import surroundings

Coordinates = Sequence[float] | Tensor


def surface(
    model: nn.Module,
    loss_fn: LossFunction,
    batches: Data,
    *,
    directions: Directions | tuple[Tensor, ...],
    values: Sequence[Coordinates] | None = None,
    span: float = 1.0,
    grid: int | tuple[int, ...] = 41,
    bn: BatchNormMode = "eval",
    names: tuple[str, ...] | None = None,
    metrics: Metrics = (),
    adaptive: float | None = None,
    precision: Precision = "fp32",
    keep: Path | None = None,
    again: bool = False,
    group: ProcessGroup | None = None,
    progress: Progress | None = None,
) -> Surface:
    """Evaluate the sample-weighted mean loss, and metrics, on a grid; the same samples at every point.

    Non-finite values stay where they are, at the centre too, and are counted. Along a direction of zero
    nothing changes.

    Args:
        model: any module; copied, never modified.
        loss_fn: (output, targets) ↦ scalar batch mean.
        batches: the samples, the same at every point, see :meth:`Batches.of`.
        directions: a record; or one or two flat vectors over the parameters that require a gradient, (n,), or
            over these and BatchNorm's statistics, (n + s,) (:mod:`fedscope.landscape.loss.state_space`).
        values: the coordinates, one sequence per axis; left out, what ``grid_values`` says.
        span: see ``grid_values``.
        grid: points per axis, or one number for each.
        bn: what BatchNorm does, see :class:`~fedscope.landscape.surfaces.evaluator.Points`.
        names: of the axes; by default the record's, or d0 and d1.
        metrics: ``accuracy``, or functions of (output, targets) that return a value per sample or the batch's
            mean; or a mapping of names to such functions.
        adaptive: a relative error of the loss, such as 0.01: only as many points are evaluated as this takes
            (:mod:`fedscope.landscape.surfaces.adaptive`). None: all.
        precision: ``bf16`` computes in bfloat16; ``precision_error`` is the error of the loss by it.
        keep: folder in which every point is kept, by content
            (:mod:`fedscope.landscape.surfaces.point_cache`): what is there is not evaluated again.
        again: evaluate it all the same.
        group: processes that call this with the same arguments and share the points; all get the same bits.
        progress: called after every point with the number of those that are there.

    Raises:
        UserError: directions that do not fit the parameters, an axis without points, an invalid grid,
            span or tolerance.
    """
    slice_ = _slice(directions)
    axes = _coordinates(values or grid_values(slice_, grid=grid, span=span), len(slice_.vectors))
    if adaptive is not None and not 0 < adaptive < 1:
        raise UserError(f"adaptive is {adaptive}; give a relative error between 0 and 1, such as 0.01")
    if precision not in ("fp32", "bf16"):
        raise UserError(f"precision is {precision!r}; use 'fp32' or 'bf16'")
    chosen, batches = named(metrics), Batches.of(batches, loss=loss_fn)

    def points(kind: Precision) -> Points:
        return Points(model, loss_fn, batches, slice_, bn=bn, metrics=chosen, precision=kind)

    rows = points(precision)
    evaluation = _Evaluation(SharedPoints(rows, _file(rows, keep), group, again=again), axes, progress)
    known, error = evaluation.all() if adaptive is None else evaluation.some(adaptive, slice_.marks)
    columns = np.moveaxis(evaluation.rows, -1, 0)
    full = [_filled(column, known, inside=place > 0) for place, column in enumerate(columns)]
    grids = [torch.tensor(column).reshape([len(axis) for axis in axes]) for column in full]
    off = None
    if precision != "fp32":
        off = evaluation.against(SharedPoints(points("fp32"), PointFile(None), group), known)
    return Surface(
        axes=tuple(map(Axis, names or slice_.axes, axes)),
        loss=grids[0],
        directions=slice_.name,
        center_loss=rows.origin[0],
        non_finite=int((~grids[0].isfinite()).sum()),
        stderr=None if bool(grids[1].isnan().all()) else grids[1],
        metrics=dict(zip(rows.names[1:], grids[2::2], strict=True)),
        metrics_stderr=dict(zip(rows.names[1:], grids[3::2], strict=True)),
        center_metrics=dict(zip(rows.names[1:], rows.origin[2::2], strict=True)),
        marks=slice_.marks,
        path=slice_.path,
        computed=None if known.all() else torch.from_numpy(known).reshape(grids[0].shape),
        interpolation_error=error,
        statistics=rows.statistics,
        precision=precision,
        form=rows.form,
        precision_error=off,
    )


class _Evaluation:
    """The rows of a grid, as far as they are known."""

    def __init__(self, spread: SharedPoints, axes: tuple[Tensor, ...], progress: Progress | None) -> None:
        self.spread = spread
        self._axes = axes
        self._progress = progress
        self._done = 0
        self.shape = (len(axes[0]), len(axes[1]) if len(axes) > 1 else 1)
        self.rows = np.full((*self.shape, spread.numbers), np.nan)

    def all(self) -> tuple[Mask, None]:
        everywhere = np.ones(self.shape, bool)
        self._evaluate(everywhere, total=everywhere.size)
        return everywhere, None

    def some(self, tol: float, marks: Sequence[Mark]) -> tuple[Mask, float]:
        """Evaluate marks, and what interpolating the others takes; return which, and the others' error."""
        places, needed = {mark.at for mark in marks}, np.zeros(self.shape, bool)
        for index in np.ndindex(self.shape):
            needed[index] = self._point(index) in places
        return refined(self.shape, self._evaluate, tol, needed=needed)

    def against(self, exact: SharedPoints, known: Mask) -> float:
        """Return the largest relative difference of the loss to that of others, at some of the points."""
        places = [[*{0, size // 2, size - 1}] for size in self.shape]
        some = [index for index in product(*places) if known[index]]
        truth = np.array(exact([self._point(index) for index in some]))[:, 0]
        ours = np.array([self.rows[index][0] for index in some])
        return float(relative_error(ours, truth).max())

    def _evaluate(self, wanted: Mask, total: int | None = None) -> Grid:
        indices = [(int(i), int(j)) for i, j in np.argwhere(wanted)]
        found = self.spread([self._point(index) for index in indices], self._report(total))
        for index, row in zip(indices, found, strict=True):
            self.rows[index] = row
        losses: Grid = self.rows[..., 0]
        self._done += len(indices)
        return losses

    def _report(self, total: int | None) -> Callable[[int], None] | None:
        progress, before = self._progress, self._done
        return None if progress is None else lambda done: progress(before + done, total)

    def _point(self, index: tuple[int, ...]) -> Point:
        return tuple(float(axis[i]) for axis, i in zip(self._axes, index, strict=False))


def _slice(directions: Directions | tuple[Tensor, ...]) -> Directions:
    count = len(directions.vectors if isinstance(directions, Directions) else directions)
    if count not in (1, 2):
        raise UserError(f"a surface has one or two directions, not {count}")
    if isinstance(directions, Directions):
        return directions
    return Directions("given", tuple(directions), ("d0", "d1")[: len(directions)])


def _coordinates(axes: Sequence[Coordinates], count: int) -> tuple[Tensor, ...]:
    found = tuple(torch.as_tensor(axis, dtype=torch.float64).cpu() for axis in axes)
    shapes = [tuple(axis.shape) for axis in found]
    if len(found) != count or any(len(shape) != 1 or not shape[0] for shape in shapes):
        raise UserError(f"the axes have shapes {shapes}; give points on each of the {count}")
    if not all(bool(axis.isfinite().all()) for axis in found):
        raise UserError("a coordinate is not finite; give numbers on every axis")
    return found


def _filled(column: Grid, known: Mask, *, inside: bool) -> Grid:
    """Return a column with what is not known interpolated; ``inside`` the range of what is."""
    if known.all():
        return column
    full, own = interpolated(column, known), column[known & np.isfinite(column)]
    result: Grid = np.where(known, full, full.clip(own.min(), own.max())) if inside and own.size else full
    return result


def _file(points: Points, folder: Path | None) -> PointFile:
    path = None
    if folder is not None:
        text = f"{points.fingerprint()} {surroundings(points.device)}"
        path = folder / "points" / f"{hashlib.sha256(text.encode()).hexdigest()[:32]}.rows"
    return PointFile(path, below=folder and folder.parent)
