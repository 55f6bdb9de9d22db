"""Critical sharpness along updates: how far the server's mean update, and each client's, lowers a loss.

Definition and search stand in :mod:`.critical_step`. The server's step of a federated round is along the
clients' mean update Δ̄, whose negative is its pseudo-gradient: F(w + ηΔ̄) for the server's learning rate η.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from fedscope.choices import BatchNormMode
from fedscope.errors import UserError
from fedscope.landscape.loss.batches import Batches, Data
from fedscope.landscape.loss.flat_loss import LossFunction
from fedscope.landscape.operators.progress_callback import Progress
from fedscope.landscape.paths.barriers import State, flat_network, shares_of
from fedscope.landscape.paths.critical_step import crossing
from fedscope.landscape.paths.path_results import CriticalStep, UpdateSharpness
from fedscope.landscape.paths.sample_losses import SampleLosses

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
