"""The curves that a run's diagnostics make by round: each quantity's name, axis, unit and meaning, once."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from fedscope.checkpoints.file.schema import Round

Family = Literal["drift", "steps", "local", "probes"]


@dataclass(frozen=True)
class RoundQuantity:
    """A number of a round's diagnostics."""

    name: str  # in records
    family: Family  # the `plot-runs --kind` that draws it
    field: str  # of ``Round.diagnostics``, with dots; of a list the least number counts
    label: str  # what it is called
    unit: str  # empty: none
    meaning: str
    error: str = ""  # the field of its standard error; none: it has none
    share: bool = False  # from 0 to 1, drawn in per cent

    @property
    def error_name(self) -> str:
        """The name of its standard error in records."""
        return f"{self.name}_stderr"

    def at(self, round: "Round") -> float | None:
        """Return the quantity in a round; None where it was not recorded, or is not defined."""
        return self._read(self.field, round)

    def error_at(self, round: "Round") -> float | None:
        """Return its standard error in a round; None where it has none, or it was not recorded."""
        return self._read(self.error, round) if self.error else None

    @staticmethod
    def _read(field: str, round: "Round") -> float | None:
        value: Any = round.diagnostics
        for part in field.split("."):
            value = None if value is None else getattr(value, part)
        if isinstance(value, list):
            return min((one for one in value if one is not None), default=None)
        return None if value is None else float(value)

    @property
    def scale(self) -> float:
        """What it is multiplied by to be drawn."""
        return 100.0 if self.share else 1.0

    @property
    def axis(self) -> str:
        """The label of what is drawn."""
        return f"{self.label} (%)" if self.share else self.label


QUANTITIES = (
    RoundQuantity(
        "drift", "drift", "updates.drift", "drift", "w²",
        "Σ pₖ‖wₖ − w̄‖² of the clients' models about their mean",
    ),
    RoundQuantity(
        "diversity", "drift", "updates.diversity", "gradient diversity", "",
        "Σ ‖Δₖ‖² / ‖Σ Δₖ‖² of K updates: 1/K where they are equal, 1 where they are orthogonal",
    ),
    RoundQuantity(
        "pair_cosine", "drift", "updates.pairs.mean", "cosine of pairs", "",
        "mean cosine between two clients' updates",
    ),
    RoundQuantity(
        "mean_cosine", "drift", "updates.to_mean.mean", "cosine to mean", "",
        "mean cosine between a client's update and the mean update",
    ),
    RoundQuantity(
        "step", "steps", "server.step", "server step", "w",
        "‖θₜ₊₁ − θₜ‖ of the model that clients start from",
    ),
    RoundQuantity(
        "step_cosine", "steps", "server.cosine", "cosine of steps", "",
        "cosine between this server step and the one before",
    ),
    RoundQuantity(
        "distance", "steps", "server.distance", "distance from start", "w",
        "‖θₜ₊₁ − θ₀‖, from the run's first model",
    ),
    RoundQuantity(
        "batchnorm", "local", "updates.batchnorm", "BatchNorm divergence", "",
        "Σ pₖ‖rₖ − r̄‖² / ‖r̄‖² of the clients' running means and variances",
    ),
    RoundQuantity(
        "clipped", "local", "local.clipped", "clipped steps", "",
        "share of the local steps whose gradient was clipped", share=True,
    ),
    RoundQuantity(
        "rise", "local", "local.ascent.rise", "rise of the loss", "loss",
        "mean ℓ(w + e) − ℓ(w) of methods with an ascent step",
    ),
    RoundQuantity(
        "ascent_cosine", "local", "local.ascent.cosine", "cosine of gradients", "",
        "mean cosine between ∇ℓ(w) and ∇ℓ(w + e)",
    ),
    RoundQuantity(
        "worst_class", "local", "class_accuracy", "worst class", "",
        "least accuracy on a class, of the evaluated model", share=True,
    ),
    RoundQuantity(
        "lambda_max", "probes", "curvature.lambda_max", "λ_max", "loss/w²",
        "largest eigenvalue of the Hessian, under `--probe-curvature`",
    ),
    RoundQuantity(
        "trace", "probes", "curvature.trace", "trace", "loss/w²",
        "trace of the Hessian, under `--probe-curvature`", "curvature.trace_stderr",
    ),
)  # fmt: skip
"""Every curve, in the order in which they are drawn and tabulated."""
