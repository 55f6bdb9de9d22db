"""What to measure between the clients of a round, and how well; plain data, without PyTorch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from fedscope.choices import Anchor, BatchNormMode
from fedscope.errors import UserError, suggestion

Measure = Literal[
    "loss", "lambda_max", "trace", "alignment", "drift", "noise", "critical", "barriers", "overlap",
    "diagonals",
]  # fmt: skip
MEASURES: tuple[Measure, ...] = get_args(Measure)
FAST: tuple[Measure, ...] = ("loss", "lambda_max", "trace", "alignment", "drift")
SAMPLES = 512  # of each client and of the global loss
TOL, PROBES, TOP_K = 1e-2, 16, 5


@dataclass(frozen=True)
class ClientsRequest:
    """What to measure, and how well."""

    only: tuple[Measure, ...] = FAST
    top_k: int = TOP_K  # eigenvectors of the spaces of alignment and overlap
    tol: float = TOL  # residual of each eigenpair, relative to λ_max
    probes: int = PROBES  # of each trace
    anchor: Anchor = "start"  # what updates are from
    start: bool = False  # also λ_max and trace at the model that the round began with
    bn: BatchNormMode = "eval"
    versions: Mapping[str, str] | None = None


def chosen(text: str) -> tuple[Measure, ...]:
    """Return the parts of "loss,trace", in the order of ``MEASURES``; ``all`` names every one."""
    names = [name.strip().replace("-", "_") for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in (*MEASURES, "all")]
    if unknown or not names:
        wrong = unknown[0] if unknown else text
        raise UserError(
            f"--only takes {', '.join(MEASURES)} or all, with commas between, not {wrong!r}"
            f"{suggestion(wrong, MEASURES)}"
        )
    return tuple(name for name in MEASURES if name in names or "all" in names)
