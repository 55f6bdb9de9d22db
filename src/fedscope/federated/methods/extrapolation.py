"""FedExP: the server's learning rate is how much further the clients moved than their mean.

θ ← θ + γ_t Δ, γ_t = max(1, Σ p_k‖w_k − θ‖² / (2(‖Δ‖² + ε))), Δ = Σ p_k (w_k − θ): for orthogonal
displacements m/2, for equal ones 1. ε is multiplied by the number m of participants in the authors' program
and falls with the square of its rate (``exp.per_client``, ``exp.decay``). Each client adds the number p_k‖w_k
− θ‖², which the server could compute. Jhunjhunwala et al. 2023 evaluate the mean of the last two models; here
it is the last one, or an average (``+ema``).
"""

from torch import Tensor

from fedscope.federated.record.method import Method
from fedscope.federated.record.options import Option
from fedscope.federated.record.vectors import Vector
from fedscope.federated.record.views import Finish, ServerStep


def finish(end: Finish) -> dict[str, Tensor]:
    """Return p_k‖w_k − θ‖², p_k not yet divided by its sum."""
    moved = end.parameters - end.anchor
    return {"exp.square": end.weight * moved.square().sum(1, keepdim=True)}


def server(step: ServerStep) -> tuple[Tensor, dict[str, Tensor]]:
    """Return θ + γ_t Δ; the mean of the uploads, bit for bit, where γ_t is 1."""
    delta, options = step.mean - step.anchor, step.options
    beside = float(options["exp.epsilon"]) * float(options["exp.decay"]) ** (step.round - 1)
    if options["exp.per_client"]:
        beside *= step.participants
    rate = step.sums["exp.square"] / step.weight / (2 * (delta.square().sum() + beside))
    return step.onto_kept(step.mean) + (rate.clamp(min=1.0) - 1) * delta, {}


FEDEXP = Method(
    name="fedexp",
    objective="ℓ(w); θ ← θ + max(1, Σ p_k‖Δ_k‖²/(2(‖Δ‖² + ε))) Δ",
    source="Jhunjhunwala, Wang, Joshi 2023 (ICLR, arXiv 2301.09604)",
    place="on the server",
    options=(
        Option("exp.epsilon", 1e-3, "ε beside ‖Δ‖² (the program: 1e-3)", within=(1e-30, float("inf"))),
        Option("exp.per_client", False, "multiply ε by the number of participants", code=True),
        Option("exp.decay", 1.0, "factor of ε per round (0.998²)", code=0.996004, within=(0.0, 1.0)),
    ),
    uploads=(Vector("exp.square", "number"),),
    finish=(finish,),
    server=server,
)
