"""The curvature of a loss surface at its centre along each axis, for comparison with the eigenvalues.

Two numbers, both in float64, which on a smooth network differ by the step only. At the point: the second
derivative, from the surface's slopes a tiny step to either side; rounding and truncation are below 1e-5
there, and hardly a kink of ReLU or max-pooling lies between. Over a step of the grid: the second difference
of the losses, which in float32 would be mostly rounding where steps are small. Kinks have curvature that no
derivative has, so the second number can be far above the first, and only the first compares with an
eigenvalue of the Hessian.
"""

import copy
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from fedscope.choices import BatchNormMode
from fedscope.landscape.loss.batches import Batches
from fedscope.landscape.loss.batchnorm import tell_elsewhere
from fedscope.landscape.loss.copies import whole_copy
from fedscope.landscape.loss.flat_loss import FlatLoss, LossFunction
from fedscope.landscape.loss.kernels.derivatives import joined
from fedscope.landscape.surfaces.directions import Directions
from fedscope.landscape.surfaces.surface import surface

HAIR = 1e-9  # distance in weight space


def curvature_at_center(
    model: nn.Module,
    loss_fn: LossFunction,
    batches: Batches,
    *,
    directions: Directions,
    bn: BatchNormMode = "eval",
) -> list[float] | None:
    """Return d²L/da² at the origin for each direction, from (∇L(o + h·d) − ∇L(o − h·d))·d / 2h.

    On an eigenvector at unit norm this is the eigenvalue, by first derivatives only: the Hessian's own
    products have no part in it.

    Returns:
        None where the directions move BatchNorm's statistics, in which the loss has no gradient here; or
        where network or loss cannot be had in float64: they cast, or the loss has float32 tensors of its own
        and is no module.
    """
    exact = _in_float64(model, loss_fn, batches, bn)
    if exact is None:
        return None
    loss = FlatLoss(*exact, batches, bn=bn)
    origin = loss.center if directions.origin is None else directions.origin.to(loss.center)
    if any(len(vector) != len(loss.center) for vector in (origin, *directions.vectors)):
        return None
    found = []
    for vector in directions.vectors:
        d = vector.to(loss.center)
        if not (length := float(d.norm())):
            found.append(0.0)
            continue
        h = HAIR / length
        ahead, behind = (_gradient(loss, origin + sign * h * d) for sign in (1, -1))
        found.append(float((ahead - behind) @ d / (2 * h)))
    return found


def curvature_over_steps(
    model: nn.Module,
    loss_fn: LossFunction,
    batches: Batches,
    *,
    directions: Directions,
    steps: Sequence[float],
    bn: BatchNormMode = "eval",
) -> list[float] | None:
    """Return (L(o + h·d) − 2·L(o) + L(o − h·d)) / h² for each direction, h its step.

    None where the network or loss does not run in float64.
    """
    exact, found = _in_float64(model, loss_fn, batches, bn), []
    if exact is None:
        return None
    for vector, axis, h in zip(directions.vectors, directions.axes, steps, strict=True):
        line = replace(directions, vectors=(vector,), axes=(axis,), marks=(), limits=None)
        sides = surface(*exact, batches, directions=line, values=([-h, h],), bn=bn)
        found.append((float(sides.loss.sum()) - 2 * sides.center_loss) / h**2)
    return found


def _in_float64(
    model: nn.Module, loss_fn: LossFunction, batches: Batches, bn: BatchNormMode
) -> tuple[nn.Module, LossFunction] | None:
    """Return network and loss in float64; None where these cannot be evaluated."""
    exact = copy.deepcopy(loss_fn).double() if isinstance(loss_fn, nn.Module) else loss_fn
    found = whole_copy(model).double(), exact
    tell_elsewhere(found[0])  # as of the network itself
    try:
        loss = FlatLoss(*found, batches, bn=bn)
        loss.value(loss.center)
    except torch.OutOfMemoryError:
        raise
    except RuntimeError:  # of operations on tensors of two dtypes
        return None
    return found


def _gradient(loss: FlatLoss, point: Tensor) -> Tensor:
    loss.load(point)
    total = torch.zeros_like(point)
    with loss.exact():
        for (inputs, targets), size in zip(loss.batches, loss.batches.sizes, strict=True):
            value = loss.on_batch(inputs, targets)
            gradient = torch.autograd.grad(value, loss.parameters, materialize_grads=True)
            total.add_(joined(gradient), alpha=size / loss.batches.samples)
    return total
