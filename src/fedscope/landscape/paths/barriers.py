"""Barriers between all pairs of several networks, such as the clients' of one round, and of their average.

The barrier between two networks is the largest excess of the loss, on the straight line between them, over
the line between their losses (Frankle et al. 2020; Entezari et al. 2022, section 2). Networks that were
trained from different starts may lie apart only because their channels are in another order (Ainsworth et al.
2023); clients of one round start from one network, so that they have an order in common.

Excesses are paired: each is one sample's loss between two networks less its own losses at the ends, so that
what makes a sample hard counts in none. K networks have K(K−1)/2 lines with their ends in common: the ends
are evaluated once.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations

import torch
from torch import Tensor, nn

from fedscope.choices import BatchNormMode
from fedscope.errors import UserError
from fedscope.landscape.loss.batches import Batches, Data
from fedscope.landscape.loss.flat_loss import LossFunction
from fedscope.landscape.loss.state_space import StateSpace
from fedscope.landscape.operators.probes import seed_of
from fedscope.landscape.operators.progress_callback import Progress
from fedscope.landscape.paths.path_results import AveragingBarrier, PairBarriers
from fedscope.landscape.paths.peak import Peak, Reach, peak, reach, unbiased
from fedscope.landscape.paths.sample_losses import SampleLosses
from fedscope.landscape.spectral.spectral_results import Estimate

State = Mapping[str, Tensor]
POINTS, STEPS = 9, 4
_NORMAL = 1.96  # the normal distribution's quantile of 97.5 %


def pair_barriers(
    model: nn.Module,
    loss_fn: LossFunction,
    batches: Data,
    states: Sequence[State],
    *,
    bn: BatchNormMode = "eval",
    points: int = POINTS,
    steps: int = STEPS,
    generator: torch.Generator | None = None,
    seed: int | None = None,
    progress: Progress | None = None,
) -> PairBarriers:
    """Return the barriers between all pairs of networks, on the same samples.

    Args:
        model: of all states; copied, never modified.
        loss_fn: (output, targets) ↦ scalar batch mean.
        batches: the samples, see :meth:`Batches.of`.
        states: K ``state_dict`` s, at least two.
        bn: ``eval`` moves BatchNorm's statistics along (means linearly, variances geometrically);
            ``recalibrate`` re-estimates them at every point, the ends too; see :class:`SampleLosses`.
        points: inside each line, before refinement.
        steps: at most, to refine a peak.
        generator: draws the halves of the samples.
        seed: of such a generator instead; 0 if neither is given.
        progress: called after every pair.

    Raises:
        UserError: fewer than two networks, no points; as of :class:`SampleLosses`.
    """
    if len(states) < 2 or points < 1 or steps < 0:
        raise UserError(
            f"{len(states)} networks, {points} points a line, {steps} steps: give two networks, one point "
            "or more, and no negative steps"
        )
    samples, own = Batches.of(batches, loss=loss_fn), seed_of(generator, seed)
    at = SampleLosses(model, loss_fn, samples, bn=bn)
    flats = [flat_network(at.space, model, state) for state in states]
    ends = [at(flat) for flat in flats]
    pairs, tops, similar = list(combinations(range(len(states)), 2)), list[Peak](), list[float]()
    for done, (i, j) in enumerate(pairs, 1):
        similar.append(_cosine(flats[i][: at.space.n], flats[j][: at.space.n]))
        curve = _Excess(at, (flats[i], flats[j]), (ends[i], ends[j]))
        tops.append(peak(curve, at.sizes, points=points, steps=steps, seed=own))
        if progress:
            progress(done, len(pairs))
    reaches = [reach(top, at.sizes, at.error) for top in tops]
    errors = [_error(at, top.split, one.ends) for top, one in zip(tops, reaches, strict=True)]
    values = [_of_population(at, top.height, top.split) for top in tops]
    overall_ends = _ends_of_mean(reaches, values)
    overall = _error(at, torch.stack([top.split for top in tops]).mean(0), overall_ends)
    matrix = partial(_matrix, len(states), pairs)
    places = matrix([top.at for top in tops]).triu()
    return PairBarriers(
        losses=torch.tensor([at.mean(end) for end in ends], dtype=torch.float64),
        losses_stderr=torch.tensor([at.error(end)[0] for end in ends], dtype=torch.float64),
        heights=matrix([top.height for top in tops]),
        at=places + (1 - places).T.tril(-1),
        values=matrix(values),
        stderr=matrix([stderr for stderr, _ in errors]),
        dof=matrix([dof for _, dof in errors], torch.inf),
        low=matrix([one.ends[0] for one in reaches]),
        high=matrix([one.ends[1] for one in reaches]),
        mean=Estimate(sum(values) / len(values), *overall, low=0.0, ends=overall_ends),
        similarities=matrix(similar, 1.0),
        bn=bn,
        samples=samples.samples,
        points=points,
        passes=at.passes,
    )


def _error(at: SampleLosses, split: Tensor, ends: tuple[float, float]) -> tuple[float, float]:
    """Return the error of the mean of what was read on the other half, or, where both are at an end, of 0."""
    stderr, dof = at.error(split)
    return stderr if stderr != 0 else (ends[1] - ends[0]) / (2 * _NORMAL), dof


def _ends_of_mean(reaches: Sequence[Reach], values: Sequence[float]) -> tuple[float, float]:
    """Return the interval of the mean of several peaks from their own (Zou and Donner 2008).

    Distances to the ends combine as standard errors do, with the correlations of the samples' losses.
    """
    curves = torch.stack([one.curve for one in reaches])
    unit = nn.functional.normalize(curves - curves.mean(1, keepdim=True))
    correlations = (unit @ unit.T).fill_diagonal_(1)
    lows, highs = torch.tensor([one.ends for one in reaches], dtype=torch.float64).T
    inside = torch.tensor(values, dtype=torch.float64).clamp(lows, highs)
    down, up = (
        float(far @ correlations @ far) ** 0.5 / len(reaches) for far in (inside - lows, highs - inside)
    )
    return max(0.0, float(inside.mean()) - down), float(inside.mean()) + up


@dataclass(frozen=True)
class _Excess:
    """t ↦ (N,) losses on a line less those on the line between the ends' losses."""

    at: SampleLosses
    networks: tuple[Tensor, Tensor]
    ends: tuple[Tensor, Tensor]

    def __call__(self, t: float) -> Tensor:
        return self.at(torch.lerp(*self.networks, t)) - torch.lerp(*self.ends, t)


