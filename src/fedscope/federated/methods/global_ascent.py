"""FedLESAM and FedGF: the ascent follows the path of the global model instead of a client's gradient.

FedLESAM: the gradient is taken at w + ρ(θ_old − θ_t)/‖θ_old − θ_t‖, θ_old the model that the client received
when it last took part, before that the initial one: against the way that the global model has gone. One
gradient per step; the client keeps a model, nothing more is sent. On SCAFFOLD it is FedLESAM-S, on FedDyn
FedLESAM-D. The published program takes θ_old of the round before, and of the flat vector one number per
tensor instead of the tensor's part of it; here the paper's holds.

FedGF: the gradient is taken at c(θ_t + ρ_g u/‖u‖) + (1 − c)(w + ρ g/‖g‖), u = θ_{t−1} − θ_t the last global
step turned round: between the perturbed global model and the point of FedSAM. c is the share of the last W
rounds in which mean_k ‖w_k − θ_t‖ was above T_D. From the authors' program, which sends the perturbed model;
here u and c are sent, and a client adds the number ‖w_k − θ_t‖, which the server could compute.
"""

from torch import Tensor

from fedscope.federated.methods.ascent import BN, uphill
from fedscope.federated.record.method import Gradient, Method
from fedscope.federated.record.options import Option
from fedscope.federated.record.vectors import Vector
from fedscope.federated.record.views import Finish, ServerStep, Stack


def against_the_path(gradient: Gradient, step: Stack) -> Tensor:
    """Return the task loss's gradient at w + ρ(θ_old − θ_t)/‖θ_old − θ_t‖, (K, P)."""
    back = step.memory["lesam.received"] - step.anchor
    return gradient(step.parameters + uphill(back, float(step.options["lesam.rho"]), beside=1e-7))


def received(end: Finish) -> dict[str, Tensor]:
    """Return θ_t, the next time's θ_old."""
    return {"lesam.received": end.anchor}


def between(gradient: Gradient, step: Stack) -> Tensor:
    """Return the task loss's gradient at c(θ_t + ρ_g u/‖u‖) + (1 − c)(w + ρ g/‖g‖), (K, P)."""
    options, c = step.options, step.received["gf.c"]
    mine = step.parameters + uphill(gradient(step.parameters), float(options["gf.rho"]))
    back = step.received["gf.u"].expand_as(step.anchor)
    theirs = step.anchor + uphill(back, float(options["gf.global_rho"]))
    return gradient(c * theirs + (1 - c) * mine, keep_buffers=options["sam.bn"] == "first")


def distance(end: Finish) -> dict[str, Tensor]:
    """Return ‖w_k − θ_t‖."""
    return {"gf.distance": (end.parameters - end.anchor).norm(dim=1, keepdim=True)}


def interpolation(step: ServerStep) -> dict[str, Tensor]:
    """Return u; whether each of the last W rounds was above T_D, as bits of a number; and their mean c."""
    width = int(step.options["gf.window"])
    above = step.sums["gf.distance"] / step.participants > float(step.options["gf.threshold"])
    window = (2 * step.state["gf.above"] + above) % 2**width
    share = int(window).bit_count() / min(step.round, width)
    return {"gf.u": step.anchor - step.mean, "gf.above": window, "gf.c": window.new_full((1,), share)}


FEDLESAM = Method(
    name="fedlesam",
    objective="ℓ(w + e), e = ρ(θ_old − θ_t)/‖θ_old − θ_t‖, θ_old the model received before",
    source="Fan et al. 2024 (ICML, arXiv 2405.18890)",
    place="the point at which the task loss is differentiated",
    flatness=True,
    options=(Option("lesam.rho", 0.1, "radius ρ (the published program: 0.1, its example: 0.5)"),),
    gradient_at=against_the_path,
    memory=(Vector("lesam.received", start="initial"),),
    finish=(received,),
)
FEDGF = Method(
    name="fedgf",
    objective="ℓ(c(θ_t + ρ_g u/‖u‖) + (1 − c)(w + ρ g/‖g‖)), u = θ_{t−1} − θ_t",
    source="Lee, Yoon 2024 (ICML); the authors' program",
    place="the point at which the task loss is differentiated",
    flatness=True,
    options=(
        Option("gf.rho", 0.05, "radius ρ of the client's ascent (the program: 0.02, 0.05 or 0.1)"),
        Option("gf.global_rho", 0.05, "radius ρ_g of the global model's (the program: that of the clients)"),
        Option("gf.threshold", 0.2, "distance T_D above which a round counts (the program: 0.2 or 0.3)"),
        Option("gf.window", 30, "rounds W over which c is a mean", within=(1, 50)),
        BN,
    ),
    gradient_at=between,
    uploads=(Vector("gf.distance", "number"),),
    finish=(distance,),
    server_notes=(interpolation,),
    server_state=(Vector("gf.u"), Vector("gf.above", "number"), Vector("gf.c", "number")),
    broadcast=("gf.u", "gf.c"),
)  # fmt: skip
