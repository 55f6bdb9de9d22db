"""A loss surface by fedscope, by a plain loop and by the loss-landscapes package: one grid, one run.

    pip install -c constraints.txt torch loss-landscapes==3.0.6 -e .
    python benchmarks/landscapes.py --checkpoint CKPT --data-dir DIR --json benchmarks/landscapes.json

A plain loop copies the weights of a point into the network and runs it over the batches without derivatives;
its values are what the others' are compared with. The package is used as its documentation has it:
``random_plane`` with the metric ``Loss``, which takes all samples as one batch. Its directions are its own,
and only its evaluations are timed; its metric is compared on the loop's network.

A turn is some points of the 41 by 41 grid by each contestant, one after another, since the cost is by the
point; a ratio is the median over turns of the ratios within a turn. What fedscope spends before the first
point (choosing, checking) is ``preparation``. The group ``adaptive`` evaluates whole grids.
"""

import copy
from collections.abc import Callable
from functools import partial
from statistics import median
from time import process_time
from typing import Any

import groups
import loss_landscapes  # type: ignore[import-not-found]
import machine
import torch
from groups import Result
from loss_landscapes.metrics import Loss  # type: ignore[import-not-found]
from loss_landscapes.model_interface.model_wrapper import wrap_model  # type: ignore[import-not-found]
from tables import row
from torch import nn

from fedscope.landscape import Directions, Surface, random_directions, surface
from fedscope.landscape.loss.trees import joined
from fedscope.landscape.surfaces.evaluator import Point, Points
from fedscope.process import set_up
from fedscope.workflows.sources.problem import Problem


class Loop:
    """A plain loop over points."""

    def __init__(self, problem: Problem, directions: Directions) -> None:
        self.problem, self.directions = problem, directions
        self.model = copy.deepcopy(problem.model).eval()
        parameters = [p for p in self.model.parameters() if p.requires_grad]
        self.center = nn.utils.parameters_to_vector(parameters).detach().double()

    @torch.no_grad()
    def __call__(self, point: Point) -> float:
        """Return the loss at a point."""
        at = self.center.clone()
        for coordinate, vector in zip(point, self.directions.vectors, strict=True):
            at += coordinate * vector.double()
        nn.utils.vector_to_parameters(at.float(), self.model.parameters())
        return mean_loss(self.model, self.problem)


def mean_loss(model: nn.Module, problem: Problem) -> float:
    """Return a network's loss over the batches."""
    losses = [len(y) * problem.loss_fn(model(x), y).item() for x, y in problem.batches]
    return float(sum(losses)) / problem.batches.samples


class Timed(Loss):  # type: ignore[misc]
    """Its metric, with a clock."""

    seconds = 0.0

    def __call__(self, wrapper: Any) -> float:
        """Return the loss."""
        value, spent = timed(lambda: super(Timed, self).__call__(wrapper))
        self.seconds += spent
        return float(value)


class Peer:
    """loss-landscapes on the same samples."""

    def __init__(self, problem: Problem, points: int) -> None:
        self.metric = Timed(problem.loss_fn, *joined(list(problem.batches)))
        self.model, self.points = copy.deepcopy(problem.model).eval(), points

    def value(self, model: nn.Module) -> float:
        """Return its loss of a network."""
        return float(Loss.__call__(self.metric, wrap_model(model)))

    def __call__(self) -> list[float]:
        """Return a square of ``points`` losses, and leave the seconds of these in ``metric.seconds``."""
        steps = round(self.points**0.5)
        self.metric.seconds = 0.0
        grid = loss_landscapes.random_plane(
            self.model, self.metric, distance=1, steps=steps, deepcopy_model=True
        )
        return [float(value) for value in grid.reshape(-1)]


def timed(call: Callable[[], Any]) -> tuple[Any, float]:
    """Return what a call returns, and the processor's seconds that it took on this process's one thread."""
    before = process_time()
    return call(), process_time() - before


def each(evaluate: Callable[[Point], float], points: list[Point]) -> list[float]:
    """Return the loss at each point."""
    return [evaluate(point) for point in points]


