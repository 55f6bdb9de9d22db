"""The methods' equations, one function each, on dictionaries of tensors by parameter name.

Part of the oracle of ``reference.py``; section numbers are the methods' specification's. ``anchor`` is θ,
the parameters the server sent.
"""

import math
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

Vector = dict[str, Tensor]  # one tensor per name


def copied(a: Vector) -> Vector:
    return {name: a[name].clone() for name in a}


def zeros(a: Vector) -> Vector:
    return {name: torch.zeros_like(a[name]) for name in a}


def plus(a: Vector, b: Vector, factor: float = 1.0) -> Vector:
    """Return a + factor·b; a name that b lacks keeps its a."""
    return {name: a[name] + factor * b[name] if name in b else a[name] for name in a}


def minus(a: Vector, b: Vector) -> Vector:
    return {name: a[name] - b[name] for name in a}


def times(a: Vector, factor: float) -> Vector:
    return {name: a[name] * factor for name in a}


def norm(a: Vector) -> float:
    return math.sqrt(sum(float((a[name] ** 2).sum()) for name in a))


def weighted_sum(vectors: Sequence[Vector], weights: Sequence[float]) -> Vector:
    total = zeros(vectors[0])
    for vector, weight in zip(vectors, weights, strict=True):
        total = plus(total, vector, weight)
    return total


# 2.2 FedProx


def prox_gradient(w: Vector, anchor: Vector, mu: float, form: str) -> Vector:
    """Return the gradient of (μ/2)‖w − θ‖², or of (μ/2)‖w − θ‖ (0 at w = θ)."""
    away = minus(w, anchor)
    if form == "squared":
        return times(away, mu)
    length = norm(away)
    return times(away, 0.5 * mu / length) if length > 0 else zeros(away)


# 2.3 MOON


def moon_term(z: Tensor, z_global: Tensor, z_previous: Tensor, tau: float) -> Tensor:
    """Return the mean over the batch of −log(e^{s_glob/τ} / (e^{s_glob/τ} + e^{s_prev/τ}))."""
    towards = torch.exp(cosine(z, z_global) / tau)
    away = torch.exp(cosine(z, z_previous) / tau)
    return -torch.log(towards / (towards + away)).mean()


def cosine(a: Tensor, b: Tensor) -> Tensor:
    lengths = (a**2).sum(1).sqrt() * (b**2).sum(1).sqrt()
    return (a * b).sum(1) / lengths.clamp(min=1e-8)


# 2.8, 2.9, 2.13 The ascent of FedSAM, FedASAM and FedSpeed


def sam_ascent(g: Vector, rho: float, offset: float = 1e-16) -> Vector:
    """Return e = ρ g/(‖g‖ + offset)."""
    return times(g, rho / (norm(g) + offset))


def asam_ascent(w: Vector, g: Vector, rho: float, offset: float, scaled: str) -> Vector:
    """Return e = ρ t²⊙g/‖t⊙g‖ with t = |w| + offset on the scaled tensors, 1 on the others."""
    t = {}
    for name in w:
        chosen = {"name_weight": "weight" in name, "all": True, "ndim>1": w[name].ndim > 1}[scaled]
        t[name] = w[name].abs() + offset if chosen else torch.ones_like(w[name])
    length = norm({name: t[name] * g[name] for name in g})
    return {name: rho * t[name] ** 2 * g[name] / (length + 1e-16) for name in g}


# 2.15 FedCurv


def curv_gradient(w: Vector, others: Iterable[tuple[Vector, Vector]], strength: float) -> Vector:
    """Return the gradient of λ Σ_j Σ_i F_{j,i} (w_i − w_{j,i})², over the explicit pairs (F_j, w_j)."""
    total = zeros(w)
    for fisher, solution in others:
        for name in w:
            total[name] = total[name] + 2 * strength * fisher[name] * (w[name] - solution[name])
    return total


# 2.17 FedFOR


def for_gradient(w: Vector, anchor: Vector, g: Vector, alpha: float, positive_only: bool) -> Vector:
    """Return α·g_i where g_i (w_i − θ_i) > 0, elsewhere 0; α·g everywhere without ``positive_only``."""
    found = {}
    for name in w:
        retreats = (g[name] * (w[name] - anchor[name]) > 0).to(w[name].dtype)
        found[name] = alpha * g[name] * (retreats if positive_only else 1.0)
    return found


# 2.18 FedNova


def nova_steps(tau: int, momentum: float = 0.0, nesterov: bool = False, shrinkage: float = 0.0) -> float:
    """Return a_k: how far τ local steps go under a gradient of 1 at rate 1; ``shrinkage``: FedProx's ημ."""
    position = velocity = 0.0
    for _ in range(tau):
        gradient = 1.0 - shrinkage * position
        velocity = momentum * velocity + gradient
        position += gradient + momentum * velocity if nesterov else velocity
    return position
