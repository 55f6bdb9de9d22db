"""How often 95 % intervals of λ_max and of the trace hold the truth, on trained networks.

    python benchmarks/coverage.py --registry DIR --work DIR --json benchmarks/coverage.json

The population is a run's whole test split, with a certified λ_max. A draw is a seeded subset without
replacement; those of even number are stored sorted by class, the others shuffled. Each is measured as
``fedscope hessian`` does, but for two things that save time: Lanczos starts at the population's eigenvector
(some draws are measured from a random start too, kind ``cold``), and the samples' forms are computed in
larger batches. The trace is linear in the samples, so the mean of all draws' estimates is its truth.

Every draw is kept in the work folder with what any interval can be computed from, and is not measured again:
a campaign that was killed goes on where it stopped. ``--kinds`` without a value only summarises. The rules
are in ``coverage_rules.py``, the networks and how they are trained in ``coverage_networks.py``. Seconds are
of the processor.
"""

import argparse
import gc
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from io import BytesIO
from pathlib import Path
from statistics import median
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
from fedscope.statistics.intervals import effective_number
from fedscope.storage.writing import write_bytes, write_text
from fedscope.streams import torch_stream
from fedscope.workflows.curvature.resources import BATCHES
from fedscope.workflows.sources.problem import Problem, load
from fedscope.workflows.sources.samples import MOST, Source

NETWORKS = ("batchnorm_cnn", "convnet_cifar", "groupnorm_cnn")
DRAWS = {256: 100, 512: 100, 2048: 40}  # of so many samples
KINDS = ("lambda", "cold", "cost", "trace")
COLD, TURNS, PROBES = 4, 3, 8
FIRST_ORDER = 1000  # draws of the population's forms alone
TRACED = 512  # samples of the largest draw whose trace is estimated
Result = dict[str, Any]


@dataclass(frozen=True)
class Network:
    """A run's final network on its test split, and the folder of what is measured of it."""

    problem: Problem
    folder: Path

    @classmethod
    def of(cls, path: Path, data_dir: Path | None, work: Path) -> "Network":
        """Return the network of a checkpoint; other weights have another folder."""
        info, sha256 = describe_checkpoint(path)
        model = info.model.name if is_own(info.model.name) else None
        (problem,) = load([path], Source(split="test", data_dir=data_dir, model=model))
        return cls(problem, work / f"{info.run}-{sha256[:12]}")

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
        rows = torch.randperm(len(labels), generator=torch_stream(0, "coverage", size, number))[:size]
        return rows[labels[rows].argsort(stable=True)] if number % 2 == 0 else rows

    def operator(self, rows: Tensor | None = None, *, deal: int | None = BATCHES) -> Hessian:
        """Return the operator of some samples, or of all, as the command makes it; or not dealt."""
        inputs, labels = self.samples if rows is None else (part[rows] for part in self.samples)
        return Hessian(self.problem.model, self.problem.loss_fn, Batches(inputs, labels, MOST), deal=deal)

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

    def draw(self, kind: str, size: int, number: int) -> Result:
        """Return a draw of a kind, measured first if it is not kept."""
        measures: dict[str, Callable[[int, int], Result]] = {
            "lambda": self._eigenvalue, "cold": partial(self._eigenvalue, cold=True),
            "cost": self._cost, "trace": self._trace,
        }  # fmt: skip
        return self.kept(f"{kind}-{size}-{number:03d}", lambda: measures[kind](size, number))

    def _population(self) -> Result:
        found = top_eigenpairs(self.operator(), by_sample=False)
        samples = self.operator(deal=None).sample_forms(found.vectors[:, 0])
        assert samples is not None
        with torch.no_grad():
            hits = sum(int((self.problem.model(x).argmax(1) == y).sum()) for x, y in self.problem.batches)
        return {
            "value": found.values[0], "residual": found.residuals[0], "certified": found.certified[0],
            "vector": found.vectors[:, 0], "samples": samples.float(), "matvecs": found.matvecs,
            "accuracy": hits / self.problem.batches.samples,
        }  # fmt: skip

    def _eigenvalue(self, size: int, number: int, *, cold: bool = False) -> Result:
        start = torch.from_numpy(self.population["vector"])
        rows = self.rows(size, number)
        generator = torch_stream(0, "coverage start", size, number)
        found = top_eigenpairs(
            self.operator(rows), generator=generator, start=None if cold else start, by_sample=False
        )
        vector = found.vectors[:, 0]
        samples = self.operator(rows, deal=None).sample_forms(vector)
        assert samples is not None
        assert found.forms is not None
        return {
            "value": found.values[0], "residual": found.residuals[0], "bias": found.bias_data[0],
            "samples": samples.float(), "batches": found.forms[0], "matvecs": found.matvecs,
            "cosine": abs(float(vector @ start)),
        }  # fmt: skip

    def _trace(self, size: int, number: int) -> Result:
        op, generator = self.operator(self.rows(size, number)), torch_stream(0, "probes", size, number)
        found = trace(op, probes=PROBES, generator=generator)
        names = ("value", "stderr_probe", "dof_probe", "stderr_data", "dof_data", "samples", "batches")
        return {**{name: getattr(found, name) for name in names}, "size": size}

    def _cost(self, size: int, number: int) -> Result:
        op, vector = self.operator(self.rows(size, number)), torch.from_numpy(self.population["vector"])
        op.product(vector)  # builds the graphs
        calls: dict[str, Callable[[Tensor], object]] = {"product": op.product, "forms": op.sample_forms}
        return {name: [_spent(partial(call, vector)) for _ in range(TURNS)] for name, call in calls.items()}


