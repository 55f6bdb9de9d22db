"""Which quantities there are, and with what they are measured; plain data: asking needs no PyTorch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from fedscope.choices import BatchNormMode, ReadingName
from fedscope.errors import UserError, suggestion

Family = Literal[
    "worst", "average", "low_pass", "pac_bayes", "fisher_rao", "relative_flatness", "curvature", "blocks"
]


@dataclass(frozen=True)
class SharpnessDefinition:
    """A definition of sharpness; tables print it by its name in ``figures.text.sharpness.SYMBOLS``."""

    family: Family
    rho: float | None = None  # radius, or standard deviation, where none is given
    adaptive: bool = False  # in units of the weights
    infinite: bool = False  # p = ∞ instead of 2

    @property
    def p(self) -> float:
        """The norm."""
        return float("inf") if self.infinite else 2.0


QUANTITIES: Mapping[str, SharpnessDefinition] = {
    "sam": SharpnessDefinition("worst", 0.05),
    "worst_l2": SharpnessDefinition("worst", 0.5),
    "worst_linf": SharpnessDefinition("worst", 0.001, infinite=True),
    "adaptive_worst_l2": SharpnessDefinition("worst", 0.5, adaptive=True),
    "adaptive_worst_linf": SharpnessDefinition("worst", 0.002, adaptive=True, infinite=True),
    "average_l2": SharpnessDefinition("average", 0.05),
    "average_linf": SharpnessDefinition("average", 0.1, infinite=True),
    "adaptive_average_l2": SharpnessDefinition("average", 0.1, adaptive=True),
    "adaptive_average_linf": SharpnessDefinition("average", 0.1, adaptive=True, infinite=True),
    "low_pass": SharpnessDefinition("low_pass", 0.01),
    "pac_bayes": SharpnessDefinition("pac_bayes"),
    "adaptive_pac_bayes": SharpnessDefinition("pac_bayes", adaptive=True),
    "fisher_rao": SharpnessDefinition("fisher_rao"),
    "fisher_rao_empirical": SharpnessDefinition("fisher_rao"),
    "relative_flatness": SharpnessDefinition("relative_flatness"),
    "relative_flatness_max": SharpnessDefinition("relative_flatness"),
    "lambda_max": SharpnessDefinition("curvature"),
    "trace": SharpnessDefinition("curvature"),
    "block_distance": SharpnessDefinition("blocks"),
}
"""By name; radii are among those of the scripts of Andriushchenko et al. for ResNets, SAM and LPF-SGD."""
USUAL = (
    "sam", "adaptive_worst_linf", "average_l2", "adaptive_average_l2", "fisher_rao", "relative_flatness",
)  # fmt: skip


@dataclass(frozen=True)
class SharpnessRequest:
    """What to measure, and with what."""

    only: tuple[str, ...] = ()  # names, or ``all``; none: the usual ones
    rho: float | None = None  # of all quantities that have a radius; None: each one's own
    m: int = 128  # samples of a batch of its own perturbation
    steps: int = 20  # of a worst case's search
    reading: ReadingName = "paper"  # of Auto-PGD: as published, or as Andriushchenko et al.'s program has it
    pairs: int = 20  # of draws
    normalize_logits: bool = False  # of the worst and the average case
    layer: str | None = None  # weights of relative flatness; None: the last linear layer
    target: float = 0.1  # of PAC-Bayes σ: share of accuracy
    bn: BatchNormMode = "eval"
    gap: bool = False  # also loss and accuracy on both splits
    versions: Mapping[str, str] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(QUANTITIES) if "all" in self.only else self.only or USUAL

    def radius(self, name: str) -> float | None:
        own = QUANTITIES[name].rho
        return own if own is None or self.rho is None else self.rho


def chosen(texts: Sequence[str]) -> tuple[str, ...]:
    """Return the names of "sam,trace" and of further such texts, each once, in the order given."""
    names = (name.strip().replace("-", "_") for text in texts for name in text.split(","))
    return tuple(dict.fromkeys(names))


def check_request(request: SharpnessRequest) -> None:
    for name in request.only:
        if name not in QUANTITIES and name != "all":
            known = ", ".join(QUANTITIES)
            raise UserError(
                f"there is no quantity {name!r}{suggestion(name, QUANTITIES) or f'; there are {known}'}"
            )
    if request.layer and not any(QUANTITIES[n].family == "relative_flatness" for n in request.names):
        raise UserError("--layer is of relative flatness; add --only relative_flatness, or drop it")
    if request.rho is not None and all(QUANTITIES[name].rho is None for name in request.names):
        raise UserError("none of these quantities has a radius; drop --rho")
