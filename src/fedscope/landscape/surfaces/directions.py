"""Directions for loss surfaces, as flat vectors over the trainable parameters; and grids along them."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvTransposeNd

from fedscope.errors import UserError
from fedscope.landscape.operators.probes import generator_of
from fedscope.landscape.printing import Printed
from fedscope.landscape.surfaces.surface_results import Mark

if TYPE_CHECKING:
    from fedscope.landscape.spectral.spectral_results import Eigenpairs


@dataclass(frozen=True, repr=False)
class Directions(Printed):
    """One or two directions through a point of weight space, what they are called, and what lies near them.

    Vectors and origin are (n,), over the trainable parameters, or (n + s,), over the coordinates of
    :class:`~fedscope.landscape.loss.state_space.StateSpace`: BatchNorm's running statistics then move along.
    """

    name: str
    vectors: tuple[Tensor, ...]  # one or two
    axes: tuple[str, ...]
    origin: Tensor | None = None  # None: the model's own weights
    marks: tuple[Mark, ...] = ()
    path: bool = False  # the marks are a trajectory, in order
    limits: tuple[tuple[float, float], ...] | None = None  # each axis' natural range, where there is one


def eigen_directions(pairs: "Eigenpairs", name: str = "eigen") -> Directions:
    """Return the top two eigenvectors at unit norm, the largest component of each made positive.

    Args:
        pairs: of the Hessian, or of another operator.
        name: of the directions: ``ggn`` for the Gauss–Newton matrix.

    Raises:
        UserError: fewer than two eigenpairs.
    """
    if pairs.vectors.shape[1] < 2:
        raise UserError("eigen directions need two eigenpairs; compute them with k = 2 or more")
    first, second = (_with_fixed_sign(pairs.vectors[:, i]) for i in (0, 1))
    return Directions(name, (first, second), ("eigenvector 1", "eigenvector 2"))


def random_directions(
    model: nn.Module, generator: torch.Generator | None = None, *, seed: int | None = None
) -> Directions:
    """Return two Gaussian directions, filter-normalised (Li et al. 2018, section 4).

    Each filter is scaled to the norm of the model's filter: what makes one output channel, a slice along the
    first dimension of a tensor of two or more dimensions (a row of a linear layer), in a transposed
    convolution along the second. Tensors of fewer dimensions (biases, BatchNorm) are zero, as published. The
    surface is then comparable between models whose weights differ in scale.

    Args:
        model: its parameters that require a gradient, in the order of ``named_parameters``.
        generator: draws the directions.
        seed: of such a generator instead; 0 if neither is given.

    Raises:
        UserError: both ``generator`` and ``seed`` are given; no filter is other than zero.
    """
    generator = generator_of(generator, seed)
    transposed = {id(m.weight): m.groups for m in model.modules() if isinstance(m, _ConvTransposeNd)}
    parameters = [(p.detach(), transposed.get(id(p))) for p in model.parameters() if p.requires_grad]
    first, second = (
        torch.cat([_filter_normalised(p, groups, generator).reshape(-1) for p, groups in parameters])
        for _ in range(2)
    )
    if not (bool(first.any()) and bool(second.any())):
        raise UserError(
            "a filter-normalised direction is as long as the network's filters, and all of these are zero or "
            "do not require a gradient; take other directions (eigen), or a later round"
        )
    return Directions("random", (first, second), ("random 1", "random 2"))


def _with_fixed_sign(vector: Tensor) -> Tensor:
    unit: Tensor = vector / vector.double().norm().to(vector.dtype)
    return unit * torch.sign(unit[unit.abs().argmax()])


def _filter_normalised(weights: Tensor, transposed: int | None, generator: torch.Generator) -> Tensor:
    if weights.ndim < 2:
        return torch.zeros_like(weights)
    draw = torch.randn(weights.shape, generator=generator, device=generator.device, dtype=torch.float64)
    draw, own = draw.to(weights.device), weights.double()
    scale: Tensor = _filter_norms(own, transposed) / _filter_norms(draw, transposed)
    return (draw * scale).to(weights.dtype)


def _filter_norms(weights: Tensor, transposed: int | None) -> Tensor:
    """Return the norm of each entry's filter, in a shape that broadcasts over the entries.

    ``weights`` are (outputs, inputs/groups, …), or (inputs, outputs/groups, …) of a transposed convolution of
    ``transposed`` groups.
    """
    if transposed is None:
        norms: Tensor = weights.flatten(1).norm(dim=1)
        return norms.view(-1, *[1] * (weights.ndim - 1))
    by_group: Tensor = weights.unflatten(0, (transposed, -1)).flatten(3)  # (g, inputs/g, outputs/g, places)
    norms = by_group.norm(dim=(1, 3), keepdim=True)[..., 0].expand(by_group.shape[:3])
    return norms.reshape(*weights.shape[:2], *[1] * (weights.ndim - 2))


def grid_values(
    directions: Directions, *, grid: int | tuple[int, ...] = 41, span: float = 1.0
) -> tuple[Tensor, ...]:
    """Return (m,) float64 coordinates for each axis.

    An axis runs over the directions' own range, ``span`` times as wide about its middle, or from −span to
    span where they have none. On a line the point nearest to each mark is moved to it, so that the ends of an
    interpolation are evaluated. A single point lies at the origin.
    """
    if not (math.isfinite(span) and span > 0):
        raise UserError(f"the span is {span}: all points would be one; take one above 0")
    axes = len(directions.vectors)
    sizes = (grid,) * axes if isinstance(grid, int) else grid
    if len(sizes) != axes or min(sizes) < 1:
        shape = "x".join(map(str, sizes))
        raise UserError(f"a grid of {shape} points does not fit {axes} axes; give each one point or more")
    limits = directions.limits or ((-1.0, 1.0),) * axes
    values = [_values(low, high, span, size) for (low, high), size in zip(limits, sizes, strict=True)]
    if axes == 1:
        _meet(values[0], [mark.at[0] for mark in directions.marks])
    return tuple(values)


def _values(low: float, high: float, span: float, size: int) -> Tensor:
    if size == 1:
        return torch.zeros(1, dtype=torch.float64)
    middle, half = (low + high) / 2, span * (high - low) / 2
    after = torch.arange(size, dtype=torch.float64)
    before = after.flip(0)
    # weights from both ends: an odd number of points has the middle itself
    return ((middle - half) * before + (middle + half) * after) / (size - 1)


def _meet(values: Tensor, marks: list[float]) -> None:
    for mark in marks:
        nearest = int((values - mark).abs().argmin())
        if values[0] <= mark <= values[-1]:
            values[nearest] = mark
