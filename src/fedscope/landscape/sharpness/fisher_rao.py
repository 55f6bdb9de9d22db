"""The Fisher–Rao norm wᵀF w of a network (Liang et al. 2019).

F is the mean of the outer products of the samples' gradients: at the labels of the data (``empirical``), or
over labels of the model (``exact``: their expectation, the Gauss–Newton matrix; ``drawn``: a few draws).
For a ReLU network of L layers without biases and cross-entropy these are L²·mean (pᵀf − f_y)² and
L²·mean Var_{y~p} f_y, with outputs f and p = softmax f (their theorem 3.1), which no rescaling of its layers
changes. The norm itself is the root; the square, in units of the loss, is what is estimated without bias.
"""

import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from fedscope.choices import BatchNormMode
from fedscope.errors import UserError
from fedscope.landscape.loss.batches import Batches, Data
from fedscope.landscape.loss.checks import slack
from fedscope.landscape.loss.flat_loss import LossFunction
from fedscope.landscape.loss.mean_loss import is_mean
from fedscope.landscape.operators.empirical_fisher import EmpiricalFisher
from fedscope.landscape.operators.empirical_risk import LossOperator
from fedscope.landscape.operators.gauss_newton import GaussNewton
from fedscope.landscape.operators.monte_carlo_fisher import MonteCarloFisher
from fedscope.landscape.operators.probes import seed_of
from fedscope.landscape.operators.progress_callback import Progress
from fedscope.landscape.sharpness.sharpness_result import Cost, Sharpness
from fedscope.statistics.standard_errors import data_stderr, drawn_stderr, sample_error
from fedscope.streams import key

Labels = Literal["empirical", "exact", "drawn"]


def fisher_rao_norm(
    model: nn.Module,
    loss_fn: LossFunction,
    batches: Data,
    *,
    labels: Labels = "exact",
    draws: int = 4,
    bn: BatchNormMode = "eval",
    parameters: Sequence[str] | None = None,
    generator: torch.Generator | None = None,
    seed: int | None = None,
    progress: Progress | None = None,
) -> Sharpness:
    """Return wᵀF w, from each sample's own directional derivative; at the data's labels beside one product.

    ``stderr_draws`` is that of the labels drawn, 0 otherwise. ``stderr_data`` is over the samples; over the
    batches where an operation has no derivative in forward mode.

    Args:
        model: any module; copied, never modified.
        loss_fn: (output, targets) ↦ scalar batch mean; a negative logarithm of a likelihood unless
            ``empirical``.
        batches: the samples.
        labels: what F is over.
        draws: independent labels of each sample, at least 2, if ``drawn``.
        bn: see ``frozen_copy``.
        parameters: patterns of names, of w and F alike; None: all.
        generator: draws the seed of the labels.
        seed: given instead; 0 if neither is given.
        progress: called after every pass.

    Raises:
        UserError: the loss is no mean cross-entropy or squared error, fewer than 2 draws; or see
            ``EmpiricalFisher``.
    """
    if labels not in ("empirical", "exact", "drawn"):
        raise UserError(f"labels is {labels!r}; choose empirical, exact or drawn")
    if labels == "drawn" and draws < 2:
        raise UserError(f"draws is {draws}; a standard error needs at least 2 labels of each sample")
    seed, given = seed_of(generator, seed), Batches.of(batches, loss=loss_fn)
    options = {"bn": bn, "parameters": parameters}
    if labels == "empirical":
        operators: list[LossOperator] = [EmpiricalFisher(model, loss_fn, given, **options)]  # type: ignore[arg-type]
    elif labels == "exact":
        drawn = MonteCarloFisher(model, loss_fn, given, **options)  # type: ignore[arg-type]  # refuses what is no likelihood
        # of log-probabilities the loss itself is linear, and its Hessian in them no Fisher information
        operators = [GaussNewton(model, drawn.negative_log_likelihood, given, **options)]  # type: ignore[arg-type]
    else:
        seeds = [key(seed, "fisher_rao", draw) for draw in range(draws)]
        operators = [MonteCarloFisher(model, loss_fn, given, seed=own, **options) for own in seeds]  # type: ignore[arg-type]
    return _norm(operators, seed, progress)


def _norm(operators: Sequence[LossOperator], seed: int, progress: Progress | None) -> Sharpness:
    forms: list[Tensor | None] = []
    for done, op in enumerate(operators, start=1):
        forms.append(_by_sample(op))
        if progress:
            progress(done, len(operators))
    first = operators[0]
    told = [form.cpu() for form in forms if form is not None]
    if len(told) == len(operators):
        return by_sample(torch.stack(told), first, seed)
    return _by_batch([op.product(op.loss.center).forms for op in operators], first, seed)


def _by_sample(op: LossOperator) -> Tensor | None:
    """Return wᵀF_i w (N,); None where their mean is not that of the batches: with class weights, say."""
    if not is_mean(op.loss):
        return None
    found = op.sample_forms(op.loss.center)
    if found is None or not bool(found.isfinite().all()):
        return None
    if isinstance(op, EmpiricalFisher):  # of the others each batch was compared with its likelihood
        whole = float(op.product(op.loss.center).vector.double() @ op.loss.center.double())
        return found if abs(float(found.mean()) - whole) <= slack(op.dtype) * abs(whole) else None
    return found


def by_sample(forms: Tensor, op: LossOperator, seed: int) -> Sharpness:
    """Return the mean of (S, N) forms of S independent draws of labels."""
    draws = len(forms)
    stderr, dof = sample_error(forms.mean(0))
    noise, loose = _labels_noise(forms) if draws > 1 else (0.0, math.inf)
    sizes = op.weights or ()
    return Sharpness(
        value=float(forms.mean()),
        stderr_draws=math.sqrt(noise),
        dof_draws=loose,
        # without the labels' noise, which is in the spread between samples as well
        stderr_data=(op.finite_population * max(stderr**2 - noise, stderr**2 / 2)) ** 0.5,
        dof_data=dof,
        draws=tuple(forms.mean(1).tolist()) if draws > 1 else (),
        batches=tuple(float(part.mean()) for part in forms.mean(0).split(list(sizes))),
        cost=Cost(products=draws),
        seed=seed,
        skewed=True,
    )


def _labels_noise(forms: Tensor) -> tuple[float, float]:
    """Return the variance of the mean over the draws, and its degrees of freedom (Satterthwaite 1946)."""
    draws, samples = forms.shape
    variances = forms.var(0)
    total, squares = float(variances.sum()), float(variances.square().sum())
    dof = (draws - 1) * total**2 / squares if squares > 0 else math.inf
    return total / draws / samples**2, dof


def _by_batch(forms: Sequence[Tensor | None], op: LossOperator, seed: int) -> Sharpness:
    parts = torch.stack([form for form in forms if form is not None]).cpu()
    sizes = torch.tensor(op.weights, dtype=torch.float64)
    draws = parts @ (sizes / sizes.sum())
    spread = float(draws.std()) / len(draws) ** 0.5 if len(draws) > 1 else 0.0
    return Sharpness(
        value=float(draws.mean()),
        stderr_draws=spread,
        dof_draws=len(draws) - 1 if len(draws) > 1 else math.inf,
        stderr_data=drawn_stderr(data_stderr(parts.mean(0), op.weights), op.finite_population),
        dof_data=len(sizes) - 1,
        draws=tuple(draws.tolist()) if len(draws) > 1 else (),
        batches=tuple(parts.mean(0).tolist()),
        cost=Cost(products=len(parts)),
        seed=seed,
        skewed=True,
    )
