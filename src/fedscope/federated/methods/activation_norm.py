"""MAN: the mean squared activation of every layer is kept small.

ζ·Σ_l mean(a_l²) over the outputs a_l of all ReLUs, mean over batch and units (Yashwanth et al. 2024, Eqs.
16–18). It belongs to the task loss, wherever its host evaluates that: with an ascent step in both passes,
with Mixup on the mixed images, with sub-networks on the full network only. No state, no traffic. The
published code halves the strength (``man.half``).
"""

import torch
from torch import Tensor

from fedscope.federated.method import Method, Pass
from fedscope.federated.options import Option
from fedscope.federated.taps import relu_outputs


def activation_norm(at: Pass) -> Tensor:
    """Return ζ·Σ_l mean(a_l²), a scalar; half of it under ``man.half``."""
    layers = [*at.taps["man"], *([at.logits] if at.options["man.include_logits"] else [])]
    zeta = float(at.options["man.zeta"]) * (0.5 if at.options["man.half"] else 1.0)
    return zeta * torch.stack([a.square().mean() for a in layers]).sum()


MAN = Method(
    name="man",
    objective="ζ Σ_l mean(a_l²)",
    source="Yashwanth et al. 2024 (WACV), Eqs. 16–18",
    place="in the task loss",
    options=(
        Option("man.zeta", 0.15, "strength ζ (CIFAR-100: 0.15, Tiny-ImageNet: 0.1)"),
        Option("man.half", False, "multiply by ½ as the published code does", code=True),
        Option("man.include_logits", False, "count the logits as a layer"),
    ),
    taps={"man": lambda model, _: relu_outputs(model)},
    task=(activation_norm,),
)
