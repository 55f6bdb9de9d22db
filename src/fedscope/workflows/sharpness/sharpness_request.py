"""Which quantities there are, and with what they are measured; plain data: asking needs no PyTorch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from fedscope.choices import BatchNormMode, ReadingName
from fedscope.errors import UserError, suggestion
from fedscope.workflows.option_fields import USED, Bounds, Need, check_fields, option

_WHAT = "What is measured"
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


def _of(families: str, why: str) -> tuple[Need]:
    """Return when a field has an effect: where a quantity of one of the families is asked for."""
    return (Need(lambda request: {QUANTITIES[n].family for n in request.names} & {*families.split()}, why),)


_SEARCHES = (
    Need(
        lambda request: any(QUANTITIES[name].family == "worst" for name in request.names if name != "sam"),
        "without Auto-PGD, such as --only worst_l2",
    ),
)


@dataclass(frozen=True)
class SharpnessRequest:
    """What to measure, and with what."""

    only: tuple[str, ...] = option(
        (), f"These quantities, or all; may be repeated. There are {', '.join(QUANTITIES)}. "
        f"[default: {', '.join(USUAL)}]", USED, metavar="NAME,…",
    )  # fmt: skip
    rho: float | None = option(
        None, "Radius or deviation of all that have one. [default: each one's own]", _WHAT,
        bounds=Bounds(above=0),
    )  # fmt: skip
    m: int = option(
        128, "Samples of a batch that has a perturbation of its own (worst cases).", _WHAT,
        bounds=Bounds(least=1), needs=_of("worst", "without a worst case, such as --only sam"),
    )  # fmt: skip
    steps: int = option(20, "Of a worst case's search.", _WHAT, bounds=Bounds(least=1), needs=_SEARCHES)
    reading: ReadingName = option(
        "paper", "Worst cases by Auto-PGD as published, for p = ∞ from vertex to vertex; or by Auto-PGD as "
        "the program of Andriushchenko et al. has it.", _WHAT, needs=_SEARCHES,
    )  # fmt: skip
    pairs: int = option(
        20, "Pairs of random perturbations; half as many for PAC-Bayes σ.", _WHAT, bounds=Bounds(least=2),
        needs=_of("average low_pass pac_bayes", "where nothing is drawn in pairs"),
    )  # fmt: skip
    normalize_logits: bool = option(
        False, "Of worst and average cases: by the norm, less the mean.", _WHAT,
        needs=_of("worst average", "without worst and average cases"),
    )  # fmt: skip
    layer: str | None = option(
        None, "Weights of relative flatness. [default: the last linear layer's]", _WHAT, metavar="NAME"
    )
    target: float = option(
        0.1, "Share of accuracy that PAC-Bayes σ may cost.", _WHAT, bounds=Bounds(above=0, most=1),
        needs=_of("pac_bayes", "without --only pac_bayes"),
    )  # fmt: skip
    bn: BatchNormMode = "eval"
    gap: bool = False  # also loss and accuracy on both splits
    versions: Mapping[str, str] | None = None

    def __post_init__(self) -> None:
        check_fields(self)

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
