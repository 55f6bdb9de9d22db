"""The permutation of one network's channels that brings its weights nearest to another's.

Weight matching (Ainsworth, Hayase and Srinivasa 2023, Git Re-Basin, section 3.2, algorithm 1) maximises
⟨θ_A, π(θ_B)⟩ over the permutations π of all groups of channels, which minimises ‖θ_A − π(θ_B)‖. With all
groups but one held fixed that is a linear assignment; a sweep solves one for each group in a random order,
and the search ends after a sweep that changes nothing. All assignments together are a hard problem, so that
this is a local maximum: the best of several orders is kept.

Ours beyond the paper: the groups are found for the network (:mod:`.symmetry`), and an assignment counts only
where it raises the sum itself. A group that moves two axes of one tensor makes the sum quadratic in it, and
the linear assignment may then lower it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor, nn

from fedscope.errors import UserError
from fedscope.landscape.loss.batches import Data
from fedscope.landscape.matching.symmetry import Symmetry, permutation_symmetry
from fedscope.landscape.operators.probes import generator_of
from fedscope.landscape.printing import Printed

ORDERS = 3
_GAIN = 1e-12  # of the norms' product, below which a change of the sum is rounding


@dataclass(frozen=True, repr=False)
class Matched(Printed):
    """A network's state with its channels in the order that fits another network best."""

    state: Mapping[str, Tensor]  # weights and buffers; the function is that of the state that was given
    permutations: Mapping[str, Tensor]  # group ↦ (channels,): which old channel each new one is
    similarity_before: float  # cosine of the two networks' parameters, ⟨θ_A, θ_B⟩ / (‖θ_A‖·‖θ_B‖)
    similarity: float  # the same after
    distance_before: float  # ‖θ_A − θ_B‖
    distance: float
    moved: int  # channels that are elsewhere than before
    channels: int  # in all groups
    orders: tuple[float, ...]  # the cosine that each order reached
    sweeps: int  # over the groups, in all orders
    assignments: int  # linear assignments solved
    pinned: tuple[str, ...]  # see Symmetry

    def __repr__(self) -> str:
        return (
            f"Matched(similarity={self.similarity:.6g}, before {self.similarity_before:.6g}; "
            f"{self.moved} of {self.channels} channels moved)"
        )


def match_weights(
    model: nn.Module,
    reference: Mapping[str, Tensor],
    other: Mapping[str, Tensor],
    *,
    symmetry: Symmetry | Data,
    orders: int = ORDERS,
    generator: torch.Generator | None = None,
    seed: int | None = None,
) -> Matched:
    """Permute the channels of ``other`` so that its parameters come nearest to those of ``reference``.

    Buffers (running statistics) move along and do not count. All arithmetic is in float64.

    Args:
        model: of both states; neither read nor modified but for its names.
        reference: a ``state_dict`` of the model.
        other: another one.
        symmetry: what :func:`permutation_symmetry` found; or samples, to find it.
        orders: how often the search starts from no permutation at all, each time in orders of its own.
        generator: draws the orders.
        seed: of such a generator instead; 0 if neither is given.

    Raises:
        UserError: as of :func:`permutation_symmetry`; states of another network, with weights that are not
            finite; ``orders`` below 1.
    """
    if orders < 1:
        raise UserError(f"orders is {orders}; search in one order or more")
    found = symmetry if isinstance(symmetry, Symmetry) else permutation_symmetry(model, symmetry)
    own = generator_of(generator, seed)
    names = [name for name, _ in getattr(model, "_orig_mod", model).named_parameters()]
    for state in (reference, other):
        found.check(state)
        if not all(bool(state[name].isfinite().all()) for name in names):
            raise UserError("a weight is not finite, so that nothing is nearest to it; take an earlier round")
    search = _MatchSearch(
        found, *({name: s[name].detach().double().cpu() for name in names} for s in (reference, other))
    )
    start = search.inner(search.still)
    best, reached, sweeps = search.still, list[float](), 0
    for _ in range(orders):
        rows, used = search.climbed(own)
        sweeps += used
        reached.append(search.inner(rows))
        if reached[-1] > max([start, *reached[:-1]]):
            best = rows
    permutations = dict(zip(found.groups, best, strict=True))
    after = search.inner(best)
    return Matched(
        state=found.permuted(other, permutations),
        permutations=permutations,
        similarity_before=start / search.norms,
        similarity=after / search.norms,
        distance_before=search.distance(search.still),
        distance=search.distance(best),
        moved=sum(int((row != torch.arange(len(row))).sum()) for row in best),
        channels=sum(found.groups.values()),
        orders=tuple(value / search.norms for value in reached),
        sweeps=sweeps,
        assignments=sweeps * len(found.groups),
        pinned=found.pinned,
    )