def _spent(call: Callable[[], object]) -> float:
    began = process_time()
    call()
    return process_time() - began


def plan(kinds: list[str], sizes: list[int], draws: int | None) -> Iterator[tuple[str, int, int]]:
    """Yield kind, size and number of all draws, kind after kind, the sizes side by side.

    ``draws``: of each size; None: as in ``DRAWS``.
    """
    for kind in kinds:
        goals = {size: draws or DRAWS[size] for size in sizes if kind != "trace" or size <= TRACED}
        if kind in ("cold", "cost"):
            goals = {size: min(goal, COLD if kind == "cold" else 1) for size, goal in goals.items()}
        places = sorted((i / goal, size, i) for size, goal in goals.items() for i in range(goal))
        yield from ((kind, size, number) for _, size, number in places)


def summary(network: Network) -> Result:
    """Return what is kept of a network, as the record has it."""
    kept: dict[tuple[str, int], list[Result]] = {}
    for path in sorted(network.folder.glob("*-*.npz")):
        kind, *numbers = path.stem.split("-")
        size, number = map(int, numbers)
        kept.setdefault((kind, size), []).append(dict(np.load(path), number=number))
    whole = network.population
    forms = torch.from_numpy(whole["samples"]).double()
    found: Result = {
        "checkpoint": network.problem.sha256, "parameters": len(whole["vector"]),
        "accuracy": float(whole["accuracy"]),
        "lambda_max": {key: whole[key].item() for key in ("value", "residual", "certified", "matvecs")},
        "effective_samples": effective_number(forms),
    }  # fmt: skip
    for (kind, size), draws in sorted(kept.items()):
        entry = found.setdefault(kind, {})
        if kind == "lambda":
            entry[size] = rules.eigenvalue_summary(draws, whole["value"].item(), len(forms))
            found.setdefault("first_order", {})[size] = rules.first_order(forms, size, FIRST_ORDER)
        elif kind == "trace":
            entry[size] = rules.trace_summary(draws, len(forms))
        elif kind == "cold":
            entry[size] = rules.control_summary(draws, kept["lambda", size])
        else:
            entry[size] = {name: median(draws[0][name].tolist()) for name in ("product", "forms")}
    return found


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
    parser.add_argument("--kinds", nargs="*", default=KINDS, choices=KINDS)
    parser.add_argument("--sizes", nargs="+", type=int, default=list(DRAWS))
    parser.add_argument("--draws", type=int, help="of each size")
    options = parser.parse_args()
    set_up(torch.device("cpu"), 1)
    paths = [options.registry / name / "final.pt" for name in options.networks]
    networks = [Network.of(path, options.data_dir, options.work) for path in paths]
    for kind, size, number in plan(options.kinds, options.sizes, options.draws):
        for network in networks:
            network.draw(kind, size, number)
    record = {
        "schema": "fedscope/benchmark-coverage/1",
        "machine": machine.record(None),
        "networks": dict(zip(options.networks, map(summary, networks), strict=True)),
    }
    write_text(options.json, json.dumps(record, indent=1) + "\n", below=None)
    print(rules.tables(record))


if __name__ == "__main__":
    main()
