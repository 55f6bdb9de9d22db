"""MAN: the mean squared activation of every layer is kept small.

ζ·Σ_l mean(a_l²) over the outputs a_l of all ReLUs, mean over batch and units (Yashwanth et al. 2024, Eqs.
16–18). It belongs to the task loss; no state, no traffic. The published code halves the strength
(``man.half``).
"""

import torch
from torch import Tensor, nn

from fedscope.federated.method import Method, Option, Step


def activation_norm(step: Step) -> Tensor:
    """Return ζ·Σ_l mean(a_l²), a scalar; half of it under ``man.half``."""
    layers = list(step.activations.values())
    if step.options["man.include_logits"] and step.logits is not None:
        layers.append(step.logits)
    zeta = float(step.options["man.zeta"]) * (0.5 if step.options["man.half"] else 1.0)
    return zeta * torch.stack([a.square().mean() for a in layers]).sum()


def relu_outputs(model: nn.Module) -> list[str]:
    """Return the names of all ReLU modules of ``model``."""
    return [name for name, module in model.named_modules() if isinstance(module, nn.ReLU)]


MAN = Method(
    name="man",
    objective="ζ Σ_l mean(a_l²)",
    source="Yashwanth et al. 2024, Eqs. 16–18",
    options=(
        Option("man.zeta", 0.15, "strength ζ (CIFAR-100: 0.15, Tiny-ImageNet: 0.1)"),
        Option("man.half", False, "multiply by ½ as the published code does", code=True),
        Option("man.include_logits", False, "count the logits as a layer"),
    ),
    task=(activation_norm,),
    taps=(relu_outputs,),
)
