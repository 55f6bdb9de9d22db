"""What a measurement will take: memory counted from sizes, and the seconds of a product."""

from collections.abc import Set

import torch

from fedscope.choices import MIN_PROBES
from fedscope.errors import UserError
from fedscope.landscape.operators.empirical_risk import LossOperator
from fedscope.landscape.operators.probes import block_size
from fedscope.landscape.operators.products.graph_cache import GraphPlan
from fedscope.landscape.spectral.data_error import SKETCH
from fedscope.landscape.spectral.deflation import affordable
from fedscope.landscape.spectral.layer_blocks import block_patterns, layer_patterns
from fedscope.landscape.spectral.slq_density import PROBES, STEPS
from fedscope.process import peak_gpu_memory, peak_memory, seconds_of
from fedscope.records.plan_record import PLAN_SCHEMA, PlanRecord
from fedscope.workflows.curvature.resources import ROWS, Resources, Vectors, size_text
from fedscope.workflows.progress import about
from fedscope.workflows.requests import Request
from fedscope.workflows.results.lookup import Part, asked
from fedscope.workflows.sources.problem import Problem

SEARCH, FURTHER = 15, 5  # typical products of a certified λ_max, and of each eigenpair more


def check_planned(request: Request, memory: int | None) -> None:
    if not request.certified or (memory and request.clients):
        raise UserError(
            "--dry-run and --memory are for fedscope's own estimators, --memory for those of one network: "
            "drop --engine and --reading code, and with --memory --clients (--figure of kind clients)"
        )


def planned(
    problem: Problem,
    request: Request,
    operator: LossOperator,
    resources: Resources,
    *,
    missing: Set[Part],
    clients: int,
    limit: int | None = None,
) -> PlanRecord:
    """Return what it takes to measure what is ``missing``, beside so many clients that are compared."""
    n, d, plan = operator.shape[0], operator.dtype.itemsize, operator.plan
    v = torch.ones(n, dtype=operator.dtype, device=operator.device)
    seconds_of(lambda: operator @ v)  # which makes the graphs
    seconds = seconds_of(lambda: operator @ v)
    operator.sample_forms(v)
    products = _products(request, operator, missing)
    rows = min(n, resources.rows or n, max(ROWS, STEPS if request.density else 0))
    block, vectors = resources.block or block_size(n), Vectors(n, d, len(operator.weights or ()))
    grown = affordable(operator) if resources.trace_rows is None else resources.trace_rows
    kept = MIN_PROBES if grown and not request.probes else PROBES * request.density
    beside = vectors.probes(block) + vectors.kept(kept) + 2 * d * n * request.eigenpairs
    peak = peak_gpu_memory() if operator.device.type == "cuda" else peak_memory()
    return PlanRecord.read(
        {
            "schema": PLAN_SCHEMA,
            "checkpoint": str(problem.path),
            "title": problem.title,
            "parameters": n,
            "samples": problem.batches.samples,
            "batches": len(operator.weights or ()),
            "clients": clients,
            "reused": sorted(asked(request) - missing),
            "microbatch": plan.microbatch,
            "graphs": plan.graphs,
            "kept": plan.kept,
            "memory": peak + vectors.basis(rows, in_file=resources.basis_folder is not None) + beside,
            "basis": {
                "place": "file" if resources.basis_folder else "memory",
                "rows": rows,
                "bytes": (rows + 1 + SKETCH) * n * d,
            },
            "block": block,
            "products": products,
            "product_seconds": seconds,
            "seconds": products * seconds,
            "limit": limit,
        }
    )


def _products(request: Request, operator: LossOperator, missing: Set[Part]) -> int:
    """Return the products that what is missing typically takes, but for those of clients."""
    typical: dict[Part, int] = {
        "eigenvalues": SEARCH + FURTHER * (request.eigenpairs - 1),
        "trace": request.probes or MIN_PROBES,
        "layers": SEARCH * len(layer_patterns(operator.names)),
        "blocks": SEARCH * len(block_patterns(operator.names)),
        "density": PROBES * STEPS,
        "preconditioned": SEARCH,
    }
    searched: set[Part] = {"eigenvalues"} if "trace" in missing else set()  # by whose basis it is deflated
    return sum(count for part, count in typical.items() if part in missing | searched)


def described(plan: PlanRecord) -> list[str]:
    title, parts = plan.title, " and ".join(plan.reused)
    times = "some five" if plan.basis.place == "file" else "one to three"  # benchmarks/plan.json
    lines = [
        f"{title}: {plan.samples:,} samples, {plan.parameters:,} parameters",
        f"{title}: peak memory up to about {size_text(plan.memory)}; products of "
        f"{plan.product_seconds:.2g} s, typically {plan.products:,} in {about(plan.seconds)}, "
        f"the whole in {times} times that",
        choice(title, plan, plan.basis.rows, plan.basis.place, plan.block),
    ]
    if parts:
        lines.append(f"{title}: {parts} are taken from a kept result")
    if plan.clients:
        lines.append(f"{title}: H_N and H_D of {plan.clients} clients besides, by products of their own")
    return lines


def choice(title: str, plan: GraphPlan | PlanRecord, rows: int, place: str, block: int) -> str:
    return (
        f"{title}: {plan.microbatch} samples at a time, {plan.kept} of {plan.graphs} graphs kept, basis of "
        f"{rows} rows in {place}, {block} probes together"
    )
