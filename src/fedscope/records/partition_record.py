"""Who holds how much of which class: the record of ``plot-partition --json``, ``fedscope/partition/1``."""

from typing import Literal

from pydantic import Field

from fedscope.records.number_types import Count, Many
from fedscope.validation import Plain

PARTITION_SCHEMA = "fedscope/partition/1"


class DivisionEntry(Plain):
    """The kind of a partition and those of its parameters that it takes."""

    kind: str  # as ``--partition`` names it
    clients: Count  # how many
    alpha: float | None = None  # concentration of the Dirichlet distribution
    exhausted: str | None = None  # what a client gets of a class that is used up: ``redraw`` or ``refill``
    phi: float | None = None  # share of the data that a client draws (``longtail_stateless``)
    rho: float | None = None  # the rarest class over the most frequent (``longtail_stateless``)
    shards: Count | None = None  # that each client gets of the rows sorted by class (``shards``)
    classes_per_client: Count | None = None  # how many classes each client has (``fixed_classes``)


class PartitionRecord(Plain):
    """The division of a run's data, or of the data that settings describe.

    ``effective_classes`` is the exponential of the entropy of a client's class shares, ``total_variation``
    half the sum of their distances to the shares of the training part that is divided.
    """

    schema_name: Literal["fedscope/partition/1"] = Field(alias="schema")  # name and version of this format
    run: str | None  # None: no run was named
    # whether the run stored its rows or they were drawn again; None: no run
    rows: Literal["stored", "redrawn"] | None
    dataset: str  # its name
    fingerprint: str  # SHA-256 of its content
    train_samples: Count  # that are divided [samples]
    partition: DivisionEntry  # how they are divided
    fresh_each_round: bool  # whether every round has clients of its own: these are the first's
    seed: int  # of the draw
    classes: Many[str]  # names
    counts: Many[Many[Count]]  # a row per client, a column per class [samples]
    sizes: Many[Count]  # of each client [samples]
    effective_classes: Many[float]  # of each client: the exponential of the entropy of its class shares
    total_variation: Many[float]  # of each client: half the sum of the distances to the shares of all
    mean_total_variation: float  # over the clients
    versions: dict[str, str]  # of fedscope and the packages that computed
