"""The curvature engine and its peers: one network, the same weights and batches, the same achieved error.

    pip install -c constraints.txt torch pyhessian hessian-eigenthings==1.0.0a5 -e .
    pip install --no-deps curvlinops-for-pytorch==3.0.1 backpack-for-pytorch linear_operator einops einconv \
        jaxtyping wadler-lindig unfoldNd opt-einsum
    python benchmarks/curvature.py --checkpoint CKPT --data-dir DIR --json benchmarks/curvature.json

``product``: seconds of one Hessian-vector product, and per vector of a block of 8, contestants taking turns;
a ratio is the median over the turns of the ratios within a turn. Every other group counts products: a peer's
own algorithm runs on fedscope's product (all products agree to rounding, which ``product`` checks), with the
stopping tolerance that a user with hindsight would choose, the loosest that reaches the error asked for. Its
seconds are its products at its own seconds per product, ours are our products at ours; the clock over whole
runs of ours is recorded beside them.

PyHessian's and hessian-eigenthings' eigenpairs are found on the operator compressed to the Krylov space that
held ours, where thousands of products are affordable: it has the same large eigenvalues, and a random start
there is nearer to them than one in the whole space, which favours the peers.
"""

import argparse
import copy
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import curvature_peers as peers
import groups
import machine
import torch
from groups import Result
from tables import row
from torch import Tensor

from fedscope.landscape import Hessian, top_eigenpairs, trace
from fedscope.process import set_up
from fedscope.workflows.sources.problem import Problem

TOL = 1e-3  # residual relative to λ_max
RTOL = 0.01  # standard error of the trace relative to its value
BLOCK = 8


class Bench:
    """The problem and every contestant's product on it."""

    def __init__(self, problem: Problem):
        self.problem = problem
        self.ours = Hessian(problem.model, problem.loss_fn, problem.batches)
        self.n = self.ours.shape[0]

    def products(self) -> dict[str, peers.Matvec]:
        """Return the contestants' products; each has a model of its own."""
        problem = self.problem

        def own() -> Any:
            return copy.deepcopy(problem.model).eval().requires_grad_(True)

        return {
            "fedscope": self.ours.matvec,
            "PyHessian": peers.pyhessian_product(own(), problem.loss_fn, problem.batches),
            "hessian-eigenthings": peers.eigenthings_product(own(), problem.loss_fn, problem.batches),
            "curvlinops": peers.curvlinops_product(own(), problem.batches),
        }

    def counted(self) -> peers.Counted:
        """Return fedscope's product, counting."""
        return peers.Counted(self.ours.matvec, self.n)

    def residual(self, vectors: Tensor) -> float:
        """Return the largest residual of these (n, k) vectors, relative to the largest eigenvalue."""
        return residual_of(vectors, self.ours.matvec)


def timed(call: Callable[[], Any]) -> tuple[Any, float]:
    """Return what a call returns, and its seconds."""
    before = perf_counter()
    return call(), perf_counter() - before


