"""StochDepth: residual branches are dropped at random while training.

Per mini-batch and block λ_b ~ Bernoulli(p_b): relu(λ_b F_b(x) + shortcut(x)). A dropped branch is not run:
no gradient, no update of its BatchNorm; a kept one is not rescaled. Its gradient is zero, so that weight
decay and momentum still move it: as in FedAlign's published code under the PyTorch 1.8 that it names. From
PyTorch 2 on the ``zero_grad()`` of that code leaves no gradient instead, and such a branch rests. In eval
mode relu(p_b F_b(x) + shortcut(x)), which the network remembers (``keep`` of its description), so that it is
evaluated and analysed as what it is. p_b falls linearly to p_L over the blocks; in the published code the
first is always kept.
"""

from contextlib import AbstractContextManager

import torch
from torch import Tensor, nn

from fedscope.federated.record.method import Method, NetworkNeeds
from fedscope.federated.record.options import Option, Values
from fedscope.federated.record.views import Draws
from fedscope.models.resnet import blocks
from fedscope.models.stochastic_depth import Schedule, gated


def draw(generator: torch.Generator, _: Values, images: Tensor, model: nn.Module) -> list[bool]:
    """Return λ_b of every block."""
    keeps = torch.tensor([block.keep for block in blocks(model)], dtype=torch.float64)
    chosen: list[bool] = (torch.rand(len(keeps), dtype=torch.float64, generator=generator) < keeps).tolist()
    return chosen


def shortened(model: nn.Module, drawn: Draws) -> AbstractContextManager[None]:
    """Return the context in which the drawn branches are left out."""
    return gated(model, drawn["stochdepth"])


def needs(options: Values) -> NetworkNeeds:
    """Return p_L and the rule of the probabilities, with which the network is built."""
    schedule: Schedule = "paper" if options["sd.schedule"] == "paper" else "code"
    return {"keep": float(options["sd.keep"]), "schedule": schedule}


STOCHDEPTH = Method(
    name="stochdepth",
    objective="ℓ(w), residual branches kept with probability p_b",
    source="Huang et al. 2016 (ECCV), section 3; in FL: Mendieta et al. 2022",
    place="in the forward pass",
    options=(
        Option("sd.keep", 0.9, "p_L of the last block (Mendieta et al. 2022: 0.9)", within=(1e-6, 1.0)),
        Option(
            "sd.schedule", "paper", "p_b = 1 − (b/L)(1 − p_L), or 1 − ((b−1)/(L−1))(1 − p_L)",
            code="code", choices=("paper", "code"),
        ),
    ),
    network_needs=(needs,),
    draws={"stochdepth": draw},
    forward_context=shortened,
    refuses=dict.fromkeys(("gradaug", "fedalign"), "they run branches that StochDepth may have dropped"),
)  # fmt: skip
