"""FedNTD and FedSOL: what the received model says of a client's images is kept, by a term or by the ascent.

FedNTD: ℓ + β τ² KL(p^glob ‖ p), both softmax of the logits but the label's, over τ; the received model is a
constant, in eval mode. As in the authors' program (β = τ = 1 there, τ = 3 in its criterion's default).

FedSOL: the gradient of ℓ is taken at w + ρ Λ ⊙ q/‖q‖, q the gradient of KL(p^glob ‖ p), softmax over 3, batch
mean: uphill for what is to be kept, so that the step hardly changes it. Λ is |w − θ_t|, each tensor divided
by its norm along its first dimension (``sol.scale=adaptive``), or 1; the first pass alone updates running
statistics.
"""

import torch
from torch import Tensor
from torch.nn.functional import kl_div, log_softmax, normalize

from fedscope.federated.record.method import Gradient, Method
from fedscope.federated.record.options import Option
from fedscope.federated.record.views import Pass, Stack

TEMPERATURE = 3.0  # of FedSOL


def received_logits(at: Pass) -> Tensor:
    """Return the logits of the received model, (B, C), constant."""
    return at.network.at(at.start, lambda module, images: module(images), at.batch.images)


def divergence(logits: Tensor, received: Tensor, temperature: float) -> Tensor:
    """Return the batch mean of KL(softmax(received/τ) ‖ softmax(logits/τ)), a scalar."""
    mine, theirs = log_softmax(logits / temperature, 1), log_softmax(received / temperature, 1)
    return kl_div(mine, theirs, reduction="batchmean", log_target=True)


def not_true(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the logits but the label's, (B, C − 1)."""
    count = logits.shape[1]
    others = torch.arange(count - 1, device=labels.device) + (
        torch.arange(count - 1, device=labels.device) >= labels[:, None]
    )
    return logits.gather(1, others)


def not_true_distillation(at: Pass) -> Tensor:
    """Return β τ² KL(p^glob ‖ p) over the classes but the label's, a scalar."""
    labels, tau = at.batch.labels, float(at.options["ntd.tau"])
    mine, theirs = not_true(at.logits, labels), not_true(received_logits(at), labels)
    return float(at.options["ntd.beta"]) * tau**2 * divergence(mine, theirs, tau)


def kept_knowledge(at: Pass) -> Tensor:
    """Return KL(p^glob ‖ p), a scalar."""
    return divergence(at.logits, received_logits(at), TEMPERATURE)


def orthogonal(gradient: Gradient, step: Stack) -> Tensor:
    """Return the task loss's gradient at w + ρ Λ ⊙ q/‖q‖, (K, P)."""
    q = gradient(step.parameters, ascent=True)
    e = float(step.options["sol.rho"]) * q / (q.norm(dim=1, keepdim=True) + 1e-12)
    if step.options["sol.scale"] == "adaptive":
        e = scale(step) * e
    return gradient(step.parameters + e, keep_buffers=True)


def scale(step: Stack) -> Tensor:
    """Return Λ, (K, P): |w − θ_t|, of each tensor over its norm along the first dimension."""
    moved = (step.parameters - step.anchor).abs()
    found = torch.zeros_like(moved)
    places = step.tensors(found)
    for name, tensor in step.tensors(moved).items():
        whole = tensor if tensor.ndim > 1 else tensor[:, None]  # a single number has no dimension of its own
        places[name].copy_(normalize(whole, dim=1).view_as(tensor))
    return found


FEDNTD = Method(
    name="fedntd",
    objective="ℓ(w) + β τ² KL(p^glob ‖ p) over the classes but the label's",
    source="Lee et al. 2022 (NeurIPS, arXiv 2106.03097); the authors' program",
    place="in the task loss, by one more forward pass without gradient",
    options=(
        Option("ntd.beta", 1.0, "strength β (the program: 1)"),
        Option("ntd.tau", 1.0, "temperature τ (the program: 1)", within=(1e-3, float("inf"))),
    ),
    task_terms=(not_true_distillation,),
    reads_received=True,
    subnetworks=True,
)
FEDSOL = Method(
    name="fedsol",
    objective="ℓ(w + e), e = ρ Λ ⊙ q/‖q‖, q = ∇KL(p^glob ‖ p)",
    source="Lee et al. 2024 (CVPR); the authors' program",
    place="the point at which the task loss is differentiated",
    options=(
        Option("sol.rho", 1.0, "length ρ of the ascent (the program: 1)"),
        Option("sol.scale", "adaptive", "Λ: |w − θ_t| normalised, or 1", choices=("adaptive", "fixed")),
    ),
    ascent_loss=kept_knowledge,
    gradient_at=orthogonal,
    reads_received=True,
    subnetworks=True,
)
