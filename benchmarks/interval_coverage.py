"""How often 95 % intervals of λ_max and of the trace hold the truth, on trained networks.

    python benchmarks/interval_coverage.py --registry DIR --work DIR --json benchmarks/interval_coverage.json

The population is a run's whole test split, with a certified λ_max. A draw is a seeded subset without
replacement; those of even number are stored sorted by class, the others shuffled. Each is measured as
``fedscope hessian`` does it: from a random start, with the samples dealt to batches, as a draw from so large
a population, and the interval is the one that the result gives (``Eigenpairs.interval``,
``Trace.population_interval``). The trace is linear in the samples, so the mean of all draws' estimates is its
truth.

Every draw is kept in the work folder, and is not measured again: a campaign that was killed goes on where it
stopped. ``--draws 0`` only summarises. How draws are judged is in ``coverage_rules.py``, the networks and how
they are trained in ``coverage_networks.py``. Seconds are of the processor.
"""

import argparse
import gc
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from io import BytesIO
from pathlib import Path
from time import process_time
from typing import Any

import coverage_rules as rules
import machine
import numpy as np
import torch
from torch import Tensor

from fedscope.checkpoints.file.checkpoint import describe_checkpoint
from fedscope.landscape import Batches, Hessian, top_eigenpairs, trace
from fedscope.own import is_own
from fedscope.process import set_up
from fedscope.statistics.standard_errors import effective_number
from fedscope.storage import write_bytes, write_text
from fedscope.streams import torch_stream
from fedscope.workflows.curvature.resources import BATCHES
from fedscope.workflows.sources.problem import Problem, load
from fedscope.workflows.sources.samples import MOST, Source

NETWORKS = ("groupnorm_cnn", "vehicles", "remembered")
DRAWS = {256: 100, 512: 100, 2048: 20}  # of so many samples
Result = dict[str, Any]


@dataclass(frozen=True)
class Network:
    """A run's final network on its test split, and the folder of what is measured of it."""

    problem: Problem
    folder: Path
    seed: int  # of the draws
    traced: int  # samples of the largest draw whose trace is estimated

    @classmethod
    def of(cls, path: Path, data_dir: Path | None, work: Path, seed: int, traced: int) -> "Network":
        """Return the network of a checkpoint; other weights have another folder."""
        info, sha256 = describe_checkpoint(path)
        model, data = (one.name if is_own(one.name) else None for one in (info.model, info.data))
        (problem,) = load([path], Source(split="test", data_dir=data_dir, model=model, data=data))
        return cls(problem, work / f"{info.run}-{sha256[:12]}", seed, traced)

    @cached_property
    def samples(self) -> tuple[Tensor, Tensor]:
        """All inputs (N, …) and labels (N,)."""
        inputs, labels = zip(*self.problem.batches, strict=True)
        return torch.cat(inputs), torch.cat(labels)

    @cached_property
    def population(self) -> Result:
        """λ_max of all samples, with its eigenvector and the samples' forms in the split's order."""
        return self.kept("population", self._population)

    def rows(self, size: int, number: int) -> Tensor:
        """Return which samples (size,) a draw has, as they are stored."""
        labels = self.samples[1]
        rows = torch.randperm(len(labels), generator=torch_stream(self.seed, "coverage", size, number))[:size]
        return rows[labels[rows].argsort(stable=True)] if number % 2 == 0 else rows

    def operator(self, rows: Tensor | None = None) -> Hessian:
        """Return the operator of some samples, or of all, as the command makes it."""
        inputs, labels = self.samples if rows is None else (part[rows] for part in self.samples)
        batches = Batches(inputs, labels, MOST, population=len(self.samples[1]))
        return Hessian(self.problem.model, self.problem.loss_fn, batches, deal=BATCHES)

    def kept(self, name: str, measure: Callable[[], Result]) -> Result:
        """Return what is kept under a name, measured first if there is nothing."""
        path = self.folder / f"{name}.npz"
        if not path.exists():
            began = process_time()
            result, content = measure(), BytesIO()
            np.savez(content, **{**result, "seconds": process_time() - began})
            write_bytes(path, content.getvalue(), below=None)
            gc.collect()  # an operator is part of a cycle, and its graphs take gigabytes
        return dict(np.load(path))

    def draw(self, size: int, number: int) -> Result:
        """Return a draw, measured first if it is not kept."""
        return self.kept(f"draw-{size}-{number:03d}-{self.seed}", lambda: self._draw(size, number))

    def _population(self) -> Result:
        found = top_eigenpairs(self.operator())
        assert found.samples is not None
        with torch.no_grad():
            hits = sum(int((self.problem.model(x).argmax(1) == y).sum()) for x, y in self.problem.batches)
        assert found.subspace is not None
        return {
            "value": found.values[0], "residual": found.residuals[0], "certified": found.certified[0],
            "samples": found.samples[0].float(), "matvecs": found.matvecs,
            "parameters": len(found.vectors), "accuracy": hits / self.problem.batches.samples,
            "spectrum": torch.linalg.eigvalsh(found.subspace.projected).flip(0)[:3],
        }  # fmt: skip

    def _draw(self, size: int, number: int) -> Result:
        op = self.operator(self.rows(size, number))
        found = top_eigenpairs(op, generator=torch_stream(self.seed, "coverage start", size, number))
        low, high = found.interval()
        assert found.samples is not None
        result: Result = {
            "value": found.values[0], "low": low, "high": high, "residual": found.residuals[0],
            "bias": found.bias_data[0], "stderr_bias": found.stderr_bias[0],
            "stderr": found.stderr_data[0], "dof": found.dof_data[0], "matvecs": found.matvecs,
            "effective_samples": effective_number(found.samples[0]),
        }  # fmt: skip
        if size > self.traced:
            return result
        total = trace(op, known=found.subspace, generator=torch_stream(self.seed, "probes", size, number))
        low, high = total.population_interval()
        return result | {
            "trace_value": total.value, "trace_low": low, "trace_high": high, "trace_matvecs": total.matvecs,
            "trace_stderr_data": total.stderr_data, "trace_dof_data": total.dof_data,
        }  # fmt: skip


