"""The edge of stability: the curvature up to which steps of gradient descent on a quadratic do not diverge.

With learning rate η, momentum β and weight decay δ (Cohen et al. 2021, section 2 and appendix B), for the
steps that PyTorch's SGD takes:

    without momentum      λ + δ ≤ 2/η
    momentum              λ + δ ≤ 2(1 + β)/η
    Nesterov momentum     λ + δ ≤ 2(1 + β)/(η(1 + 2β))

Training on all samples at once raises λ_max to this bound and stays there. With few samples in a step, with a
new momentum in every round, or with SAM's ascent it stays below.
"""

import math
from typing import Any

from fedscope.errors import UserError
from fedscope.records.run_curves import RunCurves


def largest_stable(
    lr: float, *, momentum: float = 0.0, nesterov: bool = False, weight_decay: float = 0.0
) -> float:
    """Return the largest stable λ of local steps [loss/w²]; infinity for a learning rate of 0."""
    if not lr:
        return math.inf
    return 2 * (1 + momentum) / (1 + 2 * momentum * nesterov) / lr - weight_decay


def stable_at(record: RunCurves, round: int) -> float:
    """Return the largest stable λ of the local steps of one round of a run [loss/w²].

    Raises:
        UserError: the run does not say its learning rate, as one that another program trained.
    """
    metrics, settings = record.metrics, record.settings
    rates = dict(zip(metrics.round, metrics.lr, strict=False))
    rate = rates.get(round, settings.get("lr"))
    if not isinstance(rate, int | float):
        raise UserError(
            f"the learning rate of round {round} of {record.run} is not known: a run from elsewhere has none"
        )
    return largest_stable(float(rate), **_optimiser(settings))


def _optimiser(settings: dict[str, Any]) -> dict[str, Any]:
    names = ("momentum", "nesterov", "weight_decay")
    return {name: settings[name] for name in names if settings.get(name) is not None}
