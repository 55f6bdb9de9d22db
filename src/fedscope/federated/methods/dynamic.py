"""FedDyn: each client's objective is bent so that the federation's optimum is also its own.

ℓ(w) + α_k⟨w, h_k − θ_t⟩ + (α_k/2)‖w‖² with α_k = α/(n_k·N/n), where h_k = Σ (w_k − θ_t) over the rounds the
client took part in, starting at 0. The linear part belongs to the loss, and so to the clip; the quadratic
part enters as weight decay, after it (``dyn.quadratic=loss`` puts it into the loss). The server returns the
uniform mean of the uploads plus the mean of h_k over all N clients, which it keeps as one vector: its
change in a round is (m/N)(mean − θ_t). α = 0 is not FedAvg, because the server still adds that mean.
"""

from torch import Tensor

from fedscope.federated.method import Finish, Method, Option, ServerStep, Step


def strength(step: Step) -> Tensor:
    """Return α_k, in the shape of ``step.share``."""
    return float(step.options["dyn.alpha"]) / step.share


def dynamic(step: Step) -> Tensor:
    """Return α_k⟨w, h_k − θ_t⟩, with (α_k/2)‖w‖² where ``dyn.quadratic`` is ``loss``; a scalar."""
    w = step.parameters
    term = (w * (step.memory["dyn.h"] - step.anchor)).sum()
    if step.options["dyn.quadratic"] == "loss":
        term = term + 0.5 * w.square().sum()
    return strength(step) * term


def decay(step: Step) -> Tensor:
    """Return the gradient α_k·w of the quadratic part, (K, P); nothing where the loss holds it."""
    alpha = strength(step) * (step.options["dyn.quadratic"] == "weight_decay")
    return alpha * step.parameters


def remember(finish: Finish) -> dict[str, Tensor]:
    """Return h_k + (w_k − θ_t)."""
    return {"dyn.h": finish.memory["dyn.h"] + (finish.parameters - finish.anchor)}


def server(step: ServerStep) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the mean of the uploads plus the mean h over all clients, and that mean h."""
    h = step.state["dyn.h"] + (step.participants / step.clients) * (step.mean - step.anchor)
    return step.mean + h, {"dyn.h": h}


FEDDYN = Method(
    name="feddyn",
    objective="ℓ(w) + α_k⟨w, h_k − θ_t⟩ + (α_k/2)‖w‖²",
    source="Acar et al. 2021, Algorithm 1",
    options=(
        Option("dyn.alpha", 0.01, "strength α (Acar et al. 2021; Yashwanth et al. 2024)"),
        Option(
            "dyn.quadratic", "weight_decay", "where α_k·w enters: after the clip, or before it, in the loss",
            choices=("weight_decay", "loss"),
        ),
    ),
    anchored=(dynamic,),
    corrections=(decay,),
    memory=("dyn.h",),
    remember=remember,
    server=server,
    server_state=("dyn.h",),
    weights="uniform",
)  # fmt: skip
