"""Pathological label skew: every client holds samples of few classes.

Each returns one int64 array of rows per client; together they are disjoint.
"""

import numpy as np

from fedscope.data.partition.slices import Labels, Rows
from fedscope.errors import UserError


def by_shards(labels: Labels, clients: int, generator: np.random.Generator, *, shards: int) -> list[Rows]:
    """Sort the rows by class, cut them into N·``shards`` shards, and give each client ``shards`` of them.

    The "pathological non-IID" partition of McMahan et al. 2017 (section 3), where 100 clients have 2 shards
    of 300 digits each. Shards are nearly equal parts; one that crosses the boundary of two classes has both.
    Rows of a class stay in the order in which they are stored.

    Draws one permutation of the shards: client k takes those at places k·s … (k+1)·s − 1.

    Raises:
        UserError: more shards than samples.
    """
    if clients * shards > len(labels):
        raise UserError(
            f"{clients} clients of {shards} shards need as many samples, and there are {len(labels)}; lower "
            "--shards or --clients"
        )
    pieces = np.array_split(np.argsort(labels, kind="stable").astype(np.int64), clients * shards)
    order = generator.permutation(len(pieces)).reshape(clients, shards)
    return [np.concatenate([pieces[piece] for piece in own]) for own in order]


def fixed_classes(
    labels: Labels, clients: int, generator: np.random.Generator, *, classes_per_client: int
) -> list[Rows]:
    """Give every client samples of exactly so many classes (#C = k of NIID-Bench, Li et al. 2022).

    Client i has class i mod C and k − 1 others, chosen uniformly; the rows of a class are divided into nearly
    equal parts over the clients that have it. The rows of a class that nobody has, which takes N < C, belong
    to no client.

    Draws: for each client its other classes, without replacement; then, for each class in ascending order,
    one permutation of its rows.

    Raises:
        UserError: more classes per client than there are, or a class with fewer rows than clients.
    """
    names, codes = np.unique(labels, return_inverse=True)
    if classes_per_client > len(names):
        raise UserError(f"--classes-per-client {classes_per_client} of {len(names)} classes; lower it")
    has = np.zeros((clients, len(names)), dtype=bool)
    for client in range(clients):
        own = client % len(names)
        others = np.delete(np.arange(len(names)), own)
        has[client, [own, *generator.choice(others, classes_per_client - 1, replace=False)]] = True
    held: list[list[Rows]] = [[] for _ in range(clients)]
    for code, name in enumerate(names):
        rows, holders = generator.permutation(np.flatnonzero(codes == code)), np.flatnonzero(has[:, code])
        if len(holders) > len(rows):
            raise UserError(
                f"{len(holders)} clients have class {name}, which has {len(rows)} samples; lower --clients "
                "or --classes-per-client"
            )
        for client, piece in zip(holders.tolist(), np.array_split(rows, max(1, len(holders))), strict=False):
            held[client].append(piece.astype(np.int64))
    return [np.concatenate(pieces) for pieces in held]
