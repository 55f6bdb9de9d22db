"""Skew by the Dirichlet distribution: of the labels, with sizes that differ or not; or of the sizes alone.

All say in which order they draw, because a partition is its generator's state and nothing else: change the
order and every published run has other clients. Each returns one int64 array of rows per client.
"""

import numpy as np
from numpy.typing import NDArray

from fedscope.data.partition.regular import Labels, Rows
from fedscope.errors import UserError

MIN_SAMPLES = 10  # smallest client that is accepted, but by dirichlet_equal (FedML, NIID-Bench)
MAX_DRAWS = 1000
Shares = NDArray[np.float64]


def dirichlet_balanced(
    labels: Labels, clients: int, generator: np.random.Generator, *, alpha: float
) -> list[Rows]:
    """Divide each class by Dir(α) shares over the clients that do not yet hold n/N samples.

    Sizes are unequal, at most n/N plus the largest piece of a class; classes may be absent. A draw that
    leaves a client below 10 samples is discarded (FedML; NIID-Bench, Li et al. 2022; the "hetero" split of
    Mendieta et al. 2022). A class is cut at ⌊(q_1 + … + q_k)·n_c⌋; where the sum of all shares rounds to just
    below 1, its last row goes to the last client even if that is full, as in the published code.

    Draws, for each attempt: for each class in ascending order one permutation of its rows, then N Dirichlet
    shares, again while all of them fall on full clients. After the attempt that is accepted: one permutation
    of each client's rows, in client order.
    """
    _check_enough("dirichlet_balanced", len(labels), clients)
    by_class = [np.flatnonzero(labels == label) for label in np.unique(labels)]
    for _ in range(MAX_DRAWS):
        held = _balanced_draw(by_class, clients, alpha, generator)
        if min(map(len, held)) >= MIN_SAMPLES:
            return [generator.permutation(rows) for rows in held]
    raise _none_found("dirichlet_balanced", clients, alpha)


def _balanced_draw(
    by_class: list[Rows], clients: int, alpha: float, generator: np.random.Generator
) -> list[Rows]:
    full = sum(map(len, by_class)) / clients
    held: list[list[Rows]] = [[] for _ in range(clients)]
    sizes = np.zeros(clients)
    for rows in by_class:
        shuffled = generator.permutation(rows)
        shares = _open_shares(alpha, sizes < full, generator)
        cuts = np.floor(np.cumsum(shares)[:-1] * len(rows)).astype(int)
        for client, piece in enumerate(np.split(shuffled, cuts)):
            held[client].append(piece)
            sizes[client] += len(piece)
    return [np.concatenate(pieces) for pieces in held]


def _open_shares(alpha: float, open_: NDArray[np.bool_], generator: np.random.Generator) -> Shares:
    """Draw Dir(α) shares, zero for full clients; at tiny α all mass may fall on full ones: draw again."""
    for _ in range(MAX_DRAWS):
        shares = generator.dirichlet(np.full(len(open_), alpha)) * open_
        if 0 < shares.sum() < np.inf:
            return np.asarray(shares / shares.sum())
    raise _vanished(alpha)


def quantity_skew(
    labels: Labels, clients: int, generator: np.random.Generator, *, alpha: float
) -> list[Rows]:
    """Cut one random permutation into parts whose sizes have the shares of one draw from Dir(α, …, α).

    Quantity skew of NIID-Bench, where α is called β (Li et al. 2022): clients differ in their sizes alone. A
    draw that leaves a client below 10 samples is discarded. The cuts are at ⌊(q_1 + … + q_k)·n⌋.

    Draws one permutation of all rows, and then N shares for each attempt.
    """
    _check_enough("quantity_skew", len(labels), clients)
    rows = generator.permutation(len(labels)).astype(np.int64)
    for _ in range(MAX_DRAWS):
        shares = generator.dirichlet(np.full(clients, alpha))
        if not shares.sum() > 0.5:  # NaN or zero: α is at the end of floating point
            raise _vanished(alpha)
        parts = np.split(rows, np.floor(np.cumsum(shares)[:-1] * len(rows)).astype(int))
        if min(map(len, parts)) >= MIN_SAMPLES:
            return parts
    raise _none_found("quantity_skew", clients, alpha)


