"""FedProx: the local model is tied to the one the server sent.

(μ/2)‖w − θ_t‖² over the trainable parameters, inside the loss and so inside the clip; stateless, no traffic
beyond FedAvg's. ``prox.form=norm`` (not squared) and ``prox.skip`` are what FedBN's published code does.
"""

import torch
from torch import Tensor

from fedscope.federated.method import Method, Option, Step


def proximal(step: Step) -> Tensor:
    """Return (μ/2)‖w − θ_t‖², or (μ/2)‖w − θ_t‖ where ``prox.form`` is ``norm``; a scalar."""
    mu = float(step.options["prox.mu"])
    if step.options["prox.skip"] == "first_batch_of_epoch" and step.first_of_epoch:
        mu = 0.0
    total = (step.parameters - step.anchor).square().sum()
    if step.options["prox.form"] == "norm":  # the double where keeps the gradient at w = θ_t at 0, not NaN
        moved = total > 0
        total = torch.where(moved, torch.where(moved, total, 1.0).sqrt(), 0.0)
    return 0.5 * mu * total


FEDPROX = Method(
    name="fedprox",
    objective="ℓ(w) + (μ/2)‖w − θ_t‖²",
    source="Li et al. 2020, Algorithm 2",
    options=(
        Option("prox.mu", 1e-4, "strength μ (Mendieta et al. 2022: 1e-4)"),
        Option("prox.form", "squared", "‖·‖² or ‖·‖", choices=("squared", "norm")),
        Option("prox.skip", "never", "steps without the term", choices=("never", "first_batch_of_epoch")),
    ),
    anchored=(proximal,),
)
