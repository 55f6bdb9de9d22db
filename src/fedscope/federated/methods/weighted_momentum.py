"""FedWMSAM: the federation's momentum, corrected for each client, leads its steps and its ascent.

Δ_k = Δ + α/(1 − α)(c − c_k) with the momentum Δ of FedCM and the control variates of SCAFFOLD; the gradient g
is taken at w + ρ δ/‖δ‖, δ = θ_t + b Δ_k − w after b local steps, and the step is α g + (1 − α)Δ_k. One
gradient per step. The share α follows the agreement of the clients: α ← 0.99 α + 0.01 clip(mean_k v_k, 0.1,
0.9), v_k = 1 + cos(w_k − θ_t, Δ), and v_k = 0 where there is no momentum yet (Li et al. 2025, NeurIPS).

Read in the authors' program and in the equations of its description; where they disagree these hold: the
program takes one number of δ per tensor instead of the tensor's part of it, goes to w − ρ δ/‖δ‖, and
multiplies Δ by the decay of the rate once more.
"""

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from fedscope.federated.methods.ascent import uphill
from fedscope.federated.methods.client_momentum import BY_NOMINAL_STEPS, mean_gradient, mixed
from fedscope.federated.methods.control import FROM_PATH
from fedscope.federated.methods.normalized import reach
from fedscope.federated.record.method import Gradient, Method, Required
from fedscope.federated.record.options import Option
from fedscope.federated.record.vectors import Vector
from fedscope.federated.record.views import Finish, ServerStep, Stack


def share(step: Stack) -> Tensor:
    """Return α."""
    return float(step.options["wm.alpha"]) + step.received["wm.shift"]


def own_momentum(step: Stack) -> Tensor:
    """Return Δ_k = Δ + α/(1 − α)(c − c_k), (K, P)."""
    alpha = share(step)
    drift = step.received["wm.c"] - step.memory["wm.c_k"]
    return step.received["wm.momentum"] + alpha / (1 - alpha) * drift


def towards_global(gradient: Gradient, step: Stack) -> Tensor:
    """Return the task loss's gradient at w + ρ δ/‖δ‖, (K, P)."""
    ahead = step.anchor + step.state["wm.b"] * own_momentum(step)
    e = uphill(ahead - step.parameters, float(step.options["wm.rho"]), beside=1e-7)
    return gradient(step.parameters + e)


def with_own_momentum(step: Stack) -> Tensor:
    """Return α g + (1 − α)Δ_k, (K, P)."""
    return mixed(step, own_momentum(step), share(step))


def count(step: Stack) -> dict[str, Tensor]:
    """Return b, the local steps taken."""
    return {"wm.b": step.state["wm.b"] + 1}


def finish(end: Finish) -> dict[str, Tensor]:
    """Return c_k ← c_k − c + (θ_t − w_k)/(τ_k η_t), its change, and v_k."""
    old, momentum, moved = end.memory["wm.c_k"], end.received["wm.momentum"], end.parameters - end.anchor
    path = -moved / max(reach(end.steps, end.momentum, end.nesterov) * end.lr, 1e-30)
    new = old - end.received["wm.c"] + path
    cosine = cosine_similarity(moved, momentum.expand_as(moved), dim=1, eps=1e-30)[:, None]
    agreement = torch.where(momentum.any(), 1 + cosine, 0.0)
    return {"wm.c_k": new, "wm.change": new - old, "wm.v": agreement}


def observe(step: ServerStep) -> dict[str, Tensor]:
    """Return Δ, c and α − α_0 of the next round."""
    start = float(step.options["wm.alpha"])
    agreement = (step.sums["wm.v"] / step.participants).clamp(0.1, 0.9)
    alpha = 0.99 * (start + step.state["wm.shift"]) + 0.01 * agreement
    c = step.state["wm.c"] + step.sums["wm.change"] / step.clients
    return {"wm.momentum": mean_gradient(step), "wm.c": c, "wm.shift": alpha - start}


FEDWMSAM = Method(
    name="fedwmsam",
    objective="ℓ(w); w ← w − η(α ∇ℓ(w + ρ δ/‖δ‖) + (1 − α)Δ_k), δ = θ_t + b Δ_k − w after b steps",
    source="Li et al. 2025 (NeurIPS); the authors' program",
    place="the point at which the task loss is differentiated, and in place of its gradient, inside the clip",
    flatness=True,
    options=(
        Option("wm.alpha", 0.1, "share α of the client's own gradient in round 1", within=(0.0, 0.99)),
        Option("wm.rho", 0.01, "length ρ of the ascent (Li et al. 2025: 0.01)"),
    ),
    gradient_at=towards_global,
    gradient_maps=(with_own_momentum,),
    step_state=(Vector("wm.b", "number"),),
    each_step=(count,),
    memory=(Vector("wm.c_k"),),
    uploads=(Vector("wm.change"), Vector("wm.v", "number")),
    finish=(finish,),
    server_notes=(observe,),
    server_state=(Vector("wm.momentum"), Vector("wm.c"), Vector("wm.shift", "number")),
    broadcast=("wm.momentum", "wm.c", "wm.shift"),
    weights="uniform",
    required_settings=(
        Required("weights", "uniform", "its control variates add up to the federation's with equal weights"),
        Required("optimizer", "sgd", FROM_PATH),
        BY_NOMINAL_STEPS,
        Required("optimizer_state", "round", "its momentum counts that of a client from zero in every round"),
    ),
)  # fmt: skip
