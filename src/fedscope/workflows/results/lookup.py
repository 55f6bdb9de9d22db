"""Which parts of a request an earlier record answers: eigenvalues, trace, layers, blocks, density, clients.

A record answers for weights and samples by their hashes, and for the estimators by its own errors: residuals,
standard errors and intervals as small as are asked for now.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from fedscope.choices import MIN_PROBES
from fedscope.records.estimates import Eigenvalue, EstimateEntry
from fedscope.records.hessian_record import HessianRecord, Layer
from fedscope.records.saved_records import Kept, precision
from fedscope.workflows.requests import Request

Part = Literal["eigenvalues", "trace", "layers", "blocks", "density", "preconditioned", "cross_client"]
# Of a problem, what changes rounding or speed alone, or follows from network and data.
_LABELS = ("device", "threads", "form", "form_reason", "notes", "departs", "whole")


@dataclass(frozen=True)
class Criteria:
    """What a record must be of: weights, problem, samples, the program's version, and the clients' files."""

    sha256: str
    problem: Mapping[str, object]  # as of :func:`asked_of`
    version: str | None  # None: any
    samples: str  # the hash of inputs and targets
    uploads: Mapping[str, str]  # where clients are compared; names and hashes
    rows: str | None = None  # the hash of which rows they hold, where that is known
    operator: str | None = None  # its identity; where the code of network and loss has no name
    more_probes: bool = False  # a fixed number of probes is a least number


def asked_of(problem: Mapping[str, object]) -> dict[str, object]:
    """Return what of a record's ``problem`` tells it from others."""
    return {k: v for k, v in problem.items() if k not in _LABELS and v is not None}


def earlier(records: Iterable[Kept], request: Request, criteria: Criteria) -> HessianRecord | None:
    """Return the record that meets the criteria and lacks the fewest parts of a request.

    Of several, the one with the least that was not asked for, so that a question gets its own answer again,
    and then the most precise. None where no record has eigenvalues or a trace that will do.
    """
    if not request.certified:
        return None
    found = [
        (lacking(record, request, criteria), record)
        for record in records
        if isinstance(record, HessianRecord) and meets(record, criteria)
    ]
    needed = asked(request) & {"eigenvalues", "trace"}
    _, best = max(
        (one for one in reversed(found) if not needed <= one[0]),  # of equals the last
        key=lambda one: (-len(one[0]), -_beyond(one[1], request), precision(one[1])),
        default=(asked(request), None),
    )
    return best


def meets(record: HessianRecord, criteria: Criteria) -> bool:
    return (
        record.checkpoint.sha256 == criteria.sha256
        and record.samples_sha256 == criteria.samples
        and criteria.operator in (None, record.operator_sha256)
        and asked_of(record.problem.to_json()) == criteria.problem
        and criteria.version in (None, record.versions.get("fedscope"))
    )


def lacking(record: HessianRecord | None, request: Request, criteria: Criteria) -> set[Part]:
    """Return the parts of a request that a record lacks; without a record all of them."""
    return {name for name in asked(request) if not (record and PARTS[name](record, request, criteria))}


def asked(request: Request) -> set[Part]:
    optional: dict[Part, bool] = {
        "trace": not request.only, "layers": request.layers, "blocks": request.blocks,
        "density": request.density, "preconditioned": request.preconditioned, "cross_client": request.clients,
    }  # fmt: skip
    return {name for name in PARTS if optional.get(name, True)}


def trimmed(record: HessianRecord, request: Request) -> HessianRecord:
    upper, lower = record.ends
    chosen = [*upper[: request.top_k], *(lower[len(lower) - request.top_k :] if request.both_ends else ())]
    return record.edited(
        **dict.fromkeys(_unasked(record, request), None),
        eigenvalues=[one.to_json() for one in chosen],
        both_ends=request.both_ends,
    )


def _unasked(record: HessianRecord, request: Request) -> list[Part]:
    held = record.to_json()
    return [name for name in PARTS if name not in asked(request) and held.get(name) is not None]


def _beyond(record: HessianRecord, request: Request) -> int:
    held, asked = sum(map(len, record.ends)), request.top_k * (2 if request.both_ends else 1)
    return (abs(held - asked) if request.as_kept else max(0, held - asked)) + len(_unasked(record, request))


def _has_eigenvalues(record: HessianRecord, request: Request, _criteria: Criteria) -> bool:
    (upper, lower), k = record.ends, request.top_k
    if request.as_kept:
        k = min(k, len(upper))
    if record.converged is not True or len(upper) < k or (request.both_ends and len(lower) < k):
        return False
    used = (*upper[:k], *lower)
    if not request.warm and any(one.certified is False for one in used):  # None: not stated
        return False
    return all(_is_fine(one, request, record.lambda_max) for one in used)


def _is_fine(one: Eigenvalue, request: Request, relative_to: Eigenvalue) -> bool:
    return one.residual <= request.tol * abs(relative_to.value)  # never, of an unknown residual


def _has_each(parts: Sequence[Layer], request: Request) -> bool:
    return bool(parts) and all(_is_fine(one, request, one) for one in parts)


def _has_preconditioned(record: HessianRecord, request: Request, _criteria: Criteria) -> bool:
    found = record.preconditioned
    return bool(found and found.converged and _is_fine(found.lambda_max, request, found.lambda_max))


def _has_trace(record: HessianRecord, request: Request, criteria: Criteria) -> bool:
    trace, probes = record.trace, request.probes
    if trace is None:
        return False
    if probes is not None:
        return trace.probes >= probes if criteria.more_probes else trace.probes == probes
    sure = trace.converged is True and trace.probes >= MIN_PROBES
    return sure and trace.stderr_probe <= request.trace_rtol * abs(trace.value)


def _has_clients(record: HessianRecord, request: Request, criteria: Criteria) -> bool:
    cross, options = record.cross_client, request.cross_client.settled(request.reading)
    if not cross or cross.uploads is None or not isinstance(cross.probes, int):
        return False
    if (options.weights, options.data, options.pairs) != (cross.weights, cross.data, cross.pairs):
        return False
    if options.weights == "client" and not criteria.uploads.items() <= cross.uploads.items():
        return False
    if criteria.rows and cross.rows_sha256 not in (None, criteria.rows):  # drawn again by another numpy
        return False
    if options.overlap and options.overlap != cross.overlap_k:
        return False
    if options.probes is not None:
        return cross.probes >= options.probes if criteria.more_probes else cross.probes == options.probes
    means = (cross.mean("H_N", options.aim), cross.mean("H_D", options.aim))
    return bool(cross.converged) and all(_reach(mean) <= options.rtol for mean in means)


def _reach(mean: EstimateEntry | None) -> float:
    """Return the half-width of an interval, relative to the value."""
    if not mean or not mean.value or mean.interval is None:
        return math.inf
    low, high = mean.interval
    return (high - low) / 2 / abs(mean.value)


PARTS: Mapping[Part, Callable[[HessianRecord, Request, Criteria], bool]] = {
    "eigenvalues": _has_eigenvalues,
    "trace": _has_trace,
    "layers": lambda record, request, _: _has_each(record.layers, request),
    "blocks": lambda record, request, _: _has_each(record.blocks, request),
    "density": lambda record, *_: bool(record.density),
    "preconditioned": _has_preconditioned,
    "cross_client": _has_clients,
}
"""Of each part, whether a record has it as well as a request asks for it."""
