"""FedProx: the local model is tied to the one the server sent.

(μ/2)‖w − θ_t‖² over the trainable parameters, inside the loss and so inside the clip; stateless, no traffic
beyond FedAvg's. ``prox.form=norm`` (not squared) and ``prox.skip`` are found in FedBN's published code, which
moreover leaves the term out of the whole first round.
``prox.split=weight_decay`` is FL-Simulator's way: μ⟨w, −θ_t⟩ in the loss, μ·w as weight decay after the clip.
"""

import torch
from torch import Tensor, nn

from fedscope.errors import UserError
from fedscope.federated.record.method import Method
from fedscope.federated.record.options import Option, Values
from fedscope.federated.record.views import LocalStep, Stack, Term


def proximal(step: Term) -> Tensor:
    """Return (μ/2)‖w − θ_t‖², its unsquared form, or its linear part −μ⟨w, θ_t⟩; a scalar."""
    mu = strength(step)
    if step.options["prox.split"] == "weight_decay":
        return -mu * (step.parameters * step.anchor).sum()
    total = (step.parameters - step.anchor).square().sum()
    if step.options["prox.form"] == "norm":  # the double where keeps the gradient at w = θ_t at 0, not NaN
        moved = total > 0
        total = torch.where(moved, torch.where(moved, total, 1.0).sqrt(), 0.0)
    return 0.5 * mu * total


def decay(step: Stack) -> Tensor:
    """Return the gradient μ·w of the quadratic part where the loss does not hold it, (K, P)."""
    return strength(step) * (step.options["prox.split"] == "weight_decay") * step.parameters


def strength(step: LocalStep) -> float:
    """Return μ, or 0 in a step that is skipped."""
    skipped = step.options["prox.skip"] == "first_batch_of_epoch" and step.first_of_epoch
    return 0.0 if skipped else float(step.options["prox.mu"])


def check(_: nn.Module, options: Values) -> None:
    """Refuse to split what is not squared."""
    if options["prox.split"] == "weight_decay" and options["prox.form"] == "norm":
        raise UserError(
            "prox.split=weight_decay is for prox.form=squared: an unsquared norm has no decay part"
        )


FEDPROX = Method(
    name="fedprox",
    objective="ℓ(w) + (μ/2)‖w − θ_t‖²",
    source="Li et al. 2020 (MLSys), Algorithm 2",
    place="in the loss, inside the clip; never in an ascent step",
    options=(
        Option("prox.mu", 1e-4, "strength μ (Mendieta et al. 2022: 1e-4)"),
        Option("prox.form", "squared", "‖·‖² or ‖·‖", choices=("squared", "norm")),
        Option("prox.skip", "never", "steps without the term", choices=("never", "first_batch_of_epoch")),
        Option(
            "prox.split", "loss", "where μ·w enters: in the loss, or after the clip",
            choices=("loss", "weight_decay"),
        ),
    ),
    checks=(check,),
    parameter_terms=(proximal,),
    after_clip=(decay,),
)  # fmt: skip
