"""The entries of the record of a round's clients, from the results of the analysis."""

from collections.abc import Sequence

from fedscope.landscape.heterogeneity.one_round.averaging_cost import AveragingCost, Expansion
from fedscope.landscape.heterogeneity.one_round.eigenspaces import Alignment
from fedscope.landscape.heterogeneity.one_round.paired import Paired, total
from fedscope.records.clients_record import amount_entry
from fedscope.records.entries import Record


def column_entry(clients: Sequence[Paired], mean: Paired) -> Record:
    return {"clients": [amount_entry(one) for one in clients], "mean": amount_entry(mean)}


def aligned_entry(found: Sequence[tuple[float, Alignment]]) -> Record:
    """Return the entry of Σ p_k over pairs of p_k and an update's alignment."""
    shares = [(p, one.share) for p, one in found if one.share is not None]
    share = None
    if len(shares) == len(found):
        mean = total(shares)
        share = Paired(mean.value, mean.parts, mean.bias, low=0, high=1)
    return {
        "rayleigh": amount_entry(total((p, one.rayleigh) for p, one in found)),
        "share": share and amount_entry(share),
    }


def drift_entry(cost: AveragingCost) -> Record:
    return {"clients": [_terms(one) for one in cost.clients], "mean": _terms(cost.mean)}


def _terms(one: Expansion) -> Record:
    names = ("measured", "first", "second", "remainder")
    return {name: amount_entry(getattr(one, name)) for name in names}


def ends_of(one: Paired | None) -> tuple[float | None, float | None]:
    """Return the interval, cut to the range; None where there is no number."""
    if one is None:
        return None, None
    low, high = one.interval()
    return max(one.low, low), min(one.high, high)
