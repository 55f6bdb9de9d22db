"""FedFOR: a first-order model of the global objective holds back who moves against its last step.

ℓ(w) + α Σ_i max(0, g_i (w_i − θ_{t,i})), g = (θ_{t−1} − θ_t)/η_t: minus the last global step, in units of a
gradient. The term is positive in the coordinates in which a client undoes that step, and pushes them back
along it. The server broadcasts θ_t and θ_{t−1}; clients keep nothing. In the first round, and where the model
did not move, the term is 0. No code was published; the paper's α and scale of g are not recoverable, and both
defaults are provisional: α = 0.1 in units of the last global step per local step.
"""

import torch
from torch import Tensor
from torch.nn.functional import relu

from fedscope.federated.record.method import Method, Required
from fedscope.federated.record.options import Option
from fedscope.federated.record.vectors import Vector
from fedscope.federated.record.views import ServerStep, Term


def foresight(step: Term) -> Tensor:
    """Return α Σ_i max(0, g_i (w_i − θ_i)), a scalar."""
    options = step.options
    g = step.received["fedfor.previous"] - step.anchor
    if options["fedfor.grad_scale"] == "lr":
        g = g / step.lr.clamp_min(torch.finfo(g.dtype).tiny)
    products = g * (step.parameters - step.anchor)
    if options["fedfor.positive_only"]:
        products = relu(products)  # gradient 0 at 0
    total = products.mean() if options["fedfor.reduce"] == "mean" else products.sum()
    return float(options["fedfor.alpha"]) * total


def observe(step: ServerStep) -> dict[str, Tensor]:
    """Return θ_t, the next round's θ_{t−1}."""
    return {"fedfor.previous": step.anchor}


FEDFOR = Method(
    name="fedfor",
    objective="ℓ(w) + α Σ_i max(0, g_i (w_i − θ_{t,i})), g = (θ_{t−1} − θ_t)/η_t",
    source="Tian, Smith, Kira 2022 (arXiv 2209.10537), section 3",
    place="in the loss, inside the clip",
    options=(
        Option("fedfor.alpha", 0.1, "strength α (provisional: the paper's value is lost; sweep 0.01 to 1)"),
        Option("fedfor.grad_scale", "lr", "divide the last step by η_t, or not", choices=("lr", "none")),
        Option("fedfor.positive_only", True, "drop the coordinates in which the client agrees"),
        Option("fedfor.reduce", "sum", "over the parameters", choices=("sum", "mean")),
    ),
    parameter_terms=(foresight,),
    server_notes=(observe,),
    server_state=(Vector("fedfor.previous", start="initial"),),
    broadcast=("fedfor.previous",),
    required_settings=(
        Required(
            "optimizer",
            "sgd",
            "g is a step of SGD over its rate",
            unless=("fedfor.grad_scale", "none"),
        ),
    ),
)
