"""Lines and planes through networks: the best plane around one of them, or the one through given ones.

Networks are points of n + s coordinates (:mod:`~fedscope.landscape.loss.state_space`). Lengths, angles,
distances and principal axes are those of the n trainable parameters alone. A direction is a linear
combination of the points' differences from the origin in all coordinates, so BatchNorm's statistics follow,
and a network that the slice passes through meets its own there.

The combination comes from the points' T×T Gram matrix in float64, for which a few of them are in memory at a
time: a sequence that reads its items when asked will do.

Symbols: T points w_i, x_i = w_i − o, G = XXᵀ over the first n coordinates, d a direction.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedscope.errors import UserError
from fedscope.landscape.printing import Printed
from fedscope.landscape.surfaces.directions import Directions
from fedscope.landscape.surfaces.surface_results import Mark

BLOCK = 1 << 28  # bytes of points in memory at a time, twice
MARGIN = 1 / 8  # beyond the outermost marks, of their extent; on 41 points a line's ends lie on the grid
RESOLUTION = 2**-22  # of the weights' norm: networks nearer than float32 can tell are one


@dataclass(frozen=True, repr=False)
class Networks(Printed):
    """Points of one weight space.

    Attributes:
        points: T of (n + s,) float64; each is read anew whenever it is asked for.
        labels: what they are called.
        n: the number of trainable parameters, the first coordinates.
    """

    points: Sequence[Tensor]
    labels: Sequence[str]
    n: int

    def point(self, i: int) -> Tensor:
        """Return w_i, (n + s,).

        Raises:
            UserError: it is not finite.
        """
        point = self.points[i]
        if not bool(point.isfinite().all()):
            raise UserError(
                f"{self.labels[i]} has weights or statistics that are not finite; leave it out, or take an "
                "earlier round"
            )
        return point

    def length(self, vector: Tensor) -> float:
        """Return the norm of a vector's parameters."""
        return float(vector[: self.n].norm())

    def gram(self, origin: Tensor) -> Tensor:
        """Return the (T, T) inner products of the differences' parameters."""
        count = len(self.points)
        gram = torch.zeros(count, count, dtype=torch.float64)
        for first, rows in self._blocks(origin):
            gram[first : first + len(rows), first : first + len(rows)] = rows @ rows.T
            for second, columns in self._blocks(origin, first + len(rows)):
                corner = rows @ columns.T
                gram[first : first + len(rows), second : second + len(columns)] = corner
                gram[second : second + len(columns), first : first + len(rows)] = corner.T
        return gram

    def combined(self, coefficients: Tensor, origin: Tensor) -> Tensor:
        """Return (k, n + s): sums of the differences by (k, T) coefficients."""
        total = torch.zeros(len(coefficients), len(origin), dtype=torch.float64)
        for i in range(len(self.points)):
            total.addr_(coefficients[:, i], self.point(i) - origin)
        return total

    def marks(self, origin: Tensor, directions: Tensor) -> tuple[Mark, ...]:
        """Return each network's orthogonal projection onto (k, n + s) orthogonal directions.

        Distances are norms of what is left, not differences of squares: 0 stays 0.
        """
        parameters = directions[:, : self.n]
        squares = parameters.square().sum(1)
        found = []
        for i, label in enumerate(self.labels):
            x = (self.point(i) - origin)[: self.n]
            at = (parameters * x).sum(1) / squares  # summed as the squares are: a line ends at 1, not near it
            found.append(Mark(label, tuple(at.tolist()), float((x - at @ parameters).norm())))
        return tuple(found)

    def _blocks(self, origin: Tensor, first: int = 0) -> Iterator[tuple[int, Tensor]]:
        size = max(1, BLOCK // (8 * self.n))
        for begin in range(first, len(self.points), size):
            places = range(begin, min(begin + size, len(self.points)))
            yield begin, torch.stack([(self.point(i) - origin)[: self.n] for i in places])


def best_plane(networks: Networks, origin: int = -1, *, name: str = "pca", path: bool = False) -> Directions:
    """Return the plane through one network that is nearest to all, its axes in order of what they explain.

    The axes are the first two right singular vectors of the differences from the origin, at unit norm, so
    coordinates are distances in weight space. With the last network of a trajectory as the origin this is
    the PCA of Li et al. 2018, section 7.2. An axis' name tells its share of the squared distances from the
    origin.

    Args:
        networks: three or more, the origin among them.
        origin: its place.
        name: of the directions.
        path: the networks are a trajectory, in order.

    Raises:
        UserError: fewer than three networks, all equal or on one line, or one that is not finite.
    """
    count = len(networks.points)
    if count < 3:
        raise UserError(
            f"a plane needs three networks or more, and here are {count}; keep more of a run's rounds "
            "(--keep-every), or draw the line between two (--directions line)"
        )
    center = networks.point(origin)
    values, vectors = torch.linalg.eigh(networks.gram(center))
    largest = vectors[:, [-1, -2]].T
    signs = largest.gather(1, largest.abs().argmax(1, keepdim=True)).sign()  # an eigenvector has none
    axes = _orthonormal(
        networks, networks.combined(signs * largest, center), center, ends=tuple(networks.labels)
    )
    shares = values[[-1, -2]] / values.sum()
    return _slice(
        name,
        networks,
        center,
        axes,
        tuple(f"axis {k} ({100 * share:.3g} %)" for k, share in enumerate(shares.tolist(), 1)),
        path=path,
        square=not path,
    )


def plane_through(networks: Networks) -> Directions:
    """Return the plane through three networks: the first at (0, 0), the second on the first axis.

    Both axes have unit norm, so the picture is undistorted and coordinates are distances in weight space.

    Raises:
        UserError: not three networks, two of them equal, all on one line, or one that is not finite.
    """
    if len(networks.points) != 3:
        raise UserError(f"a plane through networks takes three, not {len(networks.points)}")
    center = networks.point(0)
    two = networks.combined(torch.eye(3).double()[1:], center)
    axes = _orthonormal(networks, two, center, ends=tuple(networks.labels[:2]))
    names = (f"distance towards {networks.labels[1]}", "distance at right angles")
    return _slice("points", networks, center, axes, names, square=True)


def line_between(networks: Networks) -> Directions:
    """Return the line through two networks: the first at 0, the second at 1.

    The axis is the share α of the way, as interpolations are usually drawn; its name tells the distance.

    Raises:
        UserError: not two networks, equal ones, or one that is not finite.
    """
    if len(networks.points) != 2:
        raise UserError(f"a line between networks takes two, not {len(networks.points)}")
    center = networks.point(0)
    step = (networks.point(1) - center)[None]
    distance = networks.length(step[0])
    _check_distinct(networks, distance, center, networks.labels)
    axis = f"α ({networks.labels[0]} → {networks.labels[1]}, distance {distance:.3g})"
    return _slice("line", networks, center, step, (axis,))


def _slice(
    name: str,
    networks: Networks,
    origin: Tensor,
    vectors: Tensor,
    axes: tuple[str, ...],
    *,
    path: bool = False,
    square: bool = False,
) -> Directions:
    """Put the networks' marks on orthogonal ``vectors``, and the window around them."""
    marks = networks.marks(origin, vectors)
    places = torch.tensor([mark.at for mark in marks], dtype=torch.float64)
    low, high = places.amin(0), places.amax(0)
    half = (0.5 + MARGIN) * (high - low)
    half = half.max().expand_as(half) if square else half
    middle = (low + high) / 2
    limits = tuple(zip((middle - half).tolist(), (middle + half).tolist(), strict=True))
    return Directions(name, tuple(vectors), axes, origin, marks, path, limits)


def _orthonormal(networks: Networks, vectors: Tensor, origin: Tensor, ends: Sequence[str]) -> Tensor:
    """Return (2, n + s) with orthonormal parameters that span the same, the first along the first.

    ``ends``: the networks that are equal if the first is zero.
    """
    first, second = vectors
    size = networks.length(first)
    _check_distinct(networks, size, origin, ends)
    first, before = first / size, networks.length(second)
    for _ in range(2):  # once leaves what cancellation lost
        second = second - (first[: networks.n] @ second[: networks.n]) * first
    after = networks.length(second)
    if after <= max(RESOLUTION * networks.length(origin), RESOLUTION * before):
        raise UserError(
            f"the networks {_listed(networks.labels)} lie on one line, through which there are many planes; "
            "name others, or draw the line between two (--directions line)"
        )
    return torch.stack([first, second / after])


def _check_distinct(networks: Networks, distance: float, origin: Tensor, labels: Sequence[str]) -> None:
    if distance <= RESOLUTION * networks.length(origin):
        raise UserError(
            f"the networks {_listed(labels)} have the same weights, and no direction between them; "
            "name checkpoints that differ"
        )


def _listed(labels: Sequence[str]) -> str:
    return ", ".join(labels[:3]) + ", …" * (len(labels) > 3)
