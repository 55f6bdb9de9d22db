"""The two Dirichlet partitions once more: plain loops over lists, written from their definitions.

They draw the same numbers of the same numpy generator in the same order as the package, and share no line
with it.
"""

import math

import numpy as np


def rows_of_each_class(labels: list[int]) -> list[list[int]]:
    found: dict[int, list[int]] = {}
    for row, label in enumerate(labels):
        found.setdefault(label, []).append(row)
    return [found[label] for label in sorted(found)]


def balanced(
    labels: list[int], clients: int, alpha: float, generator: np.random.Generator
) -> list[list[int]]:
    while True:
        held: list[list[int]] = [[] for _ in range(clients)]
        for rows in rows_of_each_class(labels):
            shuffled = generator.permutation(rows)
            shares = [0.0] * clients
            while sum(shares) == 0:
                for client, share in enumerate(generator.dirichlet([alpha] * clients)):
                    is_full = len(held[client]) * clients >= len(labels)
                    shares[client] = 0.0 if is_full else float(share)
            # numpy's sum, because the last bit of a share can move a cut
            total, reached, start = float(np.sum(shares)), 0.0, 0
            for client in range(clients):
                reached += shares[client] / total
                end = len(rows) if client == clients - 1 else math.floor(reached * len(rows))
                held[client] += [int(row) for row in shuffled[start:end]]
                start = end
        if all(len(rows) >= 10 for rows in held):
            return [[int(row) for row in generator.permutation(rows)] for rows in held]


def class_at(u: float, weights: list[float]) -> int:
    """The first class at which the running sum of the weights exceeds u times their sum; else the last."""
    running = 0.0
    sums = [running := running + weight for weight in weights]
    last = max(c for c, weight in enumerate(weights) if weight)
    return next((c for c, reached in enumerate(sums) if reached > u * sums[-1]), last)


def equal(
    labels: list[int], clients: int, alpha: float, generator: np.random.Generator, *, refill: bool = False
) -> list[list[int]]:
    by_class = rows_of_each_class(labels)
    unused = [list(rows) for rows in by_class]
    shares = generator.dirichlet([alpha] * len(by_class), size=clients).tolist()
    held: list[list[int]] = [[] for _ in range(clients)]
    waiting = list(range(clients))
    while waiting:
        place = generator.integers(len(waiting))
        client = waiting[place]
        if refill:
            for c in range(len(by_class)):
                unused[c] = unused[c] or list(by_class[c])
        weights = [share if rows else 0.0 for share, rows in zip(shares[client], unused, strict=True)]
        if sum(weights) == 0:
            weights = [float(len(rows)) for rows in unused]
        held[client].append(unused[class_at(generator.random(), weights)].pop())
        if len(held[client]) == len(labels) // clients:
            last = waiting.pop()
            if last != client:
                waiting[place] = last
    return held


def in_turn(labels: list[int], clients: int, alpha: float, generator: np.random.Generator) -> list[list[int]]:
    by_class = rows_of_each_class(labels)
    prior = [alpha * len(rows) / len(labels) for rows in by_class]
    shares = generator.dirichlet(prior, size=clients).tolist()
    unused = [[rows[i] for i in generator.permutation(len(rows))] for rows in by_class]
    held: list[list[int]] = []
    for own in shares:
        held.append([])
        while len(held[-1]) < len(labels) // clients:
            weights = [share if rows else 0.0 for share, rows in zip(own, unused, strict=True)]
            if sum(weights) == 0:
                left = [c for c, rows in enumerate(unused) if rows]
                for c, share in zip(
                    left, generator.dirichlet([prior[c] for c in left]).tolist(), strict=True
                ):
                    own[c] = weights[c] = share
            held[-1].append(unused[class_at(generator.random(), weights)].pop())
    return held


def equal_by_redrawing(
    labels: list[int], clients: int, alpha: float, generator: np.random.Generator
) -> list[list[int]]:
    """The definition to the letter: pick again while the quota is full, draw again while the class is empty.

    A client that would draw for ever, because its shares of what is left underflow, is guarded after a
    thousand draws as the definition has it.
    """
    unused = rows_of_each_class(labels)
    shares = generator.dirichlet([alpha] * len(unused), size=clients)
    quota = len(labels) // clients
    held: list[list[int]] = [[] for _ in range(clients)]
    while min(map(len, held)) < quota:
        client = generator.integers(clients)
        if len(held[client]) == quota:
            continue
        draws = 0
        c = class_at(generator.random(), shares[client].tolist())
        while not unused[c]:
            draws += 1
            left = [share if rows else 0.0 for share, rows in zip(shares[client], unused, strict=True)]
            c = class_at(generator.random(), left if draws == 1000 else shares[client].tolist())
        held[client].append(unused[c].pop())
    return held
