"""Critical sharpness: the smallest step along an update at which a mean of losses exceeds that at the start.

Kalra et al. (2026, arXiv:2601.16979, definition 2.1): for the loss after a step η along an update d,

    η_c = min {η > 0 : F(w + ηd) > F(w)},   λ_c = 2/η_c.

On a quadratic F, with the slope −s = gᵀd and the curvature c = dᵀHd, F(w + ηd) − F(w) = −sη + cη²/2, so that
η_c = 2s/c and λ_c = c/s, their directional sharpness; along d = −g that is gᵀHg/‖g‖², a mean of eigenvalues.

The search is theirs at first: double, or halve, a guess until the sign of the excess changes. A crossing
between two of these steps that is undone before the second is not seen. Then theirs bisects until
1 − low/high ≤ tol. Ours, in its place: the excess per step (F(w + ηd) − F(w))/η is linear in η on a
quadratic, so that its zero between two steps is known, and a step to either side of it closes the bracket;
where it does not, the bracket is halved. η_c is the middle of the bracket, as theirs is.

The error over draws of samples is ours: to first order, that of the mean excess at η_c over its slope there.
The server's step of a federated round is along the clients' mean update Δ̄, whose negative is its
pseudo-gradient: F(w + ηΔ̄) for the server's learning rate η.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedscope.choices import BatchNormMode
from fedscope.errors import UserError
from fedscope.landscape.loss.batches import Batches, Data
from fedscope.landscape.loss.flat_loss import LossFunction
from fedscope.landscape.operators.progress_callback import Progress
from fedscope.landscape.paths.barriers import State, flat_network, shares_of
from fedscope.landscape.paths.path_results import CriticalStep, UpdateSharpness
from fedscope.landscape.paths.sample_losses import SampleLosses

LIMIT = 40  # doublings or halvings: from 1, to 10¹²
_APART = 0.05  # of a step: nearer ones do not tell a slope, for rounding


@dataclass(frozen=True)
class Crossing:
    """Where the mean excess changes its sign: at most 0 at ``low``, above at ``high``.

    0 and 0 where it is above 0 at every step that was tried, infinite where at none.
    """

    low: float
    high: float
    slope: float  # of the mean excess at the middle; NaN where no two steps tell it
    at_high: Tensor | None  # (N,) the samples' excesses at ``high``
    steps: int  # that were tried

    @property
    def middle(self) -> float:
        """The critical step."""
        return self.high if math.isinf(self.high) else (self.low + self.high) / 2


def crossing(
    excess: Callable[[float], Tensor],
    mean: Callable[[Tensor], float],
    *,
    guess: float,
    tol: float,
    rounding: float = 0.0,
) -> Crossing:
    """Return the first crossing that the search meets.

    Args:
        excess: η ↦ (N,) the samples' losses after a step less those before.
        mean: of such values; one that is no number counts as above 0.
        tol: 1 − low/high at the end, at most.
        rounding: what a mean may be off by; halving goes on until one is as far below 0.
    """
    values: dict[float, Tensor] = {}
    means: dict[float, float] = {}

    def above(step: float) -> bool:
        values[step] = excess(step)
        means[step] = mean(values[step])
        return not means[step] <= 0

    low, high = _bracket(above, lambda step: means[step] <= -rounding, guess)
    if not 0 < low < high < math.inf:
        return Crossing(low, high, math.nan, None, len(means))
    guessed = False
    while 1 - low / high > tol:
        zero = math.nan if guessed else _zero(means, low, high)
        sides = [zero * (1 - tol / 3), zero * (1 + tol / 3)]
        guessed = not guessed and any(low < side < high for side in sides)
        for step in sides if guessed else [(low + high) / 2]:
            if low < step < high:
                low, high = (low, step) if above(step) else (step, high)
    return Crossing(low, high, _slope(means, (low + high) / 2), values[high], len(means))


def _bracket(
    above: Callable[[float], bool], below: Callable[[float], bool], guess: float
) -> tuple[float, float]:
    """Return a step that is below and a longer one above; or one that is not above, and its double."""
    step, first = guess, above(guess)
    high = guess
    for _ in range(LIMIT):
        step = step / 2 if first else step * 2
        risen = above(step)
        if first and below(step):
            return step, high
        if risen and not first:
            return step / 2, step
        if risen:
            high = step
    return (0.0, 0.0) if first else (math.inf, math.inf)


def _zero(means: dict[float, float], low: float, high: float) -> float:
    """Return where a quadratic with these excesses is 0; NaN where they are not of such a one."""
    below, above = means[low] / low, means[high] / high
    return low + (high - low) * below / (below - above) if below < above < math.inf else math.nan


def _slope(means: dict[float, float], at: float) -> float:
    """Return the slope of the excess at its zero; NaN where no step tells it.

    From the excess per step, as if it were linear, at the nearest steps on both sides that are far enough to
    tell it, or at the one there is and the zero.
    """
    known = {step: value / step for step, value in means.items() if math.isfinite(value)}
    left = [step for step in known if step <= (1 - _APART) * at]
    right = [step for step in known if step >= (1 + _APART) * at]
    ends = [
        (step, known[step])
        for step in (*left, *right)
        if step in (max(left, default=0), min(right, default=0))
    ]
    if len(ends) == 1:
        ends.append((at, 0.0))
    if len(ends) < 2:
        return math.nan
    (a, below), (b, above) = ends
    return at * (above - below) / (b - a) or math.nan


TOL = 0.01
ROUNDINGS = 4  # of a loss, that an excess may be off by


def critical_sharpness(
    model: nn.Module,
    loss_fn: LossFunction,
    batches: Data,
    updates: Tensor | Sequence[Tensor],
    *,
    bn: BatchNormMode = "eval",
    guess: float = 1.0,
    tol: float = TOL,
) -> tuple[CriticalStep, ...]:
    """Return the critical step along each update, from the model's weights, on the same samples.

    Args:
        model: any module; copied, never modified.
        loss_fn: (output, targets) ↦ scalar batch mean.
        batches: the samples, see :meth:`Batches.of`.
        updates: (m, n), or m of (n,), over the trainable parameters: what is added to them. −g for a step of
            gradient descent.
        bn: ``eval`` keeps BatchNorm's statistics, ``recalibrate`` re-estimates them at every step.
        guess: the step that is tried first.
        tol: relative width of the bracket, at most; the authors' is 1/16.

    Raises:
        UserError: updates of another length, zero or not finite; a guess or tolerance that is none.
    """
    at = SampleLosses(model, loss_fn, Batches.of(batches, loss=loss_fn), bn=bn)
    return _along(at, at.center, at(at.center), _checked(updates, at.space.n), guess, tol)


def update_sharpness(
    model: nn.Module,
    loss_fn: LossFunction,
    batches: Data,
    states: Sequence[State],
    *,
    weights: Sequence[float] | None = None,
    bn: BatchNormMode = "eval",
    guess: float = 1.0,
    tol: float = TOL,
    progress: Progress | None = None,
) -> UpdateSharpness:
    """Return the critical steps of a round: along the clients' updates and their mean, from the model.

    Args:
        model: the server's network, from which the clients began.
        states: the clients' networks, K ``state_dict`` s.
        weights: p_k, at least 0, in any unit; equal ones if not given.
        loss_fn: as of :func:`critical_sharpness`, like batches, bn, guess and tol.
        progress: called after every step with the forward passes over the samples.

    Raises:
        UserError: as of :func:`critical_sharpness`; no clients, other networks, or weights that do not fit.
    """
    if not states:
        raise UserError("a round without clients has no update; give one or more networks")
    samples = Batches.of(batches, loss=loss_fn)
    at = SampleLosses(model, loss_fn, samples, bn=bn)
    at.progress = progress
    p = shares_of(weights, len(states))
    moved = torch.stack([flat_network(at.space, model, state)[: at.space.n] for state in states]) - at.center
    before = at(at.center)
    rows = [p @ moved, *_checked(moved, at.space.n)]
    server, *clients = _along(at, at.center, before, rows, guess, tol)
    return UpdateSharpness(
        server, tuple(clients), at.mean(before), p, bn=bn, samples=samples.samples, passes=at.passes
    )


def _along(
    at: SampleLosses, center: Tensor, before: Tensor, rows: Sequence[Tensor], guess: float, tol: float
) -> tuple[CriticalStep, ...]:
    if not (math.isfinite(guess) and guess > 0 and 0 < tol < 1):
        raise UserError(f"guess is {guess}, tol {tol}; give a step above 0 and a width between 0 and 1")
    return tuple(_critical(at, center, before, row, guess, tol) for row in rows)


def _critical(
    at: SampleLosses, center: Tensor, before: Tensor, update: Tensor, guess: float, tol: float
) -> CriticalStep:
    length = float(update.norm())
    hidden = length <= at.epsilon * float(center.norm())  # by the rounding of the weights
    if hidden or not math.isfinite(at.mean(before)):
        return CriticalStep(math.nan, (math.nan, math.nan), math.nan, math.nan, length, 0)
    found = crossing(
        lambda step: at(center + step * update) - before,
        at.mean,
        guess=guess,
        tol=tol,
        rounding=ROUNDINGS * at.epsilon * at.mean(before.abs()),
    )
    stderr, dof = (math.nan, math.nan) if found.at_high is None else at.error(found.at_high)
    bracket = found.low, found.high
    return CriticalStep(found.middle, bracket, stderr / abs(found.slope), dof, length, found.steps)


def _checked(updates: Tensor | Sequence[Tensor], n: int) -> list[Tensor]:
    rows = [row.detach().double().cpu() for row in updates]
    for place, row in enumerate(rows):
        if row.shape != (n,):
            raise UserError(
                f"update {place} has shape {tuple(row.shape)}; the trainable parameters need ({n},)"
            )
        if not bool(row.isfinite().all()) or not bool(row.any()):
            raise UserError(
                f"update {place} is zero, or not finite, so that there is no step along it; leave it out"
            )
    return rows
