"""Partitions with few or no random draws: alike clients, and one client per domain.

Each returns one int64 array of rows per client; together they are disjoint.
"""

import numpy as np
from numpy.typing import NDArray

from fedscope.errors import UserError

Rows = NDArray[np.int64]
Labels = NDArray[np.int64]


def iid(labels: Labels, clients: int, generator: np.random.Generator) -> list[Rows]:
    """Cut one random permutation into nearly equal parts (Mendieta et al. 2022)."""
    return [rows.astype(np.int64) for rows in np.array_split(generator.permutation(len(labels)), clients)]


def iid_per_class(labels: Labels, clients: int, generator: np.random.Generator) -> list[Rows]:
    """Give each client the next ⌊n_c/N⌋ rows of every class c, in class order; draws nothing.

    Every client has the same class shares to the sample; n_c mod N rows of a class belong to no client
    (Yashwanth et al. 2024 on CIFAR-100, where nothing is left over).
    """
    classes, sizes = np.unique(labels, return_counts=True)
    if sizes.min() < clients:
        raise UserError(
            f"iid_per_class needs a sample of every class for each client: class {classes[sizes.argmin()]} "
            f"has {sizes.min()}, not {clients}; lower --clients, or use --partition iid"
        )
    pieces = [
        np.flatnonzero(labels == label)[: size // clients * clients].reshape(clients, -1)
        for label, size in zip(classes, sizes, strict=True)
    ]
    return list(np.concatenate(pieces, axis=1))


def iid_slices(labels: Labels, clients: int, generator: np.random.Generator) -> list[Rows]:
    """Cut the rows, in the order in which they are stored, into nearly equal parts; draws nothing.

    Only alike if the data set is stored in random order, as CIFAR is (Yashwanth et al. 2024).
    """
    if labels[0] != labels[-1] and bool((np.diff(labels) >= 0).all()):
        raise UserError(
            "iid_slices cuts the rows as they are stored, and these are sorted by class, so that the clients "
            "would not be alike; use --partition iid"
        )
    return [rows.astype(np.int64) for rows in np.array_split(np.arange(len(labels)), clients)]


def per_domain(domains: Labels, clients: int) -> list[Rows]:
    """Give client k all rows of the k-th domain in ascending order (Li et al. 2021, FedBN)."""
    known = np.unique(domains)
    if known[-1] >= len(known):
        missing = np.setdiff1d(np.arange(known[-1]), known)
        raise UserError(f"domain {missing[0]} has none of the samples in use; raise --train-samples")
    if len(known) != clients:
        raise UserError(
            f"partition per_domain makes one client per domain: there are {len(known)}, so use "
            f"--clients {len(known)}, not {clients}"
        )
    return [np.flatnonzero(domains == domain) for domain in known]
