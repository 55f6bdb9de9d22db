"""How a training set is divided over clients: which rows each one holds.

A :class:`Division` names a partitioner and its parameters; :func:`partition` draws it. Every partitioner
returns one int64 array of row indices per client. Same labels, division and generator: same rows, whatever
method trains on them.

Pathological label skew: every client holds samples of few classes.

Each returns one int64 array of rows per client; together they are disjoint.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedscope.data.loading.datasets import Split, part
from fedscope.data.partition.dirichlet import (
    dirichlet_balanced,
    dirichlet_equal,
    dirichlet_in_turn,
    quantity_skew,
)
from fedscope.data.partition.longtail import PHI, RHO, longtail_stateless
from fedscope.data.partition.regular import Labels, Rows, iid, iid_per_class, iid_slices, per_domain
from fedscope.errors import UserError, suggestion
from fedscope.streams import numpy_stream


def by_shards(labels: Labels, clients: int, generator: np.random.Generator, *, shards: int) -> list[Rows]:
    """Sort the rows by class, cut them into N·``shards`` shards, and give each client ``shards`` of them.

    The "pathological non-IID" partition of McMahan et al. 2017 (section 3), where 100 clients have 2 shards
    of 300 digits each. Shards are nearly equal parts; one that crosses the boundary of two classes has both.
    Rows of a class stay in the order in which they are stored.

    Draws one permutation of the shards: client k takes those at places k·s … (k+1)·s − 1.
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


# Each kind with the parameters it reads; it ignores the others.
PARAMETERS: dict[str, tuple[str, ...]] = {
    "iid": (),
    "iid_per_class": (),
    "iid_slices": (),
    "dirichlet_balanced": ("alpha",),
    "dirichlet_equal": ("alpha", "exhausted"),
    "dirichlet_in_turn": ("alpha",),
    "quantity_skew": ("alpha",),
    "shards": ("shards",),
    "fixed_classes": ("classes_per_client",),
    "longtail_stateless": ("phi", "rho"),
    "per_domain": (),
    "own": (),
}
KINDS = tuple(PARAMETERS)
FRESH = ("longtail_stateless",)  # every round's clients are new: the caller passes a generator per round
EXHAUSTED = ("redraw", "refill")
USUAL = {
    "alpha": "0.5", "phi": f"{PHI:g} (provisional)", "rho": f"{RHO:g} (provisional)", "shards": "2",
    "classes_per_client": "2",
}  # fmt: skip
SHARES = ("phi", "rho")  # parameters of at most 1
WITHOUT_CLASSES = ("iid", "iid_slices", "quantity_skew", "per_domain", "own")

_BY_LABEL: dict[str, Callable[..., list[Rows]]] = {
    "iid": iid,
    "iid_per_class": iid_per_class,
    "iid_slices": iid_slices,
    "dirichlet_balanced": dirichlet_balanced,
    "dirichlet_equal": dirichlet_equal,
    "dirichlet_in_turn": dirichlet_in_turn,
    "quantity_skew": quantity_skew,
    "shards": by_shards,
    "fixed_classes": fixed_classes,
    "longtail_stateless": longtail_stateless,
}


@dataclass(frozen=True)
class Division:
    """A partitioner by name, the number of clients N, and its parameters."""

    kind: str
    clients: int  # of one round, where each round's clients are new
    alpha: float | None = None  # concentration of the Dirichlet distribution; δ in Yashwanth et al. 2024
    exhausted: str = "redraw"  # what dirichlet_equal does when a class is used up
    phi: float | None = None  # fraction φ of the training set that a fresh client draws from
    rho: float | None = None  # ρ, rarest to most frequent class
    shards: int | None = None  # that each client gets of the rows sorted by class
    classes_per_client: int | None = None  # k: how many classes each client has

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            hint = suggestion(self.kind, KINDS) or f"; choose one of {', '.join(KINDS)}"
            raise UserError(f"unknown partition {self.kind!r}{hint}")
        if self.clients < 1:
            raise UserError(f"--clients must be at least 1, not {self.clients}")
        for name, value in self.parameters.items():
            self._check(name, value)

    @property
    def parameters(self) -> dict[str, float | str | None]:
        """The parameters that this kind reads, by name."""
        return {name: getattr(self, name) for name in PARAMETERS[self.kind]}

    def _check(self, name: str, value: float | str | None) -> None:
        if name == "exhausted":
            if value not in EXHAUSTED:
                raise UserError(f"--exhausted is {' or '.join(EXHAUSTED)}, not {value!r}")
            return
        flag = f"--{name.replace('_', '-')}"
        if value is None:
            raise UserError(f"partition {self.kind} needs {flag}, such as {USUAL[name]}")
        number = float(value)
        if not 0 < number < np.inf:
            raise UserError(f"partition {self.kind} needs {flag} above 0, not {value}")
        if name in SHARES and number > 1:
            raise UserError(f"{flag} is a share, at most 1, not {value}")


def partition(
    division: Division,
    labels: Labels,
    generator: np.random.Generator,
    domains: Labels | None = None,
    owners: Labels | None = None,
    holders: int | None = None,
) -> list[Rows]:
    """Divide the rows of ``labels`` (n,) over the clients; ``domains`` (n,) says where each row comes from.

    ``owners`` (n,) says the client of each row, where the data come divided, for the kind ``own``, and
    ``holders`` how many clients there are, some of whom may have none of these rows.

    A class without a row is left out: no client holds it, and no number is drawn for it.
    """
    if division.kind == "per_domain":
        if domains is None:
            raise UserError("partition per_domain needs a data set of several domains; choose another one")
        return per_domain(domains, division.clients)
    if division.kind == "own":
        return _own(division.clients, owners, holders)
    if division.clients > len(labels) and division.kind not in FRESH:
        raise UserError(f"{division.clients} clients cannot share {len(labels)} samples; lower --clients")
    return _BY_LABEL[division.kind](labels, division.clients, generator, **division.parameters)


def _own(clients: int, owners: Labels | None, holders: int | None) -> list[Rows]:
    if owners is None:
        raise UserError("partition own is for --data MODULE:FACTORY of one data set per client")
    count = 1 + int(owners.max()) if holders is None else holders
    if clients != count:
        raise UserError(f"the data are {count} clients', not {clients}; leave --clients out")
    held = [np.flatnonzero(owners == client) for client in range(count)]
    if not all(map(len, held)):
        raise UserError(f"--train-samples leaves client {list(map(len, held)).index(0)} none; raise it")
    return held


def divide(
    split: Split,
    division: Division,
    *,
    train_samples: int | None,
    seed: int,
    round: int = 0,
) -> list[Tensor]:
    """Return each client's rows of the training split in a run with ``seed``: int64 tensors (n_k,).

    ``train_samples`` is the size of the part that is used (None: all). Only the kinds in ``FRESH`` are drawn
    anew in each ``round`` (from 0).
    """
    if split.loss and split.targets is not None and division.kind not in WITHOUT_CLASSES:
        raise UserError(
            f"--partition {division.kind} deals by class, and the targets are no classes; use --partition "
            "iid or quantity_skew, or data that come divided"
        )
    used = part(split, train_samples, seed, "train")
    domains, owners = (
        None if part is None else part[used].cpu().numpy() for part in (split.domains, split.clients)
    )
    parts = partition(
        division,
        split.labels[used].cpu().numpy(),
        numpy_stream(seed, "partition", round if division.kind in FRESH else 0),
        domains,
        owners,
        holders=None if split.clients is None else 1 + int(split.clients.max()),
    )
    return [used[torch.from_numpy(rows)] for rows in parts]
