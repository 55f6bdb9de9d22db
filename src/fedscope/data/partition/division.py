"""The division of a training set as a run's settings name it: every client's rows, and those held out."""

import math
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from fedscope.data.loading.datasets import Split
from fedscope.data.partition.draw_partition import FRESH, Division, divide
from fedscope.errors import UserError
from fedscope.streams import torch_stream


class Divides(Protocol):
    """Settings that divide a training set."""

    @property
    def partition(self) -> str: ...
    @property
    def clients(self) -> int: ...
    @property
    def alpha(self) -> float | None: ...
    @property
    def exhausted(self) -> str: ...
    @property
    def phi(self) -> float | None: ...
    @property
    def rho(self) -> float | None: ...
    @property
    def shards(self) -> int | None: ...
    @property
    def classes_per_client(self) -> int | None: ...
    @property
    def train_samples(self) -> int | None: ...
    @property
    def validation(self) -> float: ...
    @property
    def seed(self) -> int: ...


class Divided(NamedTuple):
    """Each client's training rows (n_k,), and the rows held out of all of them, ascending: int64."""

    clients: list[Tensor]
    validation: Tensor


def division(settings: Divides) -> Division:
    if settings.validation and settings.partition in FRESH:
        raise UserError(
            f"--partition {settings.partition} has new clients in every round, who share rows; leave "
            "--validation out"
        )
    return Division(
        settings.partition, settings.clients, settings.alpha, settings.exhausted, settings.phi, settings.rho,
        settings.shards, settings.classes_per_client,
    )  # fmt: skip


def divided(split: Split, settings: Divides, round: int = 1) -> Divided:
    """Return each client's rows of the training split in ``round``, counted from 1.

    Of each client's n_k rows a random ⌊share·n_k⌋ are held out; where clients share rows, of all of them.
    """
    parts = divide(
        split,
        division(settings),
        train_samples=settings.train_samples,
        seed=settings.seed,
        round=round - 1,
    )
    if not settings.validation:
        return Divided(parts, torch.empty(0, dtype=torch.int64))
    share = settings.validation
    drawn = [_drawn(rows, share, settings.seed, client) for client, rows in enumerate(parts)]
    held_out = torch.cat(drawn).unique()
    if not len(held_out):
        raise UserError(f"--validation {share:g} of clients this small is no sample; raise it")
    left = [rows[~torch.isin(rows, held_out)] for rows in parts]
    if not all(map(len, left)):
        empty = list(map(len, left)).index(0)
        raise UserError(f"--validation {share:g} leaves client {empty} none; lower it")
    return Divided(left, held_out)


def _drawn(rows: Tensor, share: float, seed: int, client: int) -> Tensor:
    order = torch.randperm(len(rows), generator=torch_stream(seed, "validation", 0, client))
    return rows[order[: math.floor(share * len(rows) + 1e-9)]]  # 3 of 30 at 0.1, whatever 0.1 is in binary
