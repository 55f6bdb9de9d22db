"""FedAvgM, FedAdagrad, FedAdam, FedYogi: the mean displacement is a gradient for the server's optimizer.

Δ = Σ p_k (w_k − θ_t), a descent displacement, so it is added. FedAvgM: v ← βv + Δ, θ ← θ + γv. The others:
m ← β₁m + (1 − β₁)Δ, θ ← θ + γ m/(√s + ε), and s ← s + Δ² (Adagrad), β₂s + (1 − β₂)Δ² (Adam),
s − (1 − β₂)Δ² sign(s − Δ²) (Yogi); no bias correction; s starts at ε². Parameters only: the running
statistics of BatchNorm are averaged plainly.
"""

from collections.abc import Callable, Mapping
from functools import partial

import torch
from torch import Tensor

from fedscope.federated.record.method import Method
from fedscope.federated.record.options import Option, Value
from fedscope.federated.record.vectors import Vector
from fedscope.federated.record.views import ServerStep

ADAPTIVE = ("adagrad", "adam", "yogi")
BELOW_ONE = (0.0, 1 - 1e-9)
Second = Callable[[Tensor, Tensor, float], Tensor]  # (s, Δ², β₂) → s


def momentum(step: ServerStep) -> tuple[Tensor, dict[str, Tensor]]:
    """Return θ + γv, and v."""
    beta, gamma = float(step.options["avgm.beta"]), float(step.options["avgm.gamma"])
    share = 1 - beta if step.options["avgm.dampened"] else 1.0
    v = beta * step.state["avgm.v"] + share * (step.mean - step.anchor)
    return step.kept + gamma * v, {"avgm.v": v}


def adaptive(prefix: str, second: Second, step: ServerStep) -> tuple[Tensor, dict[str, Tensor]]:
    """Return θ + γ m/(√s + ε); m and s."""

    def option(name: str) -> float:
        return float(step.options.get(f"{prefix}.{name}", 0.0))

    delta, beta1, beta2 = step.mean - step.anchor, option("beta1"), option("beta2")
    m, s = step.state[f"{prefix}.m"], step.state[f"{prefix}.s"]
    if step.round == 1 and step.options[f"{prefix}.s0"] == "eps_squared":
        s = torch.full_like(s, option("eps") ** 2)
    m = beta1 * m + (1 - beta1) * delta
    s = second(s, delta.square(), beta2)
    state = {f"{prefix}.m": m, f"{prefix}.s": s}
    if option("bias_correction"):
        m = m / (1 - beta1**step.round)
    return step.kept + option("gamma") * m / scale(prefix, s, step.options, step.round), state


def adaptive_prefix(method: Method) -> str | None:
    """Return what an adaptive server's options and vectors are named by; None of another server."""
    names = {vector.name for vector in method.server_state}
    return next((prefix for prefix in ADAPTIVE if f"{prefix}.s" in names), None)


def scale(prefix: str, s: Tensor, options: Mapping[str, Value], round: int) -> Tensor:
    """Return √s + ε, by which m is divided in ``round``."""
    beta2 = float(options.get(f"{prefix}.beta2", 0.0))
    if options.get(f"{prefix}.bias_correction"):
        s = s / (1 - beta2**round)
    return s.sqrt() + float(options[f"{prefix}.eps"])


def optimizer(name: str, source: str, rule: str, second: Second, *options: Option, beta1: float) -> Method:
    """Return the record of an adaptive server optimizer."""
    prefix = name.removeprefix("fed")
    return Method(
        name=name,
        objective=f"ℓ(w); θ ← θ + γ m/(√s + ε), {rule}",
        source=source,
        place="on the server",
        options=(
            Option(f"{prefix}.gamma", 0.01, "server learning rate γ (to be swept)"),
            Option(f"{prefix}.beta1", beta1, "β₁ of m", within=BELOW_ONE),
            *options,
            Option(f"{prefix}.eps", 1e-3, "ε beside √s", within=(1e-12, float("inf"))),
            Option(f"{prefix}.s0", "eps_squared", "s before round 1", choices=("eps_squared", "zero")),
        ),
        server=partial(adaptive, prefix, second),
        server_state=(Vector(f"{prefix}.m"), Vector(f"{prefix}.s")),
    )


FEDAVGM = Method(
    name="fedavgm",
    objective="ℓ(w); v ← βv + Δ, θ ← θ + γv",
    source="Hsu, Qi, Brown 2019 (arXiv 1909.06335)",
    place="on the server",
    options=(
        Option("avgm.beta", 0.9, "momentum β", within=BELOW_ONE),
        Option("avgm.gamma", 1.0, "server learning rate γ"),
        Option("avgm.dampened", False, "v ← βv + (1 − β)Δ, as MOON's code"),
    ),
    server=momentum,
    server_state=(Vector("avgm.v"),),
)
REDDI = "Reddi et al. 2021 (ICLR), Algorithm 2"
FEDADAGRAD = optimizer("fedadagrad", REDDI, "s ← s + Δ²", lambda s, d, _: s + d, beta1=0.0)
FEDADAM = optimizer(
    "fedadam", REDDI, "s ← β₂s + (1 − β₂)Δ²", lambda s, d, beta2: beta2 * s + (1 - beta2) * d,
    Option("adam.beta2", 0.99, "β₂ of s", within=BELOW_ONE),
    Option("adam.bias_correction", False, "divide m and s by 1 − βᵗ, as PyTorch's Adam"),
    beta1=0.9,
)  # fmt: skip
FEDYOGI = optimizer(
    "fedyogi", REDDI, "s ← s − (1 − β₂)Δ² sign(s − Δ²)",
    lambda s, d, beta2: s - (1 - beta2) * d * (s - d).sign(),
    Option("yogi.beta2", 0.99, "β₂ of s", within=BELOW_ONE),
    beta1=0.9,
)  # fmt: skip
