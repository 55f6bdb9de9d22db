"""Which of several kept results counts that answer one question: the most precise on the most samples.

Every figure, table, report and recipe chooses by this rule, and none by the names of files: of results that
are as precise the one that was measured last counts.
"""

import math
from collections.abc import Sequence

from fedscope.records.clients_record import ClientsRecord
from fedscope.records.hessian_record import HessianRecord

Rank = tuple[float, ...]


def precision(record: HessianRecord) -> Rank:
    """Return a rank that is the highest for the most precise of several results on the same samples.

    That is the one with the narrowest 95 % interval of the trace; where none is known, with the most probes.
    """
    low, high = record.trace.interval or (-math.inf, math.inf)
    residual = record.lambda_max.residual
    widths = (high - low, -record.trace.probes, residual)
    return tuple(-math.inf if math.isnan(width) else -width for width in widths)


def rank(record: HessianRecord | ClientsRecord, samples: int | None = None) -> Rank:
    """Return :func:`precision`, before which come results on ``samples`` samples, and then those on more."""
    own = record.problem.samples
    how = precision(record) if isinstance(record, HessianRecord) else (record.probes, -record.tol)
    return (own == samples, own, *how)


def most_precise(records: Sequence[HessianRecord]) -> HessianRecord:
    """Return one record for several of one checkpoint on as many samples: the most precise.

    Layers and an adaptive server's λ_max, which not every request asks for, are those of the most precise
    record that has them.
    """
    *others, best = sorted(records, key=precision)
    for one in reversed(others):
        lacking = {
            name: part
            for name in ("layers", "preconditioned")
            if not getattr(best, name) and (part := one.to_json().get(name))
        }
        best = best.edited(**lacking) if lacking else best
    return best
