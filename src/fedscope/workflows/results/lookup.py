"""Which parts of a request an earlier record answers: eigenvalues, trace, layers, blocks, density, clients.

Neither checkpoints nor PyTorch are loaded to find one. A record answers for weights and samples by their
hashes, and for the estimators by its own errors: residuals, standard errors and intervals as small as are
asked for now.
"""

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from fedscope.choices import MIN_PROBES
from fedscope.errors import UserError
from fedscope.records.estimates import EstimateEntry
from fedscope.records.hessian_record import HessianRecord
from fedscope.records.saved_records import Kept, precision, stored_record
from fedscope.storage import read_text
from fedscope.workflows.requests import Request

Part = Literal["eigenvalues", "trace", "layers", "blocks", "density", "preconditioned", "cross_client"]
# Of a problem, named only where it is not as usual: a record that names one answers for no other.
_UNUSUAL = ("parameters", "loss", "augmented", "normalisation", "products")
# Of a problem, what changes rounding or speed alone, or follows from network and data.
_LABELS = ("device", "threads", "form", "form_reason", "notes", "departs", "whole")


@dataclass(frozen=True)
class Criteria:
    """What a record must be of: weights, problem, samples, the program's version, and the clients' files."""

    sha256: str
    problem: Mapping[str, object]  # as of :func:`asked_of`
    version: str | None  # None: any
    uploads: Mapping[str, str]  # where clients are compared; names and hashes
    rows: str | None = None  # the hash of which rows they hold, where that is known
    samples: str | None = None  # the hash of inputs and targets; None: not known without reading them
    run: str | None = None  # whose checkpoint it must name; where the samples' hash is not known
    more_probes: bool = False  # a fixed number of probes is a least number


def asked_of(problem: Mapping[str, object]) -> dict[str, object]:
    """Return what a record's ``problem`` must have, to answer for these entries of one."""
    return {**dict.fromkeys(_UNUSUAL), **{k: v for k, v in problem.items() if k not in _LABELS}}


class Earlier(NamedTuple):
    """A kept record, and the parts of a request that it lacks."""

    record: HessianRecord
    missing: Set[Part]


def earlier(records: Iterable[Kept], request: Request, criteria: Criteria) -> Earlier | None:
    """Return the record that meets the criteria and lacks the fewest parts of a request.

    Of several, the one with the least that was not asked for, so that a question gets its own answer again,
    and then the most precise. None where no record has eigenvalues or a trace that will do.
    """
    if not request.certified:
        return None
    found = [
        Earlier(record, lacking(record, request, criteria))
        for record in records
        if isinstance(record, HessianRecord) and meets(record, criteria)
    ]
    found = [one for one in found if not {"eigenvalues", "trace"} <= one.missing]
    return max(
        reversed(found),  # of equals the last
        key=lambda one: (-len(one.missing), -_beyond(one.record, request), precision(one.record)),
        default=None,
    )


def meets(record: HessianRecord, criteria: Criteria) -> bool:
    known = record.problem.to_json()
    return (
        record.checkpoint.sha256 == criteria.sha256
        and criteria.samples in (None, record.samples_sha256)
        and criteria.run in (None, record.checkpoint.run)
        and all(known.get(name) == value for name, value in criteria.problem.items())
        and criteria.version in (None, record.versions.get("fedscope"))
    )


def results(folder: Path, sha256: str | None = None) -> list[Kept]:
    """Return every result that can be read and names the hash ``sha256``, in the order of being kept."""
    files = sorted(folder.glob("*.json"), key=lambda path: (_kept(path), path.name))
    return [record for path in files if (record := read(path, sha256)) is not None]


def _kept(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:  # it was removed meanwhile
        return 0


def read(path: Path, sha256: str | None = None) -> Kept | None:
    """Return the result in a file; None where it is damaged, or nowhere names the hash ``sha256``."""
    try:
        text = read_text(path)
        if sha256 is not None and sha256 not in text:
            return None
        found = json.loads(text)
    except (UserError, OSError, ValueError, RecursionError):
        return None
    record = found.get("record") if isinstance(found, dict) else None
    if not isinstance(record, dict) or found.get("sha256") != digest(record):
        return None
    return stored_record(record)


def digest(record: Mapping[str, Any]) -> str:
    """Return what tells that a digit of a result's JSON was changed, by a failing disk say."""
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()


def lacking(record: HessianRecord, request: Request, criteria: Criteria) -> set[Part]:
    return {name for name in asked(request) if not PARTS[name](record, request, criteria)}


def asked(request: Request) -> set[Part]:
    optional: dict[Part, bool] = {
        "layers": request.layers, "blocks": request.blocks, "density": request.density,
        "preconditioned": request.preconditioned, "cross_client": request.clients,
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
    return max(0, held - asked) + len(_unasked(record, request))


def _has_eigenvalues(record: HessianRecord, request: Request, _criteria: Criteria) -> bool:
    (upper, lower), k = record.ends, request.top_k
    if record.converged is not True or len(upper) < k or (request.both_ends and len(lower) < k):
        return False
    used, most = (*upper[:k], *lower), request.tol * abs(record.lambda_max.value)
    if not request.warm and any(one.certified is False for one in used):  # None: not stated
        return False
    return all(one.residual <= most for one in used)  # never, of an unknown one


def _has_trace(record: HessianRecord, request: Request, criteria: Criteria) -> bool:
    trace, probes = record.trace, request.probes
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
    "layers": lambda record, *_: bool(record.layers),
    "blocks": lambda record, *_: bool(record.blocks),
    "density": lambda record, *_: bool(record.density),
    "preconditioned": lambda record, *_: bool(record.preconditioned and record.preconditioned.converged),
    "cross_client": _has_clients,
}
"""Of each part, whether a record has it as well as a request asks for it."""
