"""FedDyn and FedSpeed: each client's objective is bent so that the federation's optimum is also its own.

ℓ(w) + α_k⟨w, h_k − θ_t⟩ + (α_k/2)‖w‖² with α_k = α/(n_k·N/n), where h_k = Σ (w_k − θ_t) over the rounds the
client took part in, starting at 0. The linear part belongs to the loss, and so to the clip; the quadratic
part enters as weight decay, after it (``dyn.quadratic=loss`` puts it into the loss). The server returns the
uniform mean of the uploads plus the mean of h_k over all N clients, which it keeps as one vector: its change
in a round is (m/N)(mean − θ_t). α = 0 is not FedAvg, because the server still adds that mean.

FedSpeed is FedDyn with the task loss differentiated a step uphill: (1 − a)g + a ∇ℓ(w + ρ g/(‖g‖ + 1e-7)), a =
1 in all public programs. Its paper's own form is ``speed.normalised=false``, an ascent of ρ g, and
``speed.server=active``, the mean of w_k + h_k over the participants.
"""

from dataclasses import replace

from torch import Tensor

from fedscope.federated.methods.ascent import BN, uphill
from fedscope.federated.record.method import Gradient, Method, Required
from fedscope.federated.record.options import Option
from fedscope.federated.record.vectors import Vector
from fedscope.federated.record.views import Finish, LocalStep, ServerStep, Stack, Term


def strength(step: LocalStep) -> Tensor:
    """Return α_k, in the shape of ``step.relative_size``."""
    return float(step.options["dyn.alpha"]) / step.relative_size


def dynamic(step: Term) -> Tensor:
    """Return α_k⟨w, h_k − θ_t⟩, with (α_k/2)‖w‖² where ``dyn.quadratic`` is ``loss``; a scalar."""
    w = step.parameters
    term = (w * (step.memory["dyn.h"] - step.anchor)).sum()
    if step.options["dyn.quadratic"] == "loss":
        term = term + 0.5 * w.square().sum()
    return strength(step) * term


def decay(step: Stack) -> Tensor:
    """Return the gradient α_k·w of the quadratic part, (K, P); nothing where the loss holds it."""
    alpha = strength(step) * (step.options["dyn.quadratic"] == "weight_decay")
    return alpha * step.parameters


def remember(end: Finish) -> dict[str, Tensor]:
    """Return h_k + (w_k − θ_t)."""
    return {"dyn.h": end.memory["dyn.h"] + (end.parameters - end.anchor)}


def server(step: ServerStep) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the mean of the uploads plus the mean h over all clients, and that mean h."""
    h = step.state["dyn.h"] + (step.participants / step.clients) * (step.mean - step.anchor)
    return step.mean + h, {"dyn.h": h}


def speed_server(step: ServerStep) -> tuple[Tensor, dict[str, Tensor]]:
    """Return FedDyn's model, or under ``speed.server=active`` the mean of w_k + h_k over the participants."""
    model, state = server(step)
    if step.options["speed.server"] == "active":
        model = step.mean + step.sums["dyn.h"] / step.participants
    return model, state


def extrapolated(gradient: Gradient, step: Stack) -> Tensor:
    """Return (1 − a)g + a ∇ℓ(w + ρ g/(‖g‖ + 1e-7)), (K, P)."""
    g = ascent = gradient(step.parameters)
    if step.options["speed.stale_ascent"] and step.last_gradient is not None:
        ascent = g + step.last_gradient
    rho, alpha = float(step.options["speed.rho"]), float(step.options["speed.alpha"])
    e = uphill(ascent, rho, beside=1e-7) if step.options["speed.normalised"] else rho * ascent
    there = gradient(step.parameters + e, keep_buffers=step.options["sam.bn"] == "first")
    return (1 - alpha) * g + alpha * there


UNIFORM = Required(
    "weights", "uniform", "the server adds the clients' mean drift, their objectives make up for sizes"
)
FROM_UPLOADS = (
    "its server's model is the mean of the uploads plus the clients' drift, in which what was sent stays"
)

FEDDYN = Method(
    name="feddyn",
    objective="ℓ(w) + α_k⟨w, h_k − θ_t⟩ + (α_k/2)‖w‖²",
    source="Acar et al. 2021 (ICLR), Algorithm 1",
    place="linear part in the loss, inside the clip; α_k·w as weight decay, after it",
    options=(
        Option("dyn.alpha", 0.01, "strength α (Acar et al. 2021; Yashwanth et al. 2024)"),
        Option(
            "dyn.quadratic", "weight_decay", "where α_k·w enters: after the clip, or before it, in the loss",
            choices=("weight_decay", "loss"),
        ),
    ),
    parameter_terms=(dynamic,),
    after_clip=(decay,),
    memory=(Vector("dyn.h"),),
    finish=(remember,),
    server=server,
    only_keeps=FROM_UPLOADS,
    server_state=(Vector("dyn.h"),),
    weights="uniform",
    required_settings=(UNIFORM,),
)  # fmt: skip

FEDSPEED = replace(
    FEDDYN,
    name="fedspeed",
    flatness=True,
    objective="FedDyn's, ℓ differentiated at w + ρ ∇ℓ(w)/‖∇ℓ(w)‖",
    source="Sun et al. 2023 (ICLR), Algorithm 1",
    place=f"as FedDyn: {FEDDYN.place}; the ascent sees the task loss alone",
    options=(
        *FEDDYN.options,
        Option("speed.rho", 0.01, "length ρ of the ascent (Yashwanth et al. 2024's code)"),
        Option("speed.alpha", 1.0, "weight a of the gradient uphill, beside that at w", within=(0.0, 1.0)),
        Option("speed.normalised", True, "ascend by ρ g/‖g‖, or by ρ g"),
        Option(
            "speed.server", "all", "whose h_k the server adds: all, or the participants' (the paper)",
            choices=("all", "active"),
        ),
        Option(
            "speed.stale_ascent", False, "add the last step's gradient to the ascent, as MAN's code does",
            code=True,
        ),
        BN,
    ),
    gradient_at=extrapolated,
    last_gradient=True,
    server=speed_server,
    summed_memory=("dyn.h",),
)  # fmt: skip
