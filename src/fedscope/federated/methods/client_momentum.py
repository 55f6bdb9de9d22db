"""FedCM: every local step is mixed with the federation's last gradient.

w ← w − η(α g + (1 − α)Δ_t), g the gradient of the task loss and Δ_{t+1} = (θ_t − Σ p_k w_k)/(η_t a): the mean
displacement of the round in units of a gradient, a the nominal local steps E·⌈(n/N)/B⌉ (with momentum what
FedNova's a_k says). The mix is clipped as a whole; terms of the parameters are added to it. Clients keep
nothing and receive Δ_t, which is 0 in round 1. On FedSAM it is MoFedSAM (Qu et al. 2022), whose g is taken
uphill. The server's learning rate is that of ``fedavgm`` without momentum (``avgm.beta=0``). FL-Simulator,
where this was read beside the paper's abstract, divides by n_1/B steps without rounding up.
"""

from torch import Tensor

from fedscope.federated.methods.normalized import reach
from fedscope.federated.record.method import Method, Required
from fedscope.federated.record.options import Option
from fedscope.federated.record.vectors import Vector
from fedscope.federated.record.views import ServerStep, Stack

BY_NOMINAL_STEPS = Required(
    "stragglers", 0.0, "it divides the round's displacement by the steps of a client that makes all of them"
)


def mixed(step: Stack, momentum: Tensor, alpha: float | Tensor) -> Tensor:
    """Return α g + (1 − α)Δ, (K, P)."""
    assert step.gradient is not None
    return alpha * step.gradient + (1 - alpha) * momentum


def with_momentum(step: Stack) -> Tensor:
    """Return α g + (1 − α)Δ_t, (K, P)."""
    return mixed(step, step.received["cm.delta"], float(step.options["cm.alpha"]))


def mean_gradient(step: ServerStep) -> Tensor:
    """Return (θ_t − mean)/(η_t a), (P,)."""
    a = reach(step.nominal_steps, step.momentum, step.nesterov)
    return (step.anchor - step.mean) / max(a * step.lr, 1e-30)  # at rate 0 nothing has moved


def observe(step: ServerStep) -> dict[str, Tensor]:
    """Return Δ_{t+1}."""
    return {"cm.delta": mean_gradient(step)}


FEDCM = Method(
    name="fedcm",
    objective="ℓ(w); w ← w − η(α ∇ℓ(w) + (1 − α)Δ_t), Δ_t the last round's mean gradient",
    source="Xu et al. 2021 (arXiv 2106.10874); FL-Simulator, FedCM",
    place="in place of the task loss's gradient, inside the clip",
    options=(Option("cm.alpha", 0.1, "share α of the client's own gradient; 1: FedAvg", within=(0.0, 1.0)),),
    gradient_maps=(with_momentum,),
    server_notes=(observe,),
    server_state=(Vector("cm.delta"),),
    broadcast=("cm.delta",),
    required_settings=(
        Required("optimizer", "sgd", "Δ_t is a mean gradient read off the path of SGD"),
        Required("optimizer_state", "round", "Δ_t counts momentum from zero in every round"),
        BY_NOMINAL_STEPS,
    ),
)
