"""What a measurement will take: the record of ``fedscope hessian --dry-run --json``, ``fedscope/plan/1``."""

from typing import Literal

from pydantic import Field

from fedscope.records.number_types import Count, Finite
from fedscope.validation import Plain

PLAN_SCHEMA = "fedscope/plan/1"


class BasisEntry(Plain):
    """How the Krylov basis is kept."""

    place: Literal["memory", "file"]  # where
    rows: Count  # vectors in it, which are fewer as a rule [vectors]
    bytes: Count  # of all rows, wherever they are [bytes]


class PlanRecord(Plain):
    """Memory, products and time of one measurement, before it is made."""

    schema_name: Literal["fedscope/plan/1"] = Field(alias="schema")  # name and version of this format
    checkpoint: str  # the file
    title: str  # its name in notes
    parameters: Count  # that are differentiated in [parameters]
    samples: Count  # [samples]
    batches: Count  # [batches]
    clients: Count  # that are compared besides [clients]
    reused: list[str]  # parts of the request that a kept result has
    microbatch: Count  # samples of the largest graph [samples]
    graphs: Count  # in one pass over the data [graphs]
    kept: Count  # of them between products [graphs]
    memory: Count  # of the process at its peak, with a basis of so many rows [bytes]
    basis: BasisEntry  # the Krylov basis
    block: Count  # probes that share a pass over the data [probes]
    products: Count  # that what is not kept typically takes, but for those of clients [products]
    product_seconds: Finite  # that one product by batches took [s]
    seconds: Finite  # of all these products [s]
    limit: Count | None  # of ``--memory`` [bytes]
