"""FedNova: displacements are normalised by how far the local rule would go.

d_k = (w_k − θ_t)/a_k, θ ← θ + γ (Σ p_k a_k)(Σ p_k d_k). a_k is the displacement of the client's own optimizer
under unit gradient and unit rate: τ_k for plain SGD, (1 − (1 − ημ)^τ_k)/(ημ) with a proximal term, more with
momentum. It is computed by running that recursion on one number. Wang et al. 2020 (NeurIPS), section 4.
"""

from torch import Tensor, nn

from fedscope.errors import UserError
from fedscope.federated.record.method import Method, Required
from fedscope.federated.record.options import Option, Values
from fedscope.federated.record.vectors import Vector
from fedscope.federated.record.views import Finish, ServerStep


def reach(steps: int, momentum: float = 0.0, nesterov: bool = False, shrink: float = 0.0) -> float:
    """Return a_k after ``steps`` under unit gradient and rate; ``shrink`` is ημ of a proximal term."""
    moved = velocity = 0.0
    for _ in range(steps):
        gradient = 1 - shrink * moved
        velocity = momentum * velocity + gradient
        moved += gradient + momentum * velocity if nesterov else velocity
    return moved


def finish(end: Finish) -> dict[str, Tensor]:
    """Return p_k d_k and p_k a_k, p_k not yet divided by its sum."""
    mu = float(end.options.get("prox.mu", 0.0))
    a = reach(end.steps, end.momentum, end.nesterov, end.lr * mu)
    moved = end.parameters - end.anchor
    return {"nova.d": end.weight * moved / a, "nova.a": end.weight * moved.new_full((len(moved), 1), a)}


def server(step: ServerStep) -> tuple[Tensor, dict[str, Tensor]]:
    """Return θ + γ (Σ p_k a_k)(Σ p_k d_k)."""
    a, d = step.sums["nova.a"] / step.weight, step.sums["nova.d"] / step.weight
    return step.kept + float(step.options["nova.gamma"]) * a * d, {}


def check(_: nn.Module, options: Values) -> None:
    """Refuse proximal terms whose pull is not linear, or not there in every step."""
    if options.get("prox.form", "squared") != "squared" or options.get("prox.skip", "never") != "never":
        raise UserError("fednova's a_k is for prox.form=squared and prox.skip=never; leave those options out")


FEDNOVA = Method(
    name="fednova",
    objective="ℓ(w); θ ← θ + γ (Σ p_k a_k)(Σ p_k (w_k − θ)/a_k)",
    source="Wang et al. 2020 (NeurIPS), section 4",
    place="on the server",
    options=(Option("nova.gamma", 1.0, "server learning rate γ"),),
    checks=(check,),
    required_settings=(
        Required("optimizer_state", "round", "a_k counts momentum from zero in every round"),
        Required("optimizer", "sgd", "a_k is how often the path of SGD counts its mean gradient"),
    ),
    uploads=(Vector("nova.d", replaces_model=True), Vector("nova.a", "number")),
    finish=(finish,),
    server=server,
)