def product_group(bench: Bench, turns: int) -> Result:
    """Time one product, and a block's product per vector, in turns."""
    generator = torch.Generator().manual_seed(0)
    block = torch.randn(BLOCK, bench.n, generator=generator)
    contestants = bench.products()
    v, columns = block[0], block.T.contiguous()
    reference = bench.ours.matvec(v)
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    agreement: dict[str, float] = {}
    for turn in range(turns + 1):
        for name, product in contestants.items():
            image, spent = timed(partial(product, v))
            if turn:  # the first is the warm-up
                seconds[name].append(spent)
            agreement[name] = float((image - reference).norm() / reference.norm())
    blocks: dict[str, Callable[[], object]] = {
        "fedscope": partial(bench.ours.products, block),
        "curvlinops": partial(contestants["curvlinops"], columns),
    }
    per_vector: dict[str, list[float]] = {name: [] for name in blocks}
    for _ in range(max(2, turns // 2)):
        for name, call in blocks.items():
            per_vector[name].append(timed(call)[1] / BLOCK)
    return {
        "seconds": seconds,
        "seconds_per_vector_of_8": per_vector,
        "relative_difference_to_fedscope": agreement,
        "peak_bytes": peaks(list(contestants)),
        "times_fedscope": {
            name: median(other / ours for other, ours in zip(values, seconds["fedscope"], strict=True))
            for name, values in seconds.items()
        },
    }


def peaks(names: list[str]) -> dict[str, int]:
    """Return what two products add to the largest resident size, each contestant in a process of its own."""
    return {
        name: int(subprocess.check_output([sys.executable, *sys.argv, "--peak", name], text=True))
        for name in names
    }


def peak(bench: Bench, name: str) -> int:
    """Return what two products of this process add to its largest resident size, in bytes."""
    product, v = bench.products()[name], torch.randn(bench.n)
    Path("/proc/self/clear_refs").write_text("5")  # the peak is counted from here
    before = peak_memory()
    product(v)
    product(v)
    return peak_memory() - before


def peak_memory() -> int:
    """Return this process's largest resident size in bytes since it was last reset (Linux)."""
    line = next(x for x in Path("/proc/self/status").read_text().splitlines() if x.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def eigen_group(bench: Bench, k: int) -> Result:
    """Count the products to k eigenpairs with residuals of at most ``TOL``."""
    ours, seconds = timed(lambda: top_eigenpairs(bench.ours, k=k, tol=TOL))
    found: Result = {
        "fedscope": {
            "products": ours.matvecs, "residual": bench.residual(ours.vectors), "clock": seconds,
            "values": [float(ours.values[0]), float(ours.values[-1])],
        }
    }  # fmt: skip
    product = bench.counted()
    # eigsh's tolerance is relative to each eigenvalue: the loosest that gives the k-th the error asked for
    tol = TOL * float(ours.values[0] / ours.values[-1])
    vectors = peers.scipy_eigsh(product, k=k, tol=tol)
    found["curvlinops + eigsh"] = {
        "products": product.calls, "residual": bench.residual(vectors), "setting": tol
    }  # fmt: skip
    assert ours.subspace is not None
    small = ours.subspace.projected.float()
    steps, tolerances = range(k + 1, len(small) + 1), (1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-9)
    found["hessian-eigenthings"] = loosest(
        small, steps, lambda product, count: peers.eigenthings_lanczos(product, k=k, steps=count)
    )
    found["PyHessian"] = loosest(
        small, tolerances, lambda product, tol: peers.power_iteration(product, k=k, tol=tol, most=10_000)
    )
    return found


def loosest(matrix: Tensor, choices: Any, run: Callable[[peers.Counted, Any], Tensor]) -> Result:
    """Return the first choice's products whose vectors reach ``TOL``, on the compressed operator."""
    for choice in choices:
        product = peers.Counted(lambda v: matrix @ v, len(matrix))
        residual = residual_of(run(product, choice), lambda v: matrix @ v)
        if residual <= TOL:
            break
    return {
        "products": product.calls, "residual": residual, "setting": choice, "compressed_to": len(matrix)
    }  # fmt: skip


def residual_of(vectors: Tensor, matvec: peers.Matvec) -> float:
    """Return the largest residual of these (n, k) vectors, relative to the largest eigenvalue."""
    units = (vectors / vectors.norm(dim=0)).double()
    images = torch.stack([matvec(v.float()).double() for v in units.T], dim=1)
    values = (units * images).sum(0)
    return float((images - units * values).norm(dim=0).max() / values.abs().max())


def trace_group(bench: Bench) -> Result:
    """Count the products to a trace with a standard error of ``RTOL``, alone and together with λ_max."""

    def ours() -> Any:
        return trace(bench.ours, rtol=RTOL)

    def both() -> Any:
        pairs = top_eigenpairs(bench.ours, tol=TOL)
        return pairs, trace(bench.ours, rtol=RTOL, known=pairs.subspace)

    alone, seconds = timed(ours)
    (pairs, total), clock = timed(both)
    found: Result = {
        "fedscope, trace alone": {**estimate(alone), "clock": seconds},
        "fedscope, λ_max and trace": {
            **estimate(total), "products": pairs.matvecs + total.matvecs, "clock": clock,
            "residual": bench.residual(pairs.vectors),
        },
    }  # fmt: skip
    product, sketch = bench.counted(), 40
    value, error = peers.eigenthings_trace(product, method="hutch++", products=3 * sketch, seed=0)
    found["Hutch++ (hessian-eigenthings)"] = {
        "products": round(2 * sketch + sketch * (error / (RTOL * abs(value))) ** 2),
        "from": f"a sketch of {sketch} and {sketch} probes: a standard error of {error:.3g} on {value:.4g}; "
        "the same sketch with as many probes as are needed",
    }
    product, count = bench.counted(), 40
    value, error = peers.eigenthings_trace(product, method="hutchinson", products=count, seed=0)
    found["Hutchinson"] = {
        "products": round(count * (error / (RTOL * abs(value))) ** 2),
        "from": f"{count} products with a standard error of {error:.3g} on {value:.4g}; errors fall as 1/√M",
    }
    return found


def estimate(total: Any) -> Result:
    """Return a trace's figures."""
    return {
        "products": total.matvecs,
        "value": total.value,
        "stderr": total.stderr_probe,
        "probes": total.probes,
    }


def main() -> None:
    """Measure the chosen groups and keep the record after each."""
    parser = groups.parser(__doc__, batch_size=125, groups="product, top1, top20, trace")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--peak", help=argparse.SUPPRESS)  # for the processes of ``peaks``
    options = parser.parse_args()
    set_up(torch.device("cpu"), options.threads)
    problem = groups.problem_of(options)
    bench = Bench(problem)
    if options.peak:
        print(peak(bench, options.peak))
        return
    chosen: dict[str, Callable[[], Result]] = {
        "product": lambda: product_group(bench, options.turns),
        "top1": lambda: eigen_group(bench, 1),
        "trace": lambda: trace_group(bench),
        "top20": lambda: eigen_group(bench, 20),
    }
    about = {"tol": TOL, "rtol": RTOL, "threads": options.threads, "parameters": bench.n}
    entry = groups.measured(
        options, "curvature", problem, chosen,
        lambda result: {"contestants": result, **about, "machine": machine.record(None)},
    )  # fmt: skip
    print(tables(entry))


def tables(entry: Result) -> str:
    """Return a network's record as Markdown."""
    lines: list[str] = []
    cost: dict[str, float] = {}
    if "product" in entry:
        found = entry["product"]["contestants"]
        cost = {name: median(values) for name, values in found["seconds"].items()}
        lines += [row(["one product", "seconds", "× fedscope", "per vector of 8", "peak GB", "differs by"])]
        lines += [row(["---", *["---:"] * 5])]
        for name, seconds in cost.items():
            block = found["seconds_per_vector_of_8"].get(name)
            cells = [
                f"{seconds:.2f}",
                f"{found['times_fedscope'][name]:.2f}",
                f"{median(block):.2f}" if block else "",
                f"{found['peak_bytes'].get(name, 0) / 1e9:.2f}",
                f"{found['relative_difference_to_fedscope'][name]:.0e}",
            ]
            lines.append(row([name, *cells]))
    for group in ("top1", "top20", "trace"):
        if group in entry:
            lines += ["", row([group, "products", "seconds", "reached"]), row(["---", *["---:"] * 3])]
            lines += [line(name, result, cost) for name, result in entry[group]["contestants"].items()]
    return "\n".join(lines)


def line(name: str, result: Result, cost: dict[str, float]) -> str:
    """Return a contestant's row: its products at its own seconds per product."""
    owner = next((known for known in cost if known in name), "fedscope" if name == "Hutchinson" else "")
    seconds = f"{result['products'] * cost[owner]:.0f}" if owner in cost else ""
    reached = f"{result['residual']:.1e}" if "residual" in result else ""
    if "stderr" in result and not reached:
        reached = f"{result['value']:.5g} ± {result['stderr']:.2g}"
    return row([name, f"{result['products']:,}", seconds, reached])


if __name__ == "__main__":
    main()
