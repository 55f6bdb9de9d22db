"""FedSAM and FedASAM: the task loss is differentiated a step uphill.

Per mini-batch g = ∇ℓ(w), e = ρ·g/‖g‖, then the gradient of the same mini-batch at w + e is used at w, which
is restored exactly. Terms of the parameters (a proximal term) enter neither the ascent nor the point of
evaluation, and neither do duals and control variates: they are added at w, before the clip. So FedSAM on
SCAFFOLD is FedGAMMA (Dai et al. 2023), and on FedDyn it is FedSpeed. FedASAM measures in a normalised metric:
t = |w| + η_A for the scaled tensors, 1 for the others, e = ρ·t²g/‖t g‖. Stateless. Both passes update
BatchNorm's running statistics unless ``sam.bn=first``.
"""

import torch
from torch import Tensor, nn

from fedscope.federated.record.method import Gradient, Method
from fedscope.federated.record.options import Option, Values
from fedscope.federated.record.views import Stack

TINY = 1e-16  # beside ‖g‖, as in the published code


def uphill(direction: Tensor, length: float | Tensor, beside: float = TINY) -> Tensor:
    """Return each row of ``direction`` (K, P) at length ``length``."""
    norm: Tensor = direction.norm(dim=1, keepdim=True)
    return length * direction / (norm + beside)


def sharpness_aware(gradient: Gradient, step: Stack) -> Tensor:
    """Return the task loss's gradient at w + ρ g/‖g‖, (K, P)."""
    e = uphill(gradient(step.parameters), float(step.options["sam.rho"]))
    return gradient(step.parameters + e, keep_buffers=step.options["sam.bn"] == "first")


def adaptive(gradient: Gradient, step: Stack) -> Tensor:
    """Return the task loss's gradient at w + ρ t²g/‖t g‖, (K, P)."""
    options, scaled = step.options, step.masks["asam.scaled"]
    t = torch.where(scaled > 0, step.parameters.abs() + float(options["asam.offset"]), 1.0)
    e = t * uphill(t * gradient(step.parameters), float(options["asam.rho"]))
    return gradient(step.parameters + e, keep_buffers=options["sam.bn"] == "first")


def scaled(model: nn.Module, options: Values) -> list[str]:
    """Return the names of the parameters whose metric is scaled."""
    kind = options["asam.scaled"]
    return [
        name
        for name, p in model.named_parameters(remove_duplicate=False)
        if kind == "all" or (p.ndim > 1 if kind == "ndim>1" else "weight" in name)
    ]


BN = Option("sam.bn", "both", "which passes update running statistics", choices=("both", "first"))

FEDSAM = Method(
    name="fedsam",
    flatness=True,
    objective="max_{‖e‖≤ρ} ℓ(w + e)",
    source="Caldarola, Caputo, Ciccone 2022 (ECCV); Qu et al. 2022 (ICML), Algorithm 1",
    place="the point at which the task loss is differentiated",
    options=(Option("sam.rho", 0.05, "radius ρ (Yashwanth et al. 2024: 0.05)"), BN),
    gradient_at=sharpness_aware,
)
FEDASAM = Method(
    name="fedasam",
    flatness=True,
    objective="max_{‖e/t‖≤ρ} ℓ(w + e), t = |w| + η_A",
    source="Caldarola, Caputo, Ciccone 2022 (ECCV); Kwon et al. 2021 (ICML), Algorithm 1",
    place="the point at which the task loss is differentiated",
    options=(
        Option("asam.rho", 0.5, "radius ρ (Yashwanth et al. 2024: 0.5)"),
        Option("asam.offset", 0.2, "η_A, added to |w|"),
        Option(
            "asam.scaled", "name_weight", "scaled tensors: named weight, all, or of two dimensions and more",
            choices=("name_weight", "all", "ndim>1"),
        ),
        BN,
    ),
    gradient_at=adaptive,
    masks={"asam.scaled": scaled},
)  # fmt: skip
