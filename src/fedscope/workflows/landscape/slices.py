"""Slices of weight space by name: what checkpoints mean for each kind, and the directions that it has."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from fedscope.checkpoints.file import layout
from fedscope.checkpoints.file.checkpoint import describe_checkpoint
from fedscope.checkpoints.registry.run_registry import RunFolder, RunRegistry
from fedscope.choices import DirectionsName
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
from fedscope.workflows.progress import Reporter
from fedscope.workflows.sources.checkpoint_points import Waypoints
from fedscope.workflows.sources.chosen_rounds import client_of_round, steps_of
from fedscope.workflows.sources.problem import Problem
from fedscope.workflows.sources.problems import at, checkpoint_path, problems
from fedscope.workflows.sources.run_clients import round_uploads
from fedscope.workflows.sources.targets import Targets
from fedscope.workflows.study import Session

COUNTS = {"line": 2, "points": 3}
_OPERATORS: dict[str, type[LossOperator]] = {"eigen": Hessian, "ggn": GaussNewton}


def slices(
    kind: DirectionsName, targets: Targets, reporter: Reporter
) -> list[tuple[Problem, Waypoints | None]]:
    """Return one entry per surface: its centre, and the networks of a slice through several.

    ``eigen``, ``ggn``, ``random``: a surface around every checkpoint; ``clients``: the same, with the
    clients' uploads of its round; ``line``, ``points``: one surface through two or three checkpoints;
    ``pca``: one for every RUN, of the rounds it kept, for every RUN@ROUND:clientK, of the local steps that
    were kept, or one of several checkpoints in their order.
    """
    if kind == "pca":
        return [_among(paths, -1, targets, reporter) for paths in _trajectories(targets)]
    if kind in COUNTS:
        given = targets.checkpoints
        if len(given) != COUNTS[kind]:
            raise UserError(
                f"--directions {kind} takes {COUNTS[kind]} checkpoints, not {len(given)}: such as "
                f"{' '.join(['RUN', 'RUN@client0', 'RUN@client1'][: COUNTS[kind]])}"
            )
        return [_among([checkpoint_path(targets, reference) for reference in given], 0, targets, reporter)]
    found = problems(targets, reporter)
    if kind != "clients":
        return [(problem, None) for problem in found]
    return [
        (problem, Waypoints(problem, [problem.path, *round_uploads(problem).values()])) for problem in found
    ]


def _among(paths: list[Path], center: int, targets: Targets, reporter: Reporter) -> tuple[Problem, Waypoints]:
    (problem,) = at([paths[center]], targets, reporter)
    return problem, Waypoints(problem, paths)


def _trajectories(targets: Targets) -> list[list[Path]]:
    store, references = RunRegistry(targets.registry), targets.checkpoints
    if not references:
        return [_rounds(store, store.newest())]
    if all(_is_run(store, reference) for reference in references):
        return [_rounds(store, store.run(reference)) for reference in references]
    if all(map(client_of_round, references)):
        return [_steps(store, reference) for reference in references]
    return [[checkpoint_path(targets, reference) for reference in references]]


def _is_run(store: RunRegistry, reference: str) -> bool:
    """Say whether a run is named, which a file or folder of that name elsewhere does not hide."""
    if "@" in reference or "/" in reference or reference.endswith(".pt"):
        return False
    return not Path(reference).exists() or layout.is_run(store.root / reference)


def _steps(store: RunRegistry, reference: str) -> list[Path]:
    """Return a client's way in its round: its start, the steps, its upload, each as far as it was kept."""
    run, (round, client) = store.run(reference.partition("@")[0]), client_of_round(reference) or (0, 0)
    steps = [run.step(round, client, step) for step in steps_of(store, reference)]
    start, upload = run.start(round), run.client(client, round)
    way = [*([start] if start else []), *steps, *([upload] if upload.is_file() else [])]
    if len(way) < 3:
        raise UserError(
            f"{reference} has {len(way)} models from its start to its upload, too few for a plane; keep more "
            f"with `fedscope train --keep-steps 1:{client}:{round}`, its ends with --save-clients all"
        )
    return way


def _rounds(store: RunRegistry, run: RunFolder) -> list[Path]:
    kept, newest = run.rounds(), store.resolve(run.name)
    if len(kept) < 2:
        raise UserError(
            f"run {run.name!r} kept {len(kept)} of its rounds, too few for a trajectory; train with "
            "--keep-every 1, or name several checkpoints in order"
        )
    last = [] if describe_checkpoint(newest)[0].round in kept else [newest]
    return [*map(run.after_round, kept), *last]


@dataclass(frozen=True)
class Slice:
    """Directions, and the eigenvalues along them where they are eigenvectors."""

    directions: Directions
    curvature: Sequence[float] | None = None  # descending
    converged: bool | None = None


def slice_through(
    problem: Problem, plane: Plane, session: Session, waypoints: Waypoints | None = None
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
        session: keeps eigenvectors, which every command finds again, and their products until then.
        waypoints: the networks that ``pca``, ``points``, ``line`` and ``clients`` are about.
    """
    kind, own = plane.directions, (problem.model, problem.loss_fn, problem.batches)
    check_finite(str(problem.path), problem.model, FlatLoss(*own, bn=plane.bn))
    if kind in _OPERATORS:
        operator = _OPERATORS[kind](*own, bn=plane.bn, group=session.group)
        return _eigen(problem, operator, plane, session)
    if kind == "random":
        generator = torch_stream(problem.source.seed, kind)
        return Slice(random_directions(problem.model, generator))
    if waypoints is None:
        raise UserError(f"{kind} directions lead through several networks; name their checkpoints")
    networks = waypoints.networks
    with session.stage(f"{problem.title}: {kind} directions, networks") as progress:
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


def _eigen(problem: Problem, base: LossOperator, plane: Plane, session: Session) -> Slice:
    kind, seed, cache = plane.directions, problem.source.seed, session.cache
    question = {"eigenvectors": kind, "tol": plane.tol, "seed": seed}
    with session.stage(f"{problem.title}: eigenvectors, products") as progress:

        def made() -> dict[str, Tensor]:
            operator, generator = cache.operator(base), torch_stream(seed, kind)
            pairs = top_eigenpairs(operator, k=2, tol=plane.tol, generator=generator, progress=progress)
            check_products(str(problem.path), operator, pairs.values)
            converged = torch.tensor(pairs.converged)
            return {"values": pairs.values, "vectors": pairs.vectors, "converged": converged}

        found = cache.arrays(base, question, made, again=session.again)
    vectors, values = found["vectors"].to(base.device, base.dtype), found["values"]
    directions = eigen_directions(Eigenpairs.bare(values, vectors, 0, seed), name=kind)
    return Slice(directions, values.tolist(), bool(found["converged"]))
