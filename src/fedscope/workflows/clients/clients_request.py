"""What to measure between the clients of a round, and how well; plain data, without PyTorch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from fedscope.choices import Anchor, BatchNormMode
from fedscope.errors import UserError, suggestion
from fedscope.workflows.option_fields import Bounds, check_fields, option

Measure = Literal[
    "loss", "lambda_max", "trace", "alignment", "drift", "noise", "critical", "barriers", "overlap",
    "diagonals",
]  # fmt: skip
MEASURES: tuple[Measure, ...] = get_args(Measure)
FAST: tuple[Measure, ...] = ("loss", "lambda_max", "trace", "alignment", "drift")
SAMPLES = 512  # of each client and of the global loss
_WHAT, _WELL = "What is measured", "How precisely"


@dataclass(frozen=True)
class ClientsRequest:
    """What to measure, and how well."""

    only: tuple[Measure, ...] = FAST
    anchor: Anchor = option(
        "start", "What updates are from: the model that the round began with, or its result.", _WHAT
    )
    start: bool = option(False, "Also λ_max and trace at the model that the round began with.", _WHAT)
    top_k: int = option(
        5, "Eigenvectors of the spaces of alignment and overlap.", _WHAT, bounds=Bounds(least=1)
    )
    tol: float = option(
        1e-2, "Residual of each eigenpair, relative to λ_max.", _WELL, bounds=Bounds(above=0, most=1)
    )
    probes: int = option(16, "Of each trace.", _WELL, bounds=Bounds(least=2))
    bn: BatchNormMode = "eval"
    versions: Mapping[str, str] | None = None

    def __post_init__(self) -> None:
        check_fields(self)


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
