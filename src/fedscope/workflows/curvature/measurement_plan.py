"""What a measurement will take: memory counted from one step, products from the same one on fewer samples.

Two Lanczos steps are taken as in the measurement. They build the graphs that it keeps, and show what the
process takes with them and how long a product lasts. What grows afterwards is counted
(:mod:`fedscope.landscape.spectral.working_memory`).

How many products a certified λ_max takes depends on the spectrum, and those of a trace on its variance. Both
are nearly the same on an eighth of the samples, and so is the number of products: there it is measured.
"""

import time
from collections.abc import Callable
from dataclasses import replace

import torch

from fedscope.choices import MAX_PROBES, MIN_PROBES
from fedscope.errors import UserError
from fedscope.landscape.operators.empirical_risk import LossOperator
from fedscope.landscape.operators.probes import block_size
from fedscope.landscape.spectral.data_error import SKETCH
from fedscope.landscape.spectral.deflation import affordable
from fedscope.landscape.spectral.krylov.lanczos import Lanczos
from fedscope.landscape.spectral.krylov.ritz import most_products
from fedscope.landscape.spectral.layer_blocks import block_patterns, layer_patterns
from fedscope.landscape.spectral.slq_density import PROBES, STEPS
from fedscope.landscape.spectral.working_memory import Vectors
from fedscope.process import peak_gpu_memory, peak_memory
from fedscope.records.plan_record import PLAN_SCHEMA, PlanRecord
from fedscope.workflows.curvature.certified import Certified
from fedscope.workflows.curvature.record import Estimates
from fedscope.workflows.curvature.resources import ROWS, Resources
from fedscope.workflows.progress import duration, silent
from fedscope.workflows.requests import Request
from fedscope.workflows.results.lookup import ALL
from fedscope.workflows.results.result_cache import ResultCache
from fedscope.workflows.sources.problem import Problem

PILOT, LEAST = 8, 128  # the share of the samples, and as many at least, if that is at most half
Curvature = Callable[..., LossOperator]


def check_planned(request: Request) -> None:
    if not request.certified or request.clients:
        raise UserError(
            "--dry-run and --memory are for fedscope's own estimators of one network: drop --engine, "
            "--reading code and --clients (--figure of kind clients)"
        )


def planned(
    problem: Problem,
    request: Request,
    curvature: Curvature,
    operator: LossOperator,
    resources: Resources,
    *,
    limit: int | None = None,
    pilot: bool = True,
) -> PlanRecord:
    """Return what measuring the request takes, at four products and, with ``pilot``, a smaller measurement.

    Args:
        problem: network, loss and samples.
        request: what is to be measured.
        curvature: makes an operator of a network on batches.
        operator: the one to be measured.
        resources: what has been chosen.
        limit: bytes that they were chosen for.
        pilot: estimate the products, by the same request on an eighth of the samples.
    """
    seconds, first, with_forms = _steps(operator, resources)
    found, samples = _pilot(problem, request, curvature) if pilot else (None, None)
    rows = min(operator.shape[0], resources.rows or operator.shape[0], _rows(found, request))
    begun = found.pairs.matvecs if found and found.pairs else 0
    peak = _peak_of(operator, request, resources, rows, begun, first, with_forms)
    products, most = found.matvecs if found else None, _most(request, operator)
    storage, plan = resources.storage, operator.plan
    return PlanRecord.read(
        {
            "schema": PLAN_SCHEMA,
            "checkpoint": str(problem.path),
            "title": problem.title,
            "parameters": operator.shape[0],
            "samples": problem.batches.samples,
            "batches": len(operator.weights or ()),
            "microbatch": plan.microbatch,
            "graphs": plan.graphs,
            "kept": plan.kept,
            "memory": peak,
            "basis": {
                "place": storage.place,
                "rows": rows,
                "bytes": (rows + 1 + SKETCH) * operator.shape[0] * operator.dtype.itemsize,
            },
            "block": resources.block or block_size(operator.shape[0]),
            "products": products,
            "products_most": most,
            "pilot_samples": samples,
            "product_seconds": seconds,
            "seconds": None if products is None else products * seconds,
            "seconds_most": most * seconds,
            "limit": limit,
        }
    )


