"""The local learning rate of a round.

Warm-up: in the first W rounds the rate grows linearly, η·t/(W + 1) in round t (Goyal et al. 2017, by rounds).
After s = t − 1 − W further rounds of S = T − W it is

    exponential   η·dˢ
    step          η·d^⌊s/k⌋, k the rounds from one drop to the next
    cosine        η_min + (η − η_min)(1 + cos(πs/S))/2   (Loshchilov and Hutter 2017, Eq. 5, without restarts)

A method may have factors of its own (``round_rates``), such as the cycles of SWA.
"""

import math

from fedscope.checkpoints.file.settings import Settings
from fedscope.federated.record.method import Method


def learning_rate(settings: Settings, round: int) -> float:
    """Return η_t of round t, counted from 1."""
    done = round - 1 - settings.lr_warmup
    if done < 0:
        return settings.lr * round / (settings.lr_warmup + 1)
    if settings.lr_schedule == "cosine":
        share = done / (settings.rounds - settings.lr_warmup)
        return settings.lr_min + (settings.lr - settings.lr_min) * (1 + math.cos(math.pi * share)) / 2
    return settings.lr * settings.lr_decay ** (done // (settings.lr_step or 1))


def round_rate(settings: Settings, method: Method, round: int) -> float:
    factors = (factor(round, settings.options) for factor in method.round_rates)
    return learning_rate(settings, round) * math.prod(factors)
