"""How different the clients of a partition are, from the classes they hold.

p_kc = n_kc / n_k is client k's share of class c; C is the number of classes.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.int64]
Shares = NDArray[np.float64]


def class_counts(labels: NDArray[np.int64], rows: Sequence[NDArray[np.int64]], classes: int) -> Counts:
    """Return n_kc, how many samples of each class each client holds: (N, C)."""
    return np.stack([np.bincount(labels[held], minlength=classes) for held in rows])


def effective_classes(counts: Counts) -> Shares:
    """Return exp(−Σ_c p_kc ln p_kc) of each client, from 1 to C: (N,)."""
    shares = _shares(counts)
    logarithms = np.log(shares, out=np.zeros_like(shares), where=shares > 0)
    return np.asarray(np.exp(-(shares * logarithms).sum(axis=1)))


def total_variation(counts: Counts, everyone: Counts) -> Shares:
    """Return ½ Σ_c |p_kc − p_c| of each client, 0 to 1: (N,); ``everyone`` (C,) counts the whole data set."""
    return np.asarray(np.abs(_shares(counts) - _shares(everyone[None])).sum(axis=1) / 2)


def _shares(counts: Counts) -> Shares:
    return np.asarray(counts / counts.sum(axis=1, keepdims=True))
