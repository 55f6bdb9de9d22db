"""Which samples make λ_max: the ``influence`` entry of schema ``fedscope/hessian/1``.

λ_max is the mean of the samples' own q_i = vᵀH_i v along its eigenvector v. A share is of their sum
(:mod:`fedscope.statistics.concentration`).
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

from fedscope.records.number_types import Count, Many, Number, or_null
from fedscope.statistics.concentration import group_shares, ranked, share_of, shares, top_share
from fedscope.validation import Plain

Record = dict[str, object]


class Portion(Plain):
    """Some of the samples, and their share of λ_max."""

    samples: Count  # how many they are [samples]
    share: Number  # their part of the sum of all q; NaN where λ_max is not positive


class GroupEntry(Portion):
    """The samples of a class, or of a client."""

    number: int  # of the class, or of the client
    name: str | None = None  # of the class, where the data set has names
    stderr: Number  # of the share, over draws of the samples
    mean: Number  # of the group's q [loss/w²]


class Influential(Plain):
    """One sample."""

    row: Count  # of the data set's split; without ``split`` a position in the user's own data
    label: int | None  # its class; None where targets are no classes
    clients: Many[Count]  # that hold it; none where it is not known, or no client does
    part: Number  # q = vᵀH_i v [loss/w²]
    share: Number  # its part of the sum of all q


class Influence(Plain):
    """Which samples carry λ_max."""

    split: str | None  # that the rows are of; None: of the user's own data
    top: Portion  # the largest 1 % of samples
    negative: Portion  # the samples whose q is negative
    by_class: Many[GroupEntry] | None  # the largest share first; None where targets are no classes
    by_client: Many[GroupEntry] | None  # None where it is not known who holds the samples
    clients_reason: str | None = None  # why it is not known who holds the samples
    rows: Literal["stored", "redrawn"] | None = None  # where it is known who holds which rows from
    rows_sha256: str | None = None  # hash of the rows that the clients hold
    largest: Many[Influential]  # the samples of the largest q, the largest first


@dataclass(frozen=True)
class Holders:
    """Which clients hold each of N samples, or why that is not known."""

    clients: Sequence[Sequence[int]] = ()  # (N,) the clients' numbers
    reason: str | None = None
    rows: Literal["stored", "redrawn"] | None = None
    rows_sha256: str | None = None


def influence_entry(
    parts: Sequence[float],
    *,
    rows: Sequence[int],
    listed: int,
    labels: Sequence[int] | None = None,
    holders: Holders | None = None,
    names: Sequence[str] = (),
    split: str | None = None,
    finite: float = 1.0,
) -> Record:
    """Return the entry of N samples.

    Args:
        parts: (N,) their q.
        rows: (N,) which rows of the data they are.
        listed: how many of the largest q are listed.
        labels: (N,) their classes.
        holders: the clients that hold them.
        names: of the classes.
        split: that the rows are of.
        finite: the factor of a finite population on variances over the samples.
    """
    holders = holders or Holders()
    clients = holders.clients or [()] * len(parts)
    count, share = top_share(parts)
    alone = shares(parts)
    below = [i for i, q in enumerate(parts) if q < 0]
    classes = None if labels is None else _groups(parts, ((label,) for label in labels), finite, names)
    return {
        "split": split,
        "top": {"samples": count, "share": or_null(share)},
        "negative": {"samples": len(below), "share": or_null(share_of(parts, below))},
        "by_class": classes,
        "by_client": _groups(parts, clients, finite) if holders.clients else None,
        "clients_reason": holders.reason,
        "rows": holders.rows,
        "rows_sha256": holders.rows_sha256,
        "largest": [
            {
                "row": int(rows[i]),
                "label": None if labels is None else int(labels[i]),
                "clients": [int(client) for client in clients[i]],
                "part": or_null(parts[i]),
                "share": or_null(alone[i]),
            }
            for i in ranked(parts)[:listed]
        ],
    }


def _groups(
    parts: Sequence[float], numbers: Iterable[Sequence[int]], finite: float, names: Sequence[str] = ()
) -> list[Record]:
    found: dict[int, list[int]] = {}
    for i, own in enumerate(numbers):
        for number in own:
            found.setdefault(int(number), []).append(i)
    return [
        {
            "number": number,
            "name": names[number] if 0 <= number < len(names) else None,
            "samples": group.count,
            **{name: or_null(value) for name, value in asdict(group).items() if name != "count"},
        }
        for number, group in group_shares(parts, dict(sorted(found.items())), finite).items()
    ]