def dirichlet_equal(
    labels: Labels,
    clients: int,
    generator: np.random.Generator,
    *,
    alpha: float,
    exhausted: str = "redraw",
) -> list[Rows]:
    """Give every client ⌊n/N⌋ samples of classes by its own draw from Dir(α) (FedDyn, Acar et al. 2021).

    In turn a client with an open quota, chosen uniformly, takes the last unused sample of a class drawn from
    its shares q_k. When that class is used up, ``exhausted`` says what happens:

    - ``redraw``: another class. Drawing again until a class with samples comes up has the distribution of one
      draw from q_k renormalised over those classes, P(c) = q_kc / Σ_{c' left} q_kc', which cannot stall. A
      client whose own classes are all used up draws by what is left of each class.
    - ``refill``: all samples of the class can be taken once more, so that rows repeat, also within a client,
      and every client follows its q_k to the end (FL-Simulator).

    Draws: N×C Dirichlet shares; then for each sample the place of the client in the list of open ones (the
    last of the list takes the place of a client that is served), and one uniform number u for the class: the
    first c at which the cumulative weights exceed u times their sum.
    """
    classes, codes = np.unique(labels, return_inverse=True)
    by_class = [np.flatnonzero(codes == c).tolist() for c in range(len(classes))]
    shares = generator.dirichlet(np.full(len(classes), alpha), size=clients)
    if not (shares.sum(axis=1) > 0.5).all():  # NaN or zero: α is at the end of floating point
        raise _vanished(alpha)
    unused = [rows.copy() for rows in by_class]
    left = np.array([len(rows) for rows in unused])
    quota = len(labels) // clients
    held: list[list[int]] = [[] for _ in range(clients)]
    open_ = list(range(clients))
    while open_:
        place = int(generator.integers(len(open_)))
        client = open_[place]
        drawn = _draw_class(shares[client], left, generator)
        held[client].append(unused[drawn].pop())
        left[drawn] -= 1
        if exhausted == "refill" and not left[drawn]:
            unused[drawn] = by_class[drawn].copy()
            left[drawn] = len(by_class[drawn])
        if len(held[client]) == quota:
            open_[place] = open_[-1]
            open_.pop()
    return [np.array(rows, dtype=np.int64) for rows in held]


def dirichlet_in_turn(
    labels: Labels, clients: int, generator: np.random.Generator, *, alpha: float
) -> list[Rows]:
    """Give every client ⌊n/N⌋ samples of classes by its own draw from Dir(α·p), one client after the other.

    p_c is the share of class c, so that of C equal classes each has the concentration α/C (Hsu et al. 2019;
    the divisions of Caldarola et al. 2022). A client takes samples of classes drawn from its q_k; a class
    that is used up is left out, and q_k renormalised over the others, so that no row repeats. Where
    these shares have vanished in floating point, they are drawn anew from Dir(α·p) of the classes left, which
    has the distribution of the renormalised q_k.

    Draws: N×C Dirichlet shares, one permutation of each class's rows in ascending order of the classes, and
    then one uniform number for each sample, as :func:`dirichlet_equal`, new shares before it where needed.
    """
    classes, codes, counts = np.unique(labels, return_inverse=True, return_counts=True)
    prior = alpha * counts / len(labels)
    shares = generator.dirichlet(prior, size=clients)
    if not (shares.sum(axis=1) > 0.5).all():  # NaN or zero: α is at the end of floating point
        raise _vanished(alpha)
    unused = [generator.permutation(np.flatnonzero(codes == c)).tolist() for c in range(len(classes))]
    held = []
    for client in range(clients):
        rows = []
        for _ in range(len(labels) // clients):
            if not (shares[client] * (counts > 0)).sum() > 0:
                shares[client, counts > 0] = generator.dirichlet(prior[counts > 0])
            drawn = _draw_class(shares[client], counts, generator)
            rows.append(unused[drawn].pop())
            counts[drawn] -= 1
        held.append(np.array(rows, dtype=np.int64))
    return held


def _draw_class(shares: Shares, left: NDArray[np.int64], generator: np.random.Generator) -> int:
    weights = shares * (left > 0)
    if not weights.sum() > 0:  # the client's own classes are used up
        weights = left.astype(float)
    cumulative = np.cumsum(weights)
    drawn = int(np.searchsorted(cumulative, generator.random() * cumulative[-1], side="right"))
    if drawn == len(weights):  # u times a subnormal sum can round up to the sum
        return int(np.flatnonzero(weights)[-1])
    return drawn


def _check_enough(kind: str, samples: int, clients: int) -> None:
    if samples < MIN_SAMPLES * clients:
        raise UserError(
            f"{kind} needs {MIN_SAMPLES} samples per client: {samples} samples serve at most "
            f"{samples // MIN_SAMPLES} clients, not {clients}; lower --clients"
        )


def _none_found(kind: str, clients: int, alpha: float) -> UserError:
    return UserError(
        f"{kind} found no draw with {MIN_SAMPLES} samples for each of {clients} clients at "
        f"alpha {alpha:g} in {MAX_DRAWS} tries; raise --alpha or lower --clients"
    )


def _vanished(alpha: float) -> UserError:
    return UserError(
        f"at alpha {alpha:g} the Dirichlet shares vanish in floating point; use --alpha between 0.01 and 1e6"
    )
