"""Which parts of a request an earlier record answers: λ_max and eigenvalues, trace, layers, density, clients.

Reads records of ``fedscope hessian --json`` alone, so that nothing is loaded to find one. A record answers
for weights by their hash, for samples by their number, seed and batches, and for the estimators by its own
errors: residuals, standard errors and intervals as small as are asked for now.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Literal, get_args

from fedscope.landscape.crossing import Crossing
from fedscope.landscape.request import Request
from fedscope.landscape.trace import MIN_PROBES

Record = Mapping[str, Any]
Part = Literal["eigenvalues", "trace", "layers", "density", "cross_client"]
ALL: frozenset[Part] = frozenset(get_args(Part))


def lacking(
    record: Record, request: Request, uploads: Mapping[str, str], *, fuller: bool = False
) -> set[Part]:
    """Return the parts of a request that a record of the same problem does not answer.

    Args:
        record: of schema ``fedscope/hessian/1``.
        request: what is wanted.
        uploads: the clients' files and their hashes, where they are to be compared.
        fuller: a fixed number of probes is a least number.
    """
    found: set[Part] = set()
    if not _has_eigenvalues(record, request.top_k, both_ends=request.both_ends, tol=request.tol):
        found.add("eigenvalues")
    if not _has_trace(record["trace"], request.probes, request.trace_rtol, fuller=fuller):
        found.add("trace")
    if request.layers and not record.get("layers"):
        found.add("layers")
    if request.density and not record.get("density"):
        found.add("density")
    if request.clients and not _has_clients(
        record.get("cross_client"), request.crossing.settled(request.reading), uploads, fuller=fuller
    ):
        found.add("cross_client")
    return found


def same_problem(record: Record, sha256: str, problem: Mapping[str, object]) -> bool:
    """Say whether a record is of these weights, and of a problem with these entries."""
    if record.get("checkpoint", {}).get("sha256") != sha256 or "lambda_max" not in record:
        return False
    return all(record["problem"].get(name) == value for name, value in problem.items())


def fullest(
    records: Iterable[Record], request: Request, uploads: Mapping[str, str], *, fuller: bool = False
) -> tuple[Record, set[Part]] | None:
    """Return the record that lacks the fewest parts of a request, and these parts.

    None where no record has eigenvalues or a trace that will do.
    """
    found = [(record, lacking(record, request, uploads, fuller=fuller)) for record in records]
    found = [(record, parts) for record, parts in found if not {"eigenvalues", "trace"} <= parts]
    return min(found, key=lambda pair: len(pair[1]), default=None)


def trimmed(record: Record, request: Request) -> dict[str, Any]:
    """Return a record without what was not asked for."""
    upper, lower = ends(record)
    chosen = upper[: request.top_k] + (lower[len(lower) - request.top_k :] if request.both_ends else [])
    unasked = {
        name: None
        for name, wanted in (
            ("layers", request.layers), ("density", request.density), ("cross_client", request.clients)
        )
        if not wanted
    }  # fmt: skip
    return {**record, **unasked, "eigenvalues": chosen, "both_ends": request.both_ends}


def ends(record: Record) -> tuple[list[Record], list[Record]]:
    """Return a record's largest eigenvalues and its smallest, each descending."""
    every = list(record["eigenvalues"])
    split = len(every) // 2 if record.get("both_ends") else len(every)
    return every[:split], every[split:]


def _has_eigenvalues(record: Record, k: int, *, both_ends: bool, tol: float) -> bool:
    upper, lower = ends(record)
    if record.get("converged") is not True or len(upper) < k or (both_ends and len(lower) < k):
        return False
    most = tol * abs(record["lambda_max"]["value"])
    return all(entry["residual"] is not None and entry["residual"] <= most for entry in (*upper[:k], *lower))


def _has_trace(trace: Record, probes: int | None, rtol: float, *, fuller: bool) -> bool:
    if probes is not None:
        return bool(trace["probes"] >= probes if fuller else trace["probes"] == probes)
    stderr = trace["stderr_probe"]
    sure = trace.get("converged") is True and stderr is not None and trace["probes"] >= MIN_PROBES
    return sure and stderr <= rtol * abs(trace["value"])


def _has_clients(
    cross: Record | None, options: Crossing, uploads: Mapping[str, str], *, fuller: bool
) -> bool:
    if not cross or cross.get("uploads") is None or not isinstance(cross["probes"], int):
        return False
    asked = (options.weights, options.data, options.pairs)
    if asked != (cross.get("weights"), cross.get("data"), cross["pairs"]):
        return False
    if options.weights == "client" and not uploads.items() <= cross["uploads"].items():
        return False
    if options.overlap and options.overlap != cross.get("overlap_k"):
        return False
    if options.probes is not None:
        return cross["probes"] >= options.probes if fuller else cross["probes"] == options.probes
    return bool(cross.get("converged")) and all(
        _reach(cross[symbol][options.aim]) <= options.rtol for symbol in ("H_N", "H_D")
    )


def _reach(entry: Record | None) -> float:
    if not entry or not entry["value"] or not entry.get("interval"):
        return float("inf")
    low, high = entry["interval"]
    return float((high - low) / 2 / abs(entry["value"]))