def _steps(operator: LossOperator, resources: Resources) -> tuple[float, int, int]:
    """Return the seconds of a product, and the largest memory so far without and with the samples' forms."""
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(operator.shape[0], generator=generator, dtype=torch.float64)
    storage = replace(resources.storage, capacity=None)
    krylov = Lanczos(operator, start, generator=generator, by_batch=True, sketched=SKETCH, storage=storage)
    del start
    krylov.step()
    begun = time.perf_counter()
    if operator.shape[0] > 1:
        krylov.step()
    seconds, first = time.perf_counter() - begun, _peak(operator)
    operator.sample_forms(torch.ones(operator.shape[0], dtype=operator.dtype))
    return seconds, first, _peak(operator)


def _peak(operator: LossOperator) -> int:
    return peak_gpu_memory() if operator.device.type == "cuda" else peak_memory()


def _pilot(problem: Problem, request: Request, curvature: Curvature) -> tuple[Estimates, int]:
    batches = problem.batches
    count = max(batches.samples // PILOT, min(batches.samples // 2, LEAST), 1)
    order = torch.randperm(batches.samples, generator=torch.Generator().manual_seed(0))[:count].sort().values
    try:
        fewer = batches.taken(list(order.split(max(batches.sizes))))
    except UserError:  # samples that cannot be joined
        fewer, count = batches, batches.samples
    smaller = replace(problem, batches=fewer)
    operator = curvature(smaller.model, fewer)
    return Certified(smaller, request, curvature, silent, ResultCache(None)).estimates(
        operator, None, ALL
    ), count


def _rows(found: Estimates | None, request: Request) -> int:
    density = STEPS if request.density else 0
    if found is None:
        return max(ROWS, density)
    spent = found.pairs.matvecs if found.pairs else 0
    return max(spent, found.trace.deflated if found.trace else 0, density)


def _peak_of(
    operator: LossOperator,
    request: Request,
    resources: Resources,
    rows: int,
    begun: int,
    first: int,
    forms: int,
) -> int:
    """Return the bytes of the peak: those of two steps, and by how much basis and probes exceed theirs.

    The trace begins with a basis of ``begun`` rows; where it may enlarge it, probes are kept.
    """
    n, d = operator.shape[0], operator.dtype.itemsize
    vectors, storage = Vectors(n, d, len(operator.weights or ())), resources.storage
    grown = affordable(operator) if resources.trace_rows is None else resources.trace_rows
    kept = MIN_PROBES if not request.probes and grown > begun else PROBES * request.density
    probes = vectors.probes(resources.block or block_size(n)) + vectors.kept(kept)
    probes += 2 * d * n * request.eigenpairs
    basis = vectors.basis(rows, storage) - vectors.basis(2, replace(storage, capacity=None))
    return first + basis + max(forms - first, probes - vectors.step(), 0)


def _most(request: Request, operator: LossOperator) -> int:
    """Return the products that the searches give up at; what a trace's basis takes is not among them."""
    parts = len(layer_patterns(operator.names)) * request.layers
    parts += len(block_patterns(operator.names)) * request.blocks + request.preconditioned
    most = most_products(request.eigenpairs) + parts * most_products(1)
    return most + (request.probes or MAX_PROBES) + PROBES * STEPS * request.density


def described(plan: PlanRecord) -> list[str]:
    basis, most = plan.basis, f"at most {plan.products_most:,} products" if plan.products_most else ""
    products = f"products of {plan.product_seconds:.2g} s"
    if plan.products is not None and plan.seconds is not None:
        expected = f"about {plan.products:,} {products}, {duration(plan.seconds)} ({most})"
    else:
        expected = f"{products}, {most}"
    lines = [
        f"{plan.title}: peak memory about {_size(plan.memory)}; {expected}",
        f"{plan.title}: {plan.microbatch} samples at a time, {plan.kept} of {plan.graphs} graphs kept, basis "
        f"of {basis.rows} rows in {basis.place}, {plan.block} probes together",
    ]
    if plan.pilot_samples:
        lines.append(
            f"{plan.title}: the number of products is that of the same request on {plan.pilot_samples:,} of "
            f"{plan.samples:,} samples"
        )
    return lines


def _size(size: int) -> str:
    return f"{size / 2**30:.2f} GiB" if size >= 2**30 else f"{size / 2**20:.0f} MiB"
