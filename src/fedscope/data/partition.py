"""How a training set is divided over clients: which rows each one holds.

Every partitioner returns one int64 array of row indices per client; together they are disjoint. Same
labels, clients, α and generator: same partition, for every method.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from fedscope.errors import UserError

Rows = NDArray[np.int64]
Labels = NDArray[np.int64]

MIN_SAMPLES = 10  # smallest client that dirichlet_balanced accepts (FedML, NIID-Bench)
MAX_DRAWS = 1000


def partition(
    kind: str, labels: Labels, clients: int, alpha: float | None, generator: np.random.Generator
) -> list[Rows]:
    """Divide the rows of ``labels`` over ``clients`` by the partitioner ``kind``.

    Raises:
        UserError: unknown kind, α missing or not positive, more clients than the data can serve, or no
            acceptable draw found.
    """
    if kind not in KINDS:
        raise UserError(f"unknown partition {kind!r}; choose one of {', '.join(KINDS)}")
    if clients < 1:
        raise UserError(f"--clients must be at least 1, not {clients}")
    if clients > len(labels):
        raise UserError(f"{clients} clients cannot share {len(labels)} samples; lower --clients")
    if kind == "iid":
        return iid(labels, clients, generator)
    if alpha is None or not 0 < alpha < np.inf:
        raise UserError(f"partition {kind} needs --alpha above 0, not {alpha}")
    return DIRICHLET[kind](labels, clients, alpha, generator)


def iid(labels: Labels, clients: int, generator: np.random.Generator) -> list[Rows]:
    """Cut a random permutation into nearly equal parts."""
    return [rows.astype(np.int64) for rows in np.array_split(generator.permutation(len(labels)), clients)]


def dirichlet_balanced(
    labels: Labels, clients: int, alpha: float, generator: np.random.Generator
) -> list[Rows]:
    """Divide each class by Dir(α) shares over the clients that do not yet hold n/N samples.

    Sizes are unequal, classes may be absent; a draw that leaves a client below 10 samples is discarded
    (FedML; NIID-Bench, Li et al. 2022; the "hetero" split of Mendieta et al. 2022).

    Raises:
        UserError: no draw in a thousand gave every client 10 samples.
    """
    if len(labels) < MIN_SAMPLES * clients:
        raise UserError(
            f"dirichlet_balanced needs {MIN_SAMPLES} samples per client: {len(labels)} samples serve at most "
            f"{len(labels) // MIN_SAMPLES} clients, not {clients}; lower --clients"
        )
    for _ in range(MAX_DRAWS):
        held = _balanced_draw(labels, clients, alpha, generator)
        if min(map(len, held)) >= MIN_SAMPLES:
            return [generator.permutation(rows) for rows in held]
    raise UserError(
        f"dirichlet_balanced found no draw with {MIN_SAMPLES} samples for each of {clients} clients at "
        f"alpha {alpha:g} in {MAX_DRAWS} tries; raise --alpha or lower --clients"
    )


def _balanced_draw(labels: Labels, clients: int, alpha: float, generator: np.random.Generator) -> list[Rows]:
    held: list[list[Rows]] = [[] for _ in range(clients)]
    sizes = np.zeros(clients)
    for label in np.unique(labels):
        rows = generator.permutation(np.flatnonzero(labels == label))
        shares = _shares(alpha, sizes < len(labels) / clients, generator)
        cuts = np.floor(np.cumsum(shares)[:-1] * len(rows)).astype(int)
        for client, piece in enumerate(np.split(rows, cuts)):
            held[client].append(piece)
            sizes[client] += len(piece)
    return [np.concatenate(pieces) for pieces in held]


def _shares(alpha: float, open_: NDArray[np.bool_], generator: np.random.Generator) -> NDArray[np.float64]:
    """Draw Dir(α) shares, zero for full clients; at tiny α all mass may fall on full ones: draw again."""
    for _ in range(MAX_DRAWS):
        shares = generator.dirichlet(np.full(len(open_), alpha)) * open_
        if 0 < shares.sum() < np.inf:
            return np.asarray(shares / shares.sum())
    raise UserError(
        f"alpha {alpha:g} is too small: its Dirichlet shares vanish in floating point; raise --alpha"
    )


def dirichlet_equal(labels: Labels, clients: int, alpha: float, generator: np.random.Generator) -> list[Rows]:
    """Give every client ⌊n/N⌋ samples of classes by its own draw from Dir(α) (FedDyn, Acar et al. 2021).

    In turn a client with an open quota, chosen uniformly, takes the last unused sample of a class drawn from
    its shares. Re-drawing while a class is exhausted equals drawing from the shares renormalised over the
    classes that are left, which cannot stall.
    """
    classes, codes = np.unique(labels, return_inverse=True)
    unused = [np.flatnonzero(codes == c).tolist() for c in range(len(classes))]
    left = np.array([len(rows) for rows in unused])
    shares = generator.dirichlet(np.full(len(classes), alpha), size=clients)
    quota = len(labels) // clients
    held: list[list[int]] = [[] for _ in range(clients)]
    open_ = list(range(clients))
    while open_:
        place = int(generator.integers(len(open_)))
        client = open_[place]
        weights = shares[client] * (left > 0)
        if not weights.sum() > 0:  # the client's own classes are used up (or its shares underflowed)
            weights = left.astype(float)
        cumulative = np.cumsum(weights)
        drawn = int(np.searchsorted(cumulative, generator.random() * cumulative[-1], side="right"))
        held[client].append(unused[drawn].pop())
        left[drawn] -= 1
        if len(held[client]) == quota:
            open_[place] = open_[-1]
            open_.pop()
    return [np.array(rows, dtype=np.int64) for rows in held]


Partitioner = Callable[[Labels, int, float, np.random.Generator], list[Rows]]
DIRICHLET: dict[str, Partitioner] = {
    "dirichlet_balanced": dirichlet_balanced,
    "dirichlet_equal": dirichlet_equal,
}
KINDS = ("iid", *DIRICHLET)