def plan(sizes: list[int], draws: int | None) -> Iterator[tuple[int, int]]:
    """Yield size and number of all draws, the sizes side by side.

    ``draws``: of each size; None: as in ``DRAWS``.
    """
    goals = {size: DRAWS.get(size, 0) if draws is None else draws for size in sizes}
    places = sorted((i / goal, size, i) for size, goal in goals.items() for i in range(goal))
    yield from ((size, number) for _, size, number in places)


def summary(network: Network) -> Result:
    """Return what is kept of a network, as the record has it."""
    kept: dict[int, list[Result]] = {}
    for path in sorted(network.folder.glob(f"draw-*-{network.seed}.npz")):
        size, number = map(int, path.stem.split("-")[1:3])
        kept.setdefault(size, []).append(dict(np.load(path), number=number))
    whole = network.population
    truth, sizes = whole["value"].item(), sorted(kept)
    return {
        "checkpoint": network.problem.sha256, "parameters": int(whole["parameters"]),
        "accuracy": float(whole["accuracy"]), "spectrum": whole["spectrum"].tolist(),
        "lambda_max": {key: whole[key].item() for key in ("value", "residual", "certified", "matvecs")},
        "effective_samples": effective_number(torch.from_numpy(whole["samples"]).double()),
        "lambda_max_of_draws": {size: rules.eigenvalue_summary(kept[size], truth) for size in sizes},
        "trace_of_draws": {
            size: rules.trace_summary(kept[size]) for size in sizes if "trace_value" in kept[size][0]
        },
    }  # fmt: skip


def main() -> None:
    """Measure what is missing, then write the record and print its table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--registry", type=Path, required=True, help="with the runs of coverage_networks.py")
    parser.add_argument("--work", type=Path, required=True, help="folder of the draws")
    parser.add_argument("--json", type=Path, required=True, help="the record")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--networks", nargs="+", default=NETWORKS, metavar="RUN")
    parser.add_argument("--sizes", nargs="+", type=int, default=list(DRAWS))
    parser.add_argument("--draws", type=int, help="of each size")
    parser.add_argument("--traced", type=int, default=512, help="samples of the largest draw with a trace")
    parser.add_argument("--seed", type=int, default=0, help="of the draws, starts and probes")
    options = parser.parse_args()
    set_up(torch.device("cpu"), 1)
    paths = [options.registry / name / "final.pt" for name in options.networks]
    draws = options.data_dir, options.work, options.seed, options.traced
    networks = [Network.of(path, *draws) for path in paths]
    for size, number in plan(options.sizes, options.draws):
        for network in networks:
            network.draw(size, number)
    record = {
        "schema": "fedscope/benchmark-coverage/2",
        "seed": options.seed,
        "machine": machine.record(None),
        "networks": dict(zip(options.networks, map(summary, networks), strict=True)),
    }
    write_text(options.json, json.dumps(record, indent=1) + "\n", below=None)
    print(rules.tables(record))


if __name__ == "__main__":
    main()