def _matrix(
    count: int, pairs: Sequence[tuple[int, int]], values: Sequence[float], own: float = 0.0
) -> Tensor:
    found = torch.full((count, count), own, dtype=torch.float64)
    for (i, j), value in zip(pairs, values, strict=True):
        found[i, j] = found[j, i] = value
    return found


def averaging_barrier(
    model: nn.Module,
    loss_fn: LossFunction,
    batches: Data,
    states: Sequence[State],
    *,
    weights: Sequence[float] | None = None,
    bn: BatchNormMode = "eval",
) -> AveragingBarrier:
    """Return the excess of the loss of the networks' average over the average of their losses.

    With two networks of equal weight this is the excess in the middle of their line. The average has the
    coordinates Σ_k p_k w_k, BatchNorm's statistics among them where ``bn`` is ``eval``: running variances
    average geometrically, where a server that averages buffers takes their arithmetic mean.

    Args:
        model: as of :func:`pair_barriers`, like loss_fn, batches, states and bn.
        weights: p_k, at least 0, in any unit; equal ones if not given.

    Raises:
        UserError: as of :func:`pair_barriers`; weights that are no weights of K networks.
    """
    if len(states) < 2:
        raise UserError(f"an average of {len(states)} networks has no barrier; give two or more")
    p = shares_of(weights, len(states))
    samples = Batches.of(batches, loss=loss_fn)
    at = SampleLosses(model, loss_fn, samples, bn=bn)
    flats = [flat_network(at.space, model, state) for state in states]
    ends = torch.stack([at(flat) for flat in flats])
    middle, mean = at(torch.einsum("k,kn->n", p, torch.stack(flats))), p @ ends
    n = at.space.n
    stderr, dof = at.error(middle - mean)
    return AveragingBarrier(
        value=at.mean(middle - mean),
        stderr=stderr,
        dof=dof,
        loss=at.mean(middle),
        loss_stderr=at.error(middle)[0],
        mean_loss=at.mean(mean),
        mean_loss_stderr=at.error(mean)[0],
        weights=p,
        similarities=torch.tensor([_cosine(flats[0][:n], flat[:n]) for flat in flats], dtype=torch.float64),
        bn=bn,
        samples=samples.samples,
        passes=at.passes,
    )


def shares_of(weights: Sequence[float] | None, count: int) -> Tensor:
    """Return (count,) float64 weights that add up to 1, equal ones if none are given."""
    own = torch.ones(count, dtype=torch.float64) if weights is None else torch.as_tensor(weights).double()
    if own.shape != (count,) or not bool((own >= 0).all()) or not 0 < float(own.sum()) < float("inf"):
        raise UserError(
            f"{own.numel()} weights for {count} networks; give each a number of 0 or more, not all 0"
        )
    return own / own.sum()


def flat_network(space: StateSpace, model: nn.Module, state: State) -> Tensor:
    space.check_fixed(state, getattr(model, "_orig_mod", model).state_dict())
    flat = space.flat(state).cpu()
    if not bool(flat.isfinite().all()):
        raise UserError("a network has weights or statistics that are not finite; leave it out")
    return flat


def _of_population(at: SampleLosses, height: float, split: Tensor) -> float:
    """Return the barrier of the population: of a finite one that was taken whole, the height."""
    if not at.finite:
        return height
    value = unbiased(height, at.mean(split))
    return height + at.finite * (value - height) if at.finite < 1 else value


def _cosine(one: Tensor, other: Tensor) -> float:
    return float(one @ other / (one.norm() * other.norm()))
