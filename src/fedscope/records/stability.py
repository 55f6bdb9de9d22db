"""The edge of stability: the curvature up to which steps of gradient descent on a quadratic do not diverge.

With learning rate η, momentum β and weight decay δ (Cohen et al. 2021, section 2 and appendix B), for the
steps that PyTorch's SGD takes:

    without momentum      λ + δ ≤ 2/η
    momentum              λ + δ ≤ 2(1 + β)/η
    Nesterov momentum     λ + δ ≤ 2(1 + β)/(η(1 + 2β))

A server that is adaptive, FedAdagrad, FedAdam or FedYogi, takes θ ← θ + γ m/(√s + ε) with an average m of the
mean displacements Δ. To first order in the local rate Δ = −η a ∇F, where a is what τ local steps of unit rate
move under a unit gradient (τ without momentum), so that with P = diag(√s + ε) as it is (Cohen et al. 2022,
section 2, for an average of gradients)

    λ_max(P⁻¹H) ≤ 2(1 + β₁)/((1 − β₁) γηa)

Training on all samples at once raises λ_max to this bound and stays there. With few samples in a step, with a
new momentum in every round, or with SAM's ascent it stays below.
"""

import math
from collections.abc import Mapping
from typing import Any


def largest_stable(
    lr: float, *, momentum: float = 0.0, nesterov: bool = False, weight_decay: float = 0.0
) -> float:
    """Return the largest stable λ of local steps [loss/w²]; infinity for a learning rate of 0."""
    if not lr:
        return math.inf
    return 2 * (1 + momentum) / (1 + 2 * momentum * nesterov) / lr - weight_decay


def largest_stable_adaptive(rate: float, *, beta1: float = 0.0) -> float:
    """Return the largest stable λ of P⁻¹H, for steps of ``rate`` along an average of gradients with β₁."""
    if not rate:
        return math.inf
    return 2 * (1 + beta1) / ((1 - beta1) * rate)


def stable_under(settings: Mapping[str, Any], lr: float | None) -> float | None:
    """Return the largest stable λ of local steps under a run's settings [loss/w²].

    Args:
        settings: of the run; null for one that is not known.
        lr: η of the round; None: that of the settings.

    Returns:
        None where no learning rate is known, as of a run that another program trained, and of steps of Adam,
        whose bound is of the Hessian that their second moments scale.
    """
    if settings.get("optimizer", "sgd") != "sgd":
        return None
    rate = settings.get("lr") if lr is None or math.isnan(lr) else lr
    if rate is None:
        return None
    names = ("momentum", "nesterov", "weight_decay")
    step = {name: settings[name] for name in names if settings.get(name) is not None}
    return largest_stable(rate, **step)
