"""What a measurement will take: memory counted from one step, and the seconds of a product.

Two Lanczos steps are taken as in the measurement. They build the graphs that it keeps, and show what the
process takes with them and how long a product lasts. What grows afterwards is counted
(:class:`fedscope.workflows.curvature.resources.Vectors`). How many products a certified λ_max takes depends
on the spectrum, and those of a trace on its variance: only the most are known before.
"""

import time

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
from fedscope.process import peak_gpu_memory, peak_memory
from fedscope.records.plan_record import PLAN_SCHEMA, PlanRecord
from fedscope.workflows.curvature.resources import ROWS, Resources, Vectors
from fedscope.workflows.progress import duration
from fedscope.workflows.requests import Request
from fedscope.workflows.sources.problem import Problem


def check_planned(request: Request) -> None:
    if not request.certified or request.clients:
        raise UserError(
            "--dry-run and --memory are for fedscope's own estimators of one network: drop --engine, "
            "--reading code and --clients (--figure of kind clients)"
        )


def planned(
    problem: Problem,
    request: Request,
    operator: LossOperator,
    resources: Resources,
    *,
    limit: int | None = None,
) -> PlanRecord:
    """Return what measuring the request takes, at four products.

    Args:
        problem: network, loss and samples.
        request: what is to be measured.
        operator: the one to be measured.
        resources: what has been chosen.
        limit: bytes that they were chosen for.
    """
    seconds, first, with_forms = _steps(operator, resources)
    n, plan = operator.shape[0], operator.plan
    rows = min(n, resources.rows or n, max(ROWS, STEPS if request.density else 0))
    most = _most(request, operator)
    return PlanRecord.read(
        {
            "schema": PLAN_SCHEMA,
            "checkpoint": str(problem.path),
            "title": problem.title,
            "parameters": n,
            "samples": problem.batches.samples,
            "batches": len(operator.weights or ()),
            "microbatch": plan.microbatch,
            "graphs": plan.graphs,
            "kept": plan.kept,
            "memory": _peak_of(operator, request, resources, rows, first, with_forms),
            "basis": {
                "place": "file" if resources.basis_folder else "memory",
                "rows": rows,
                "bytes": (rows + 1 + SKETCH) * n * operator.dtype.itemsize,
            },
            "block": resources.block or block_size(n),
            "products_most": most,
            "product_seconds": seconds,
            "seconds_most": most * seconds,
            "limit": limit,
        }
    )


def _steps(operator: LossOperator, resources: Resources) -> tuple[float, int, int]:
    """Return the seconds of a product, and the largest memory so far without and with the samples' forms."""
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(operator.shape[0], generator=generator, dtype=torch.float64)
    krylov = Lanczos(
        operator, start, generator=generator, by_batch=True, sketched=SKETCH, folder=resources.basis_folder,
        capacity=3,
    )  # fmt: skip
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


def _peak_of(
    operator: LossOperator, request: Request, resources: Resources, rows: int, first: int, forms: int
) -> int:
    """Return the bytes of the peak: those of two steps, and by how much basis and probes exceed theirs.

    Where a trace may enlarge its basis, probes are kept.
    """
    n, d = operator.shape[0], operator.dtype.itemsize
    vectors, in_file = Vectors(n, d, len(operator.weights or ())), resources.basis_folder is not None
    grown = affordable(operator) if resources.trace_rows is None else resources.trace_rows
    kept = MIN_PROBES if not request.probes and grown else PROBES * request.density
    probes = vectors.probes(resources.block or block_size(n)) + vectors.kept(kept)
    probes += 2 * d * n * request.eigenpairs
    known = resources.rows is not None
    basis = vectors.basis(rows, in_file=in_file, at_once=known) - vectors.basis(2, in_file=in_file)
    return first + basis + max(forms - first, probes - vectors.step(), 0)


def _most(request: Request, operator: LossOperator) -> int:
    """Return the products that the searches give up at; what a trace's basis takes is not among them."""
    parts = len(layer_patterns(operator.names)) * request.layers
    parts += len(block_patterns(operator.names)) * request.blocks + request.preconditioned
    most = most_products(request.eigenpairs) + parts * most_products(1)
    return most + (request.probes or MAX_PROBES) + PROBES * STEPS * request.density


def described(plan: PlanRecord) -> list[str]:
    basis, most = plan.basis, plan.products_most
    return [
        f"{plan.title}: peak memory up to about {_size(plan.memory)}; products of "
        f"{plan.product_seconds:.2g} s, at most {most:,} in {duration(plan.seconds_most)}",
        f"{plan.title}: {plan.microbatch} samples at a time, {plan.kept} of {plan.graphs} graphs kept, basis "
        f"of {basis.rows} rows in {basis.place}, {plan.block} probes together",
    ]


def _size(size: int) -> str:
    return f"{size / 2**30:.2f} GiB" if size >= 2**30 else f"{size / 2**20:.0f} MiB"