def speed_group(problem: Problem, turns: int, points: int) -> Result:
    """Time rows of points by each contestant in turns, and compare the values."""
    directions = random_directions(problem.model, torch.Generator().manual_seed(0))
    line = torch.linspace(-1, 1, 41, dtype=torch.float64).tolist()
    step = max(1, 41 // points)
    loop, peer = Loop(problem, directions), Peer(problem, points)
    ours, before = timed(lambda: Points(problem.model, problem.loss_fn, problem.batches, directions))
    low = Points(problem.model, problem.loss_fn, problem.batches, directions, precision="bf16")
    seconds: dict[str, list[float]] = {}
    worst = {"fedscope": 0.0, "loss-landscapes": 0.0, "fedscope, bf16": 0.0}
    for turn in range(turns):
        row_of: list[Point] = [
            (line[(7 * turn + 3) % 41], line[(step * j + turn) % 41]) for j in range(points)
        ]
        contestants: dict[str, Callable[[], list[float]]] = {
            "plain loop": partial(each, loop, row_of),
            "fedscope": partial(each, lambda point: ours(point)[0], row_of),
            "loss-landscapes": peer,
            "fedscope, bf16": partial(each, lambda point: low(point)[0], row_of),
        }
        found: dict[str, list[float]] = {}
        for name, call in contestants.items():
            found[name], spent = timed(call)
            spent = peer.metric.seconds if name == "loss-landscapes" else spent
            seconds.setdefault(name, []).append(spent / points)
        found["loss-landscapes"] = [*found["plain loop"][:-1], peer.value(loop.model)]
        for name in worst:
            pairs = zip(found[name], found["plain loop"], strict=True)
            worst[name] = max(worst[name], *(abs(a - b) / abs(b) for a, b in pairs))
    return {
        "seconds_per_point": seconds,
        "preparation": before,
        "relative_difference_to_the_loop": worst,
        "times_fedscope": {
            name: median(other / own for other, own in zip(values, seconds["fedscope"], strict=True))
            for name, values in seconds.items()
        },
        "points": points,
        "turns": turns,
    }


def adaptive_group(problem: Problem, grid: int, tolerances: list[float]) -> Result:
    """Compare adaptive grids with the full one: what they save, and what they miss by."""
    directions = random_directions(problem.model, torch.Generator().manual_seed(0))

    def run(adaptive: float | None = None) -> Surface:
        return surface(
            problem.model,
            problem.loss_fn,
            problem.batches,
            directions=directions,
            grid=grid,
            adaptive=adaptive,
        )

    whole = run()
    found: Result = {"grid": grid, "highest": float(whole.loss.max()), "lowest": float(whole.loss.min())}
    for tol in tolerances:
        some = run(tol)
        error = ((some.loss - whole.loss) / whole.loss).abs()
        evaluated = whole.loss.numel() if some.computed is None else int(some.computed.sum())
        found[str(tol)] = {
            "evaluated": evaluated,
            "of": whole.loss.numel(),
            "stated": some.interpolation_error,
            "largest": float(error.max()),
            "median": float(error.median()),
            "share_above": float((error > tol).double().mean()),
        }
    return found


def main() -> None:
    """Measure, and keep the record after each group."""
    parser = groups.parser(__doc__, batch_size=128, groups="speed, adaptive")
    parser.add_argument("--points", type=int, default=4, help="of a turn; a square number")
    parser.add_argument("--grid", type=int, default=41, help="of the group adaptive")
    options = parser.parse_args()
    set_up(torch.device("cpu"), 1)
    problem = groups.problem_of(options)
    chosen: dict[str, Callable[[], Result]] = {
        "speed": lambda: speed_group(problem, options.turns, options.points),
        "adaptive": lambda: adaptive_group(problem, options.grid, [0.01, 0.03, 0.1]),
    }
    peer = {"loss_landscapes": machine.installed("loss-landscapes")}
    entry = groups.measured(
        options, "landscapes", problem, chosen,
        lambda result: {**result, "threads": 1, "machine": machine.record(None), **peer},
    )  # fmt: skip
    print(tables(entry))


def tables(entry: Result) -> str:
    """Return a network's record as Markdown."""
    lines = []
    if "speed" in entry:
        found = entry["speed"]
        lines += [row(["a point", "seconds", "× fedscope", "differs by"]), row(["---", *["---:"] * 3])]
        for name, values in found["seconds_per_point"].items():
            off = found["relative_difference_to_the_loop"].get(name)
            cells = [
                f"{median(values):.2f}",
                f"{found['times_fedscope'][name]:.2f}",
                f"{off:.0e}" if off else "",
            ]
            lines.append(row([name, *cells]))
    if "adaptive" in entry:
        heads = ["--adaptive", "evaluated", "stated error", "largest", "median", "share above"]
        lines += ["", row(heads), row(["---:"] * len(heads))]
        for tol, found in entry["adaptive"].items():
            if isinstance(found, dict) and "evaluated" in found:
                share = found["evaluated"] / found["of"]
                errors = [
                    f"{100 * found[key]:.2g} %" for key in ("stated", "largest", "median", "share_above")
                ]
                lines.append(row([tol, f"{found['evaluated']:,} ({100 * share:.0f} %)", *errors]))
    return "\n".join(lines)


if __name__ == "__main__":
    main()
