"""λ_max and the trace by fedscope's and PyHessian's own algorithms, with the clock's seconds.

A contestant has ``patience`` seconds. fedscope gets no more products or probes than it can make in them, so
that its result says how far it came; the products that deflate the trace are not among those, and the run is
stopped after ``LONGEST`` times the patience. PyHessian is stopped without a result.
"""

from collections.abc import Callable
from dataclasses import dataclass
from statistics import fmean, stdev
from time import perf_counter
from typing import Any

import curvature_peers as peers
import torch
from engine_bench import Bench, Result, attempt, timed
from torch import Tensor

from fedscope.landscape import top_eigenpairs, trace

TOL, RTOL = 1e-3, 0.01  # residual / λ_max, standard error / trace
LEAST, LONGEST = 20, 2


class Stopped(Exception):
    """A contestant's time is over."""


@dataclass
class Limit:
    """What fedscope calls after every product, to stop it when its time is over."""

    seconds: float

    def __post_init__(self) -> None:
        self.begun = perf_counter()

    def __call__(self, done: int, _: int | None, *text: str) -> None:
        """Stop a run that takes too long."""
        if perf_counter() - self.begun > self.seconds:
            raise Stopped(" ".join([f"stopped after {done} products and {self.seconds:g} s", *text]))


@dataclass
class Limited:
    """PyHessian's product, counting its calls until its time is over."""

    product: Callable[[Any], Any]
    patience: float
    calls: int = 0

    def __post_init__(self) -> None:
        self.begun = perf_counter()

    def __call__(self, v: Any) -> Any:
        """Return the product."""
        if perf_counter() - self.begun > self.patience:
            raise Stopped(f"stopped after {self.calls} products and {self.patience:g} s")
        self.calls += 1
        return self.product(v)


def affordable(bench: Bench, patience: float) -> int:
    """Return how many of fedscope's products the time is enough for, and let it begin anew."""
    v = torch.ones(bench.n, device=bench.device)
    bench.ours.matvec(v)
    most = max(LEAST, int(patience / timed(lambda: bench.ours.matvec(v))[1]))
    bench.renew()
    return most


def top1_group(bench: Bench, patience: float) -> Result:
    """Find λ_max."""

    def ours() -> Result:
        most = affordable(bench, patience)
        pairs, seconds = timed(lambda: top_eigenpairs(bench.ours, tol=TOL, max_matvecs=most))
        found = {"seconds": seconds, "products": pairs.matvecs, "value": float(pairs.values[0])}
        return found | {"residual": residual(bench, pairs.vectors[:, 0]), "converged": bool(pairs.converged)}

    def pyhessian() -> Result:
        engine = bench.pyhessian()
        limited = engine.dataloader_hv_product = Limited(engine.dataloader_hv_product, patience)
        torch.manual_seed(0)
        (values, vectors), seconds = timed(lambda: engine.eigenvalues(maxIter=100, tol=1e-3, top_n=1))
        found = {"seconds": seconds, "products": limited.calls, "value": values[0]}
        return found | {"residual": residual(bench, peers.flat(vectors[0]))}

    return {"fedscope": attempt(ours), "PyHessian": attempt(pyhessian)}


def residual(bench: Bench, vector: Tensor) -> float:
    """Return ‖Hv − θv‖/|θ| of a vector (n,) scaled to length 1, with θ = vᵀHv."""
    v = (vector / vector.norm()).to(bench.device)
    image = bench.ours.matvec(v).double()
    value = v.double() @ image
    return float((image - value * v).norm() / value.abs())


def trace_group(bench: Bench, patience: float) -> Result:
    """Estimate the trace."""

    def ours() -> Result:
        most = affordable(bench, patience)
        total, seconds = timed(
            lambda: trace(bench.ours, rtol=RTOL, max_probes=most, progress=Limit(LONGEST * patience))
        )
        found = {"seconds": seconds, "products": total.matvecs, "probes": total.probes}
        return found | {"value": total.value, "stderr": total.stderr_probe}

    def pyhessian() -> Result:
        engine = bench.pyhessian()
        limited = engine.dataloader_hv_product = Limited(engine.dataloader_hv_product, patience)
        torch.manual_seed(0)
        forms, seconds = timed(lambda: engine.trace(maxIter=100, tol=1e-3))
        found = {"seconds": seconds, "products": limited.calls, "value": fmean(forms)}
        return found | {"stderr": stdev(forms) / len(forms) ** 0.5}

    return {"fedscope": attempt(ours), "PyHessian": attempt(pyhessian)}
