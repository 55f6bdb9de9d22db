"""Prior shift without state: each round's clients are new, and each has its own long tail of classes."""

import math

import numpy as np
from numpy.typing import NDArray

from fedscope.data.partition.regular import Labels, Rows
from fedscope.errors import UserError

# FedFOR's values are not published; these are provisional.
PHI = 0.1
RHO = 0.01


def longtail_stateless(
    labels: Labels, clients: int, generator: np.random.Generator, *, phi: float, rho: float
) -> list[Rows]:
    """Draw one round's fresh clients, each independently of the others (FedFOR's imbalanced CIFAR-10).

    A client draws ⌊φn⌋ rows without replacement and an order π of the C classes, and keeps of class π(r) the
    first ⌊n_max·ρ^{r/(C−1)}⌋ of its rows, or all if there are fewer. n_max = ⌊φn⌋/C is the mean number of
    rows per class, as long-tailed CIFAR has it (Cui et al. 2019), so that the same share of the rows survives
    at every φ. A client's rows are distinct; clients may share rows.

    Draws, for each client: a permutation of all rows, of which the first ⌊φn⌋ are the draw, and a permutation
    of the classes; both again while the client would be left with nothing.
    """
    classes, codes = np.unique(labels, return_inverse=True)
    drawn = math.floor(phi * len(labels) + 1e-9)  # 1000 of 10,000 at 0.1, whatever 0.1 is in binary
    if drawn < len(classes):
        raise UserError(
            f"longtail_stateless draws {drawn} of {len(labels)} samples at phi {phi:g}, less than one of "
            f"each of {len(classes)} classes; raise --phi"
        )
    kept = longtail_counts(drawn / len(classes), len(classes), rho)
    return [_client(codes, drawn, kept, generator) for _ in range(clients)]


def longtail_counts(most: float, classes: int, rho: float) -> NDArray[np.int64]:
    """Return ⌊most·ρ^{r/(C−1)}⌋ for the ranks r = 0…C−1 of ``classes`` classes: (C,), descending."""
    ranks = np.arange(classes) / max(1, classes - 1)
    return np.floor(most * rho**ranks + 1e-9).astype(np.int64)


def _client(codes: Labels, drawn: int, kept: NDArray[np.int64], generator: np.random.Generator) -> Rows:
    pieces: list[Rows] = []
    while not any(map(len, pieces)):  # at least one attempt in C finds rows of its first class
        rows = generator.permutation(len(codes))[:drawn]
        order = generator.permutation(len(kept))
        pieces = [rows[codes[rows] == label][:count] for label, count in zip(order, kept, strict=True)]
    return np.concatenate(pieces).astype(np.int64)
