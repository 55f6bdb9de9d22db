"""Which slice of weight space a landscape shows: its directions by name, and what was learned on the way."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from torch.distributed import ProcessGroup

from fedscope.choices import BatchNormMode
from fedscope.errors import UserError
from fedscope.landscape.loss.flat_loss import FlatLoss
from fedscope.landscape.operators.base import Operator
from fedscope.landscape.operators.empirical_risk import LossOperator
from fedscope.landscape.operators.finite_checks import check_finite, check_products
from fedscope.landscape.operators.gauss_newton import GaussNewton
from fedscope.landscape.operators.hessian import Hessian
from fedscope.landscape.spectral.eigenpairs import top_eigenpairs
from fedscope.landscape.surfaces.directions import Directions, eigen_directions, random_directions
from fedscope.landscape.surfaces.planes import best_plane, line_between, plane_through
from fedscope.streams import torch_stream
from fedscope.workflows.progress import Stage
from fedscope.workflows.results.cache import Keeper
from fedscope.workflows.sources.checkpoint_points import Waypoints
from fedscope.workflows.sources.problem import Problem

DirectionsName = Literal["eigen", "ggn", "random", "pca", "points", "line", "clients"]
THROUGH: tuple[DirectionsName, ...] = ("pca", "points", "line", "clients")  # several networks
_OPERATORS: dict[str, type[LossOperator]] = {"eigen": Hessian, "ggn": GaussNewton}


@dataclass(frozen=True)
class Slice:
    """Directions, and the eigenvalues along them where they are eigenvectors."""

    directions: Directions
    curvature: Sequence[float] | None = None  # descending
    converged: bool | None = None


def slice_through(
    problem: Problem,
    kind: DirectionsName,
    waypoints: Waypoints | None,
    stage: Stage,
    *,
    tol: float = 1e-2,
    bn: BatchNormMode = "eval",
    keeper: Keeper | None = None,
    group: ProcessGroup | None = None,
) -> Slice:
    """Return the slice of this name around the problem's weights, or through the waypoints.

    ``eigen``, ``ggn``: the two top eigenvectors of the Hessian or the Gauss–Newton matrix at unit norm
    (Mendieta et al. 2022, Fig. 1); ``random``: two filter-normalised Gaussian directions (Li et al. 2018);
    ``pca``: the best plane of a trajectory, around its last point (Li et al. 2018, section 7.2); ``points``,
    ``line``: through three networks, or two; ``clients``: the best plane of the clients' drifts around the
    global model, the first of the waypoints.

    Args:
        problem: the network, at the centre.
        kind: of the slice.
        waypoints: the networks that ``pca``, ``points``, ``line`` and ``clients`` are about.
        stage: see ``measure``.
        tol: residual of the eigenvectors, relative to λ_max.
        bn: what BatchNorm does while eigenvectors are computed.
        keeper: keeps the products of eigenvectors.
        group: processes that share them.

    Raises:
        UserError: no or wrong waypoints, or weights, samples or a loss at the centre that are not finite.
    """
    check_finite(
        str(problem.path), problem.model, FlatLoss(problem.model, problem.loss_fn, problem.batches, bn=bn)
    )
    if kind in _OPERATORS:
        operator = _OPERATORS[kind](problem.model, problem.loss_fn, problem.batches, bn=bn, group=group)
        kept = keeper.operator(operator) if keeper else operator
        return _eigen(problem, kept, kind, stage, tol=tol)
    if kind == "random":
        generator = torch_stream(problem.source.seed, kind)
        return Slice(random_directions(problem.model, generator))
    if waypoints is None:
        raise UserError(f"{kind} directions lead through several networks; name their checkpoints")
    networks = waypoints.networks
    with stage(f"{problem.title}: {kind} directions, networks") as progress:
        if kind == "line":
            found = line_between(networks)
        elif kind == "points":
            found = plane_through(networks)
        elif kind == "clients":
            found = best_plane(networks, origin=0, name=kind)
        else:
            found = best_plane(networks, name=kind, path=True)
        progress(len(networks.points), len(networks.points))
    return Slice(found)


def _eigen(problem: Problem, operator: Operator, kind: DirectionsName, stage: Stage, *, tol: float) -> Slice:
    with stage(f"{problem.title}: eigenvectors, products") as progress:
        pairs = top_eigenpairs(
            operator, k=2, tol=tol, generator=torch_stream(problem.source.seed, kind), progress=progress
        )
    check_products(str(problem.path), operator, pairs.values)
    return Slice(eigen_directions(pairs, name=kind), pairs.values.tolist(), pairs.converged)
