"""The record of what was measured of one checkpoint, schema ``fedscope/hessian/1``."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from fedscope.landscape.loss.forms import PLAIN, Form
from fedscope.landscape.operators.products.finite_differences import FiniteDifferences
from fedscope.landscape.published.estimators import Loader
from fedscope.landscape.spectral.spectral_results import Density, Eigenpairs, Trace
from fedscope.records.entries import Record, density_entry, eigenvalues, trace_entry
from fedscope.records.hessian_record import HESSIAN_SCHEMA, HessianRecord, PreconditionedEntry
from fedscope.workflows.curvature.compared_clients import ClientComparison
from fedscope.workflows.requests import Request, Resampling
from fedscope.workflows.results.lookup import trimmed
from fedscope.workflows.sources.problem import Problem


@dataclass(frozen=True)
class Estimates:
    """What was measured; None where an earlier record has it, or it was not asked for."""

    pairs: Eigenpairs | None = None
    trace: Trace | None = None
    density: Density | None = None
    clients: ClientComparison | None = None
    loader: Loader | None = None  # of reading code
    layers: Mapping[str, Eigenpairs] | None = None
    blocks: Mapping[str, Eigenpairs] | None = None
    preconditioned: PreconditionedEntry | None = None
    form: Form = PLAIN  # of the products
    departs: str = ""  # see ``LossOperator``
    batch_sizes: tuple[int, ...] = ()  # of the products
    seconds: float = 0.0  # that it took
    differences: FiniteDifferences | None = None  # that the products were; None: exact

    @property
    def matvecs(self) -> int:
        parts = (
            self.pairs, self.trace, self.density, self.clients, self.preconditioned,
            *(self.layers or {}).values(), *(self.blocks or {}).values(),
        )  # fmt: skip
        return sum(part.matvecs for part in parts if part)

    def entries(self, request: Request) -> Record:
        """Return the fields of the record that were measured."""
        found: Record = {}
        if self.pairs:
            values = eigenvalues(self.pairs)
            found |= {
                "lambda_max": values[0],
                "eigenvalues": _ends(values, request),
                "both_ends": request.both_ends,  # the last half of these are the smallest
                "converged": self.pairs.converged if request.certified else None,
                "noise": self.pairs.noise if math.isfinite(self.pairs.noise) else None,
            }
        for name, parts in (("layers", self.layers), ("blocks", self.blocks)):
            if parts:
                found[name] = [{"name": own, **eigenvalues(pairs)[0]} for own, pairs in parts.items()]
        if self.trace:
            found["trace"] = trace_entry(self.trace, converged=_reached(self.trace, request))
        if self.density:
            found["density"] = density_entry(self.density)
        if self.preconditioned:
            found["preconditioned"] = self.preconditioned.to_json()
        if self.clients:
            found["cross_client"] = self.clients.record()
        return found


FIELDS = (
    "lambda_max", "eigenvalues", "both_ends", "layers", "blocks", "converged", "noise", "trace", "density",
    "preconditioned", "cross_client",
)  # fmt: skip
"""Of a record, those that are measured or an earlier record's, in their order."""


def problem_entry(problem: Problem, request: Request) -> Record:
    products = request.products if request.products != "exact" else ""
    return problem.entry(
        bn=request.bn, operator=request.operator, parameters=" ".join(request.parameters), products=products,
        engine=request.engine, reading=request.reading,
    )  # fmt: skip


def measured_record(
    problem: Problem, request: Request, found: Estimates, earlier: HessianRecord | None = None
) -> Record:
    known = trimmed(earlier, request).to_json() if earlier else {}
    fields = {**{name: known.get(name) for name in FIELDS}, **found.entries(request)}
    if not fields["blocks"]:
        del fields["blocks"]
    departs = {"departs": found.departs} if found.departs else {}
    loader = _resampled(problem, found.loader, request.resampling) if found.loader else {}
    return {
        "schema": HESSIAN_SCHEMA,
        "checkpoint": problem.checkpoint,
        "samples_sha256": problem.batches.sha256,
        "batch_sizes": found.batch_sizes,
        "problem": {**problem_entry(problem, request), **found.form.entry, **loader, **departs},
        **fields,
        **({"step": found.differences.step.length} if found.differences else {}),
        "matvecs": found.matvecs + known.get("matvecs", 0),
        "seconds": found.seconds + known.get("seconds", 0.0),
        "versions": dict(request.versions or {}),
    }


def _ends(entries: list[Record], request: Request) -> list[Record]:
    top, bottom = entries[: request.top_k], entries[len(entries) - request.top_k :]
    return [*top, *bottom] if request.both_ends else top


def _reached(total: Trace, request: Request) -> bool | None:
    if not request.estimates_trace:
        return None
    return bool(request.probes or total.stderr_probe + total.error <= request.trace_rtol * abs(total.value))


def _resampled(problem: Problem, source: Loader, resampling: Resampling) -> Record:
    pipeline = problem.info.data.augmentation if problem.info and resampling.augment else "none"
    return {
        "samples": source.samples,
        "batch_size": source.batch_size,
        "product_batches": source.batches,
        "resample": resampling.resample,
        "augmentation": pipeline,
        "seed": resampling.seed,
    }
