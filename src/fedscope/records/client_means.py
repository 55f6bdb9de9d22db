"""Means over the clients of a round, as tables, curves and recipes read them; None where not measured."""

import math
from typing import Literal

from fedscope.records.clients_record import Amount, ClientsRecord, Quantity
from fedscope.records.estimates import EstimateEntry

Side = Literal["own", "overall"]  # by each client's own loss or Hessian, or by the global one
Term = Literal["measured", "first", "second", "remainder"]


def gap(record: ClientsRecord, *, quantity: Quantity, name: str) -> Amount | None:
    """Return a flatness gap, one of ``GAPS``."""
    found = record.of(quantity)
    return found.gap(name).mean if found else None


def aligned(record: ClientsRecord, *, side: Side, number: Literal["rayleigh", "share"]) -> Amount | None:
    """Return the curvature along the updates [loss/w²], or their share in the top space."""
    return getattr(getattr(record.alignment, side), number) if record.alignment else None


def cost(record: ClientsRecord, *, side: Side, term: Term) -> Amount | None:
    """Return the cost of averaging, or a term of its expansion [loss]."""
    return getattr(getattr(record.averaging, side).mean, term) if record.averaging else None


def drift(record: ClientsRecord) -> EstimateEntry | None:
    """Return Σ p_k ‖w_k − θ‖² [w²], θ the round's result, without an error; of updates from it alone.

    Where θ is the mean of the uploads, that is their spread; where a server rule goes beyond the mean or an
    average is kept, it has the way from the mean to θ in it.
    """
    found = record.alignment
    if found is None or found.anchor != "global":
        return None
    lengths = (one.length for one in found.clients)
    total = math.fsum(one.share * length**2 for one, length in zip(record.clients, lengths, strict=True))
    return EstimateEntry(value=total, stderr=0.0)
