"""What a Hessian record says of its own numbers: which error dominates, and why no faster form was used.

Built from the JSON of ``fedscope hessian --json``, like the table.
"""

from collections.abc import Mapping
from typing import Any

Record = Mapping[str, Any]

_MORE_SAMPLES = "more samples (--samples, where the data has more) would shrink it, as one over their root"
_MORE_PROBES = "more probes (--probes, or a smaller --trace-rtol) would shrink it"
ONE_BATCH = "the error from the samples is not known from one batch; a smaller --batch-size would tell it"


def advice(record: Record) -> list[str]:
    """Say for λ_max and the trace which error dominates, and what would shrink it; nothing where unknown."""
    top, trace = record["lambda_max"], record["trace"]
    if len(record["batch_sizes"]) == 1 and top["residual"] is not None:
        return [ONE_BATCH]  # which of the others is the largest would say nothing
    return [
        *_dominating(
            "λ_max",
            top["value"],
            {
                ("the samples", _MORE_SAMPLES): top["stderr_data"],
                ("the eigenvector's residual", "a smaller --tol would shrink it"): top["residual"],
                ("rounding", "--dtype float64 would shrink it"): record.get("noise"),
            },
        ),
        *_dominating(
            "trace",
            trace["value"],
            {
                ("the samples", _MORE_SAMPLES): trace["stderr_data"],
                ("the probes", _MORE_PROBES): trace["stderr_probe"],
            },
        ),
    ]


def redrawn(record: Record) -> str | None:
    """Say that nobody stored which rows the clients held; None where that is known, or does not matter."""
    if (record.get("cross_client") or {}).get("rows") != "redrawn":
        return None
    numpy = record.get("versions", {}).get("numpy")
    return (
        "which rows each client held was not stored by this run: H_N and H_D are of rows drawn again under "
        f"numpy {numpy}, which are the same only if its random streams are"
    )


def _dominating(name: str, value: float | None, errors: Mapping[tuple[str, str], float | None]) -> list[str]:
    known = {what: error for what, error in errors.items() if error is not None}
    if not known or not value:
        return []
    (source, mend), largest = max(known.items(), key=lambda item: item[1])
    if not largest:
        return []
    return [f"{name}: most of its error is {source} ({100 * largest / abs(value):.2g} %); {mend}"]


def plain_form(record: Record) -> str | None:
    """Return in words why no faster form of the network was used; None where one was, or there is none."""
    why = record["problem"].get("form_reason")
    return why and f"plain PyTorch is used, for the same numbers in more time: in a faster form {why}"
