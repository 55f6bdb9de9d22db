"""Which slice of weight space a landscape shows: its directions by name, and what was learned on the way."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch.distributed import ProcessGroup

from fedscope.errors import UserError
from fedscope.landscape.loss.flat_loss import FlatLoss
from fedscope.landscape.operators.empirical_risk import LossOperator
from fedscope.landscape.operators.finite_checks import check_finite, check_products
from fedscope.landscape.operators.gauss_newton import GaussNewton
from fedscope.landscape.operators.hessian_operator import Hessian
from fedscope.landscape.spectral.eigenpairs import top_eigenpairs
from fedscope.landscape.spectral.spectral_results import Eigenpairs
from fedscope.landscape.surfaces.directions import Directions, eigen_directions, random_directions
from fedscope.landscape.surfaces.network_planes import best_plane, line_between, plane_through
from fedscope.streams import torch_stream
from fedscope.workflows.landscape.landscape_request import Plane
from fedscope.workflows.progress import Stage
from fedscope.workflows.results.result_cache import ResultCache
from fedscope.workflows.sources.checkpoint_points import Waypoints
from fedscope.workflows.sources.problem import Problem

_OPERATORS: dict[str, type[LossOperator]] = {"eigen": Hessian, "ggn": GaussNewton}


@dataclass(frozen=True)
class Slice:
    """Directions, and the eigenvalues along them where they are eigenvectors."""

    directions: Directions
    curvature: Sequence[float] | None = None  # descending
    converged: bool | None = None


def slice_through(
    problem: Problem,
    plane: Plane,
    stage: Stage,
    waypoints: Waypoints | None = None,
    *,
    cache: ResultCache | None = None,
    again: bool = False,
    group: ProcessGroup | None = None,
) -> Slice:
    """Return the slice that a plane names, around the problem's weights or through the waypoints.

    ``eigen``, ``ggn``: the two top eigenvectors of the Hessian or the Gauss–Newton matrix at unit norm
    (Mendieta et al. 2022, Fig. 1); ``random``: two filter-normalised Gaussian directions (Li et al. 2018);
    ``pca``: the best plane of a trajectory, around its last point (Li et al. 2018, section 7.2); ``points``,
    ``line``: through three networks, or two; ``clients``: the best plane of the clients' drifts around the
    global model, the first of the waypoints.

    Args:
        problem: the network, at the centre.
        plane: the name of the directions, the tolerance of eigenvectors, and what BatchNorm does.
        stage: see ``measure``.
        waypoints: the networks that ``pca``, ``points``, ``line`` and ``clients`` are about.
        cache: keeps eigenvectors, which every command finds again, and their products until then.
        again: do not look for eigenvectors there.
        group: processes that share them.
    """
    kind, own = plane.directions, (problem.model, problem.loss_fn, problem.batches)
    check_finite(str(problem.path), problem.model, FlatLoss(*own, bn=plane.bn))
    if kind in _OPERATORS:
        operator = _OPERATORS[kind](*own, bn=plane.bn, group=group)
        return _eigen(problem, operator, plane, stage, cache or ResultCache(None), again=again)
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


def _eigen(
    problem: Problem, base: LossOperator, plane: Plane, stage: Stage, cache: ResultCache, *, again: bool
) -> Slice:
    kind, seed = plane.directions, problem.source.seed
    question = {"eigenvectors": kind, "tol": plane.tol, "seed": seed}
    with stage(f"{problem.title}: eigenvectors, products") as progress:
        known = {} if again else cache.vectors(base, question)
        if known.keys() == {"values", "vectors", "converged"}:
            vectors = known["vectors"].to(base.device, base.dtype)
            pairs = replace(
                Eigenpairs.bare(known["values"], vectors, 0, seed), converged=bool(known["converged"])
            )
        else:
            operator, generator = cache.operator(base), torch_stream(seed, kind)
            pairs = top_eigenpairs(operator, k=2, tol=plane.tol, generator=generator, progress=progress)
            check_products(str(problem.path), operator, pairs.values)
            kept = {"values": pairs.values, "vectors": pairs.vectors}
            cache.keep_vectors(base, question, {**kept, "converged": torch.tensor(pairs.converged)})
    return Slice(eigen_directions(pairs, name=kind), pairs.values.tolist(), pairs.converged)