class _MatchSearch:
    """Two networks' parameters, and sums of products of one's with the other's permuted."""

    def __init__(self, symmetry: Symmetry, one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> None:
        self._symmetry, self._one, self._other = symmetry, one, other
        self.still = list(symmetry.identity().values())
        self._holders: list[list[str]] = [[] for _ in self.still]  # the tensors that each group is in
        for name in one:
            for group in {piece.group for axis in symmetry.axes[name] for piece in axis if piece.movable}:
                self._holders[group].append(name)
        sizes = [sum(float(t.square().sum()) for t in side.values()) for side in (one, other)]
        self.norms = (sizes[0] * sizes[1]) ** 0.5

    def inner(self, rows: Sequence[Tensor]) -> float:
        """Return ⟨θ_A, π(θ_B)⟩."""
        return self._inner(self._one, rows)

    def distance(self, rows: Sequence[Tensor]) -> float:
        """Return ‖θ_A − π(θ_B)‖, from differences: 0 for equal networks."""
        gaps = (t - self._permuted(name, rows) for name, t in self._one.items())
        return float(sum(float(gap.square().sum()) for gap in gaps) ** 0.5)

    def climbed(self, generator: torch.Generator) -> tuple[list[Tensor], int]:
        """Return permutations that no assignment of one group betters, and the sweeps that it took."""
        rows, sweeps, better = list(self.still), 0, True
        while better:
            better, sweeps = False, sweeps + 1
            for group in torch.randperm(len(rows), generator=generator).tolist():
                before = self._inner(self._holders[group], rows)
                changed = [*rows[:group], self._assigned(group, rows), *rows[group + 1 :]]
                if self._inner(self._holders[group], changed) > before + _GAIN * self.norms:
                    rows, better = changed, True
        return rows, sweeps

    def _assigned(self, group: int, rows: Sequence[Tensor]) -> Tensor:
        """Return the permutation of a group with the largest sum where each axis is taken by itself."""
        gains = torch.zeros(len(rows[group]), len(rows[group]), dtype=torch.float64)
        for name in self._holders[group]:
            for dim, axis in enumerate(self._symmetry.axes[name]):
                begin = 0
                for piece in axis:
                    if piece.group == group:
                        one, other = (
                            side[name].narrow(dim, begin, piece.length) for side in (self._one, self._other)
                        )
                        other = self._symmetry.reordered(name, other, rows, but=dim)
                        one, other = (t.movedim(dim, 0).reshape(len(gains), -1) for t in (one, other))
                        gains += one @ other.T
                    begin += piece.length
        return torch.from_numpy(linear_sum_assignment(gains.numpy(), maximize=True)[1])

    def _inner(self, names: Sequence[str] | Mapping[str, Tensor], rows: Sequence[Tensor]) -> float:
        return sum(float((self._one[name] * self._permuted(name, rows)).sum()) for name in names)

    def _permuted(self, name: str, rows: Sequence[Tensor]) -> Tensor:
        return self._symmetry.reordered(name, self._other[name], rows)
