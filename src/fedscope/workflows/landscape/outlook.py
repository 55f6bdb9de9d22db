"""What landscapes will take: some of their points, and a product of their eigenvectors, timed."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod

import torch

from fedscope.landscape.operators.hessian_operator import Hessian
from fedscope.landscape.surfaces.directions import random_directions
from fedscope.landscape.surfaces.surface import surface
from fedscope.workflows.landscape.landscape_request import Plane
from fedscope.workflows.landscape.slices import slices
from fedscope.workflows.progress import Reporter, about
from fedscope.workflows.sources.chosen_rounds import checkpoints
from fedscope.workflows.sources.problem import Problem
from fedscope.workflows.sources.problems import problems
from fedscope.workflows.sources.targets import Targets

PRODUCTS = (10, 50)  # that two eigenvectors of trained networks take


@dataclass(frozen=True)
class Outlook:
    """What one landscape takes."""

    title: str
    points: int  # at most, with ``adaptive``
    point_seconds: float  # that one of them took [s]
    product_seconds: float | None  # that a product took [s]; None: no eigenvectors are looked for

    def described(self) -> str:
        total = about(self.points * self.point_seconds)
        line = f"{self.title}: {self.points:,} points of {self.point_seconds:.2g} s, {total}"
        if self.product_seconds is None:
            return line
        products = about(*(count * self.product_seconds for count in PRODUCTS))
        return f"{line}; eigenvectors, some {PRODUCTS[0]} to {PRODUCTS[1]} products: {products}"


def outlooks(targets: Targets, plane: Plane, reporter: Reporter, rounds: str | None = None) -> list[Outlook]:
    if not rounds:
        found = [problem for problem, _ in slices(plane.directions, targets, reporter)]
        return [_outlook(problem, plane, own=plane.directions in ("eigen", "ggn")) for problem in found]
    runs = checkpoints(targets.checkpoints, rounds, targets.registry)
    frames = [problems(replace(targets, checkpoints=names), reporter) for names in runs]
    eigen = plane.directions in ("eigen", "ggn")
    return [_outlook(one, plane, own=eigen and one is run[-1]) for run in frames for one in run]


def _outlook(problem: Problem, plane: Plane, *, own: bool) -> Outlook:
    parts, passed = (problem.model, problem.loss_fn, problem.batches), list[float]()
    surface(
        *parts, directions=random_directions(problem.model), grid=3, bn=plane.bn, precision=plane.precision,
        progress=lambda *_: passed.append(time.perf_counter()),
    )  # fmt: skip
    axes = 1 if plane.directions == "line" else 2
    sizes = (plane.grid,) * axes if isinstance(plane.grid, int) else plane.grid
    each = (passed[-1] - passed[0]) / max(1, len(passed) - 1)
    operator = Hessian(*parts, bn=plane.bn) if own else None
    if operator is None:
        return Outlook(problem.title, prod(sizes), each, None)
    v = torch.ones(operator.shape[0], dtype=operator.dtype, device=operator.device)
    _seconds(lambda: operator @ v)  # which makes the graphs
    return Outlook(problem.title, prod(sizes), each, _seconds(lambda: operator @ v))


def _seconds(work: Callable[[], torch.Tensor]) -> float:
    begun = time.perf_counter()
    float(work().norm())  # which waits for a GPU
    return time.perf_counter() - begun
