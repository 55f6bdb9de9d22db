"""FedACG and FedNSAM: clients start where the server's momentum leads.

The server keeps θ_t and m, and sends θ_t + λm; then m ← λm + (mean w_k − sent), θ_{t+1} = θ_t + m. FedACG
ties the clients to what they received by β‖w − sent‖², inside the clip (Kim et al. 2024, as in the authors'
program, with no factor ½). FedNSAM trains them by FedSAM's steps instead (Liu et al. 2026). FedNSAM's
abstract speaks of the momentum as the direction of the ascent too; its program ascends along the client's own
gradient, and so does this. That program's momentum is (1 + λ) times the last displacement and has nothing
older; here it is FedACG's.
"""

from collections.abc import Callable
from dataclasses import replace

from torch import Tensor

from fedscope.federated.methods.ascent import FEDSAM
from fedscope.federated.record.method import Method
from fedscope.federated.record.options import Option
from fedscope.federated.record.vectors import Vector
from fedscope.federated.record.views import Sending, ServerStep, Term

Rule = Callable[[ServerStep], tuple[Tensor, dict[str, Tensor]]]


def ahead(prefix: str) -> Callable[[Sending], Tensor]:
    """Return what is sent, as a function: θ_t + λm."""

    def model_to_send(at: Sending) -> Tensor:
        return at.kept + float(at.options[f"{prefix}.lambda"]) * at.state[f"{prefix}.m"]

    return model_to_send


def accelerated(prefix: str) -> Rule:
    """Return the server's rule: θ_t + m, and m ← λm + mean displacement; for λ = 0 the mean, bit for bit."""

    def rule(step: ServerStep) -> tuple[Tensor, dict[str, Tensor]]:
        led = float(step.options[f"{prefix}.lambda"]) * step.state[f"{prefix}.m"]
        model = step.mean + (step.kept + led - step.anchor)
        return model, {f"{prefix}.m": led + step.mean - step.anchor}

    return rule


def tie(step: Term) -> Tensor:
    """Return β‖w − sent‖², a scalar."""
    return float(step.options["acg.beta"]) * (step.parameters - step.anchor).square().sum()


def momentum(prefix: str) -> Option:
    """Return the option of the momentum's coefficient."""
    return Option(f"{prefix}.lambda", 0.85, "momentum λ (the program: 0.85)", within=(0.0, 1.0))


FEDACG = Method(
    name="fedacg",
    objective="ℓ(w) + β‖w − sent‖²; θ_t + λm is sent, m ← λm + Δ, θ ← θ + m",
    source="Kim et al. 2024 (CVPR, arXiv 2201.03172); the authors' program",
    place="in the model that is sent; in the loss, inside the clip; on the server",
    options=(momentum("acg"), Option("acg.beta", 1e-3, "strength β of the tie (the program: 1e-3)")),
    parameter_terms=(tie,),
    server=accelerated("acg"),
    sends=ahead("acg"),
    server_state=(Vector("acg.m"),),
)
FEDNSAM = replace(
    FEDSAM,
    name="fednsam",
    objective="max_{‖e‖≤ρ} ℓ(w + e); θ_t + λm is sent, m ← λm + Δ, θ ← θ + m",
    source="Liu et al. 2026 (arXiv 2602.23827); the authors' program",
    place=f"in the model that is sent; {FEDSAM.place}; on the server",
    options=(momentum("nsam"), *FEDSAM.options),
    server=accelerated("nsam"),
    sends=ahead("nsam"),
    server_state=(Vector("nsam.m"),),
)
