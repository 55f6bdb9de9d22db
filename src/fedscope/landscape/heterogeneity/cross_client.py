"""Cross-client curvature: how much the Hessian diagonals of the clients differ (Mendieta et al. 2022, 3.2).

The number of probes is found in stages: each stage's errors say how many probes the goal needs, and the next
one takes them at once, at most ``_GROWTH`` times as many. So there are only a few looks at the errors, and
intervals keep their coverage, which stopping at the first small error would not (as for Stein's two stages,
Stein 1945). Between two stages the clients' bases grow (:class:`ClientDiagonals`).
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import get_args

import torch
from torch import Tensor

from fedscope.choices import CLIENT_RTOL, Pairs, Reading
from fedscope.errors import UserError
from fedscope.landscape.heterogeneity.client_diagonals import MEMORY, ClientDiagonals, Diagonals
from fedscope.landscape.heterogeneity.populations import PROBES, Parts, client_parts, of_populations
from fedscope.landscape.heterogeneity.similarity import (
    DiagonalSimilarity,
    compare,
    first_equal,
    relative_reach,
)
from fedscope.landscape.operators.base import Operator
from fedscope.landscape.operators.basis.krylov_basis import Subspace
from fedscope.landscape.operators.probes import seed_of
from fedscope.landscape.operators.progress_callback import Progress, continued
from fedscope.landscape.printing import Printed
from fedscope.landscape.spectral.diagonal import deflated_diagonal
from fedscope.landscape.spectral.spectral_results import Estimate, probe_mean


@dataclass(frozen=True, repr=False)
class CrossClient(Printed):
    """How much the curvature of the clients' models differs (Mendieta et al. 2022, section 3.4, Eqs. 3–4).

    For clients k and j with diagonals D: H_N = (‖D_k‖ − ‖D_j‖)², scale-free H_N that over ‖D_k‖·‖D_j‖,
    H_D = ⟨D_k, D_j⟩ / (‖D_k‖·‖D_j‖), averaged over pairs. These are of the clients' samples as they are, and
    their errors are the probes'. Those of the distributions, or finite populations, that each client's
    samples were drawn from have both errors; they are missing where the samples' parts are not known, or not
    independent from client to client.

    The published scripts have the ``tensor`` reading only, and no error bars.
    """

    clients: int
    pairs: Pairs
    H_N: Mapping[Reading, Estimate]
    H_D: Mapping[Reading, Estimate]
    H_N_matrix: Mapping[Reading, Tensor]  # (K, K) float64
    H_D_matrix: Mapping[Reading, Tensor]  # (K, K) float64
    H_N_resolved: Mapping[Reading, Tensor]  # (K, K) bool: of each pair
    H_D_resolved: Mapping[Reading, Tensor]  # (K, K) bool
    squared_norms: Mapping[Reading, tuple[Estimate, ...]]  # K: ‖D_k‖²
    probes: tuple[int, ...]  # of each client
    converged: bool | None  # whether the intervals are as narrow as was asked for; None: there are none
    matvecs: int
    traces: tuple[Estimate, ...]  # of each client, from the same products
    H_N_population: Mapping[Reading, Estimate] = field(default_factory=dict)
    H_D_population: Mapping[Reading, Estimate] = field(default_factory=dict)
    H_N_scale_free: Mapping[Reading, Estimate] = field(default_factory=dict)
    H_N_scale_free_population: Mapping[Reading, Estimate] = field(default_factory=dict)
    deflated: int = 0  # rows of each client's basis, whose part of the diagonal is exact, at its last probes


_GROWTH = 4  # most probes after a stage, in those before it
_MARGIN = 1.1  # more probes than the errors say, as they are estimates


def cross_client(
    operators: Iterable[Operator],
    *,
    rtol: float | None = None,
    probes: int | None = None,
    max_probes: int = 1024,
    min_probes: int | None = None,
    aim: Reading = "parameter",
    generator: torch.Generator | None = None,
    seed: int | None = None,
    pairs: Pairs = "distinct",
    groups: int = 16,
    estimator: Diagonals = deflated_diagonal,
    known: Sequence[Subspace | None] = (),
    basis_memory: int = MEMORY,
    sample_probes: int = PROBES,
    progress: Progress | None = None,
) -> CrossClient:
    """Compare the Hessian diagonals of K clients, for whole diagonals and for tensors' block traces.

    Every client sees the same probes, so that equal clients give exactly H_N = 0 and H_D = 1. The readings
    are ``parameter`` (D has n entries) and ``tensor`` (D has one entry per parameter tensor: its block's
    trace). How values and errors come about: :mod:`fedscope.landscape.heterogeneity.similarity`.

    All values are the corrected estimates as they are: noise may carry H_N and a squared norm below 0 and H_D
    beyond ±1. Then they are not ``resolved``, nor where their interval leaves nothing of their range out.
    Where noise makes a client's squared norm negative, its pairs and the averages are NaN: take more probes.

    Args:
        operators: one per client, taken one at a time. With ``rtol`` they are taken again in each stage, from
            the start, so a generator will not do. G·n numbers per client are kept, in the operator's dtype,
            on the CPU.
        rtol: probes until the half-widths of the 95 % intervals of H_N and H_D are at most rtol times their
            values; 0.1 if neither this nor ``probes`` is given.
        probes: take exactly so many per client instead, beside the products of ``estimator``'s basis; a
            sampler that then ends has given exact values.
        max_probes: an end to the search for ``rtol``: the H_N of like clients has no relative precision.
        min_probes: with ``rtol``, the probes of the first stage; by default two for each group.
        aim: the reading whose intervals ``rtol`` is about.
        generator: draws the seed of the stream that every client's probes are drawn from.
        seed: given instead; 0 if neither is given.
        pairs: average over ``distinct`` pairs, or over the whole matrix, ``all_including_self``, as the
            published script does: that multiplies H_N by (K−1)/K and makes H_D ((K−1)·H_D + 1)/K.
        groups: G, at least 3 and at most ``probes``; the errors have G − 1 degrees of freedom.
        estimator: of each diagonal, such as ``partial(diagonal, sampler=orthogonal)``.
        known: bases of clients, in their order, with their products, from starts that are independent of the
            probes; None for a client without.
        basis_memory: bytes of the clients' bases that are kept from stage to stage, and grow there; a client
            whose basis does not fit gets a new one in each stage, with 0 all of them.
        sample_probes: probes of each client for the errors over its samples, which must be other ones for
            every client; 0: those errors are left out, as with an iterator of operators.
        progress: called after every product; the total is not known.

    Raises:
        UserError: fewer than 2 clients, fewer than 3 groups, unknown ``pairs``, both ``rtol`` and ``probes``,
            or ``generator`` and ``seed``, fewer than 4 ``sample_probes`` but not 0, or clients whose
            parameters differ in names or sizes.
    """
    if pairs not in get_args(Pairs):
        raise UserError(f"pairs is {pairs!r}; choose one of {', '.join(get_args(Pairs))}")
    if groups < 3:
        raise UserError(f"{groups} groups cannot give a standard error of products; take at least 3")
    if rtol is not None and probes is not None:
        raise UserError("give rtol or probes, not both: one says when to stop, the other how many to take")
    if probes is None and isinstance(operators, Iterator):
        raise UserError("rtol needs the operators in several stages; give a list of them, not an iterator")
    goal = CLIENT_RTOL if rtol is None else rtol
    seed = seed_of(generator, seed)
    tally = ClientDiagonals(seed, groups, estimator, known=known, memory=basis_memory, progress=progress)
    tally.add(operators, min(min_probes or 2 * groups, max_probes) if probes is None else probes)
    found = _compared(tally, pairs)

    def missing() -> int:
        """Return how many probes the next stage takes; none where the goal is reached, or all are spent."""
        excess = _reach(found[aim]) / goal
        more = 0.0 if excess <= 1 else (_times(excess, tally.noise(aim)) - 1) * tally.probes
        return min(math.ceil(more / groups), (max_probes - tally.probes) // groups) * groups

    while probes is None and (more := missing()):
        if tally.grow(operators, 1 + more / tally.probes):
            found = _compared(tally, pairs)
            more = missing()
        if more:
            tally.add(operators, more)
            found = _compared(tally, pairs)
    converged = probes is not None or _reach(found[aim]) <= goal
    distinct = len({*first_equal(tally.parameter)}) == len(tally.parameter)
    alone = distinct and not isinstance(operators, Iterator)
    parts, spent = client_parts(
        operators, tally.means(), tally.fresh(), sample_probes if alone else 0,
        continued(progress, tally.matvecs),
    )  # fmt: skip
    return _result(tally, found, parts, pairs, converged=converged, matvecs=tally.matvecs + spent)


def _result(
    tally: ClientDiagonals,
    found: Mapping[Reading, DiagonalSimilarity],
    parts: Mapping[Reading, Sequence[Parts]],
    pairs: Pairs,
    *,
    converged: bool,
    matvecs: int,
) -> CrossClient:
    populations = {reading: of_populations(found[reading], of, pairs) for reading, of in parts.items()}
    return CrossClient(
        clients=len(tally.parameter),
        pairs=pairs,
        H_N={reading: one.H_N for reading, one in found.items()},
        H_D={reading: one.H_D for reading, one in found.items()},
        H_N_matrix={reading: one.H_N_matrix for reading, one in found.items()},
        H_D_matrix={reading: one.H_D_matrix for reading, one in found.items()},
        H_N_resolved={reading: one.H_N_resolved for reading, one in found.items()},
        H_D_resolved={reading: one.H_D_resolved for reading, one in found.items()},
        squared_norms={reading: one.squared_norms for reading, one in found.items()},
        H_N_population={reading: H_N for reading, (H_N, _, _) in populations.items()},
        H_D_population={reading: H_D for reading, (_, _, H_D) in populations.items()},
        H_N_scale_free={reading: one.H_N_scale_free for reading, one in found.items()},
        H_N_scale_free_population={reading: one for reading, (_, one, _) in populations.items()},
        probes=(tally.probes,) * len(tally.parameter),
        deflated=tally.deflated,
        converged=converged,
        matvecs=matvecs,
        traces=tuple(_trace(groups) for groups in tally.tensor),
    )


def _trace(groups: Tensor) -> Estimate:
    sums = groups.sum(1)
    return probe_mean(sums, exact=False) if len(sums) > 1 else Estimate(float(sums), 0.0)


def _compared(clients: ClientDiagonals, pairs: Pairs) -> dict[Reading, DiagonalSimilarity]:
    return {"tensor": compare(clients.tensor, pairs), "parameter": compare(clients.parameter, pairs)}


def _reach(found: DiagonalSimilarity) -> float:
    return max(relative_reach(one) if one.resolved else math.inf for one in (found.H_N, found.H_D))


def _times(excess: float, noise: float) -> float:
    """Return how many times as many probes divide an error by ``excess``, at most ``_GROWTH``.

    An inner product of means over M probes has a variance of a part in 1/M, signal by noise, and one in 1/M²,
    noise by noise. Where ``noise``, that of the mean over the signal, lies as the signal does, they are as
    2 to ``noise``: near the noise M need grow with ``excess`` alone, far above it with its square.
    """
    square = noise / (2 + noise) if math.isfinite(noise) else 1.0
    linear = 1 - square
    inverse = (
        (math.sqrt(linear**2 + 4 * square / excess**2) - linear) / (2 * square) if square else excess**-2
    )
    return min(_MARGIN / inverse, _GROWTH) if inverse > 0 else _GROWTH
