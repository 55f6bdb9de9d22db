"""FedDecorr: the features of a client are kept from collapsing into few dimensions.

β/(d(d − 1)) Σ_{i≠j} C_ij² / B, C = ẐᵀẐ over the mini-batch of B, Ẑ the features (B, d) that the classifier
reads, standardised: (z − mean)/√(var + 1e-8), the variance over B − 1. That is the authors' program
(``decorr.form=code``), whose β is the published one. ``paper`` is β ‖K‖²_F/d², K the correlation matrix: ẐᵀẐ
over B, variance over B, its diagonal of ones included. A mini-batch of one image has no term. Shi et al.
2023.
"""

from torch import Tensor

from fedscope.federated.record.method import Method
from fedscope.federated.record.options import Option
from fedscope.federated.record.taps import classifier_input
from fedscope.federated.record.views import Pass


def decorrelation(at: Pass) -> Tensor:
    """Return the term, a scalar."""
    (z,), beta = at.taps["decorr"], float(at.options["decorr.beta"])
    return beta * (published(z) if at.options["decorr.form"] == "code" else correlation(z))


def published(z: Tensor) -> Tensor:
    """Return the mean over i ≠ j of C_ij², over B, of features (B, d)."""
    count, size = z.shape
    if count == 1:
        return z.new_zeros(())
    z = (z - z.mean(0)) / (z.var(0) + 1e-8).sqrt()
    matrix = z.T @ z
    return (matrix.square().sum() - matrix.diagonal().square().sum()) / (size * (size - 1) * count)


def correlation(z: Tensor) -> Tensor:
    """Return ‖K‖²_F/d² of features (B, d)."""
    z = (z - z.mean(0)) / (z.var(0, correction=0) + 1e-8).sqrt()
    return (z.T @ z / len(z)).square().mean()


FEDDECORR = Method(
    name="feddecorr",
    objective="ℓ(w) + β mean_{i≠j} (ẐᵀẐ)_ij² / B, Ẑ the standardised features",
    source="Shi et al. 2023 (ICLR, arXiv 2210.00226); the authors' program",
    place="in the task loss",
    options=(
        Option("decorr.beta", 0.1, "strength β (Shi et al. 2023: 0.1)"),
        Option("decorr.form", "code", "the program's term, or the paper's", choices=("code", "paper")),
    ),
    taps={"decorr": lambda model, _: [classifier_input(model)]},
    task_terms=(decorrelation,),
)
