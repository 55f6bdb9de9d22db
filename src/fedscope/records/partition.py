"""Who holds how much of which class: the record of ``plot-partition --json``, ``fedscope/partition/1``."""

from typing import Literal

from pydantic import Field

from fedscope.records.numbers import Count, Many
from fedscope.validation import Plain

PARTITION_SCHEMA = "fedscope/partition/1"


class Division(Plain):
    """The kind of a partition and those of its parameters that it takes."""

    kind: str
    clients: Count
    alpha: float | None = None
    exhausted: str | None = None
    phi: float | None = None
    rho: float | None = None


class PartitionRecord(Plain):
    """The division of a run's data, or of the data that settings describe.

    ``effective_classes`` is the exponential of the entropy of a client's class shares, ``total_variation``
    half the sum of their distances to the shares of the training part that is divided.
    """

    schema_name: Literal["fedscope/partition/1"] = Field(alias="schema")
    run: str | None  # None: no run was named
    rows: Literal["stored", "redrawn"] | None  # of the run
    dataset: str
    fingerprint: str
    train_samples: Count
    partition: Division
    fresh_each_round: bool
    seed: int
    classes: Many[str]
    counts: Many[Many[Count]]  # (clients, classes)
    sizes: Many[Count]  # a client each, as what follows
    effective_classes: Many[float]
    total_variation: Many[float]
    mean_total_variation: float
    versions: dict[str, str]
