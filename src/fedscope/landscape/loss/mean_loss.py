"""Whether a loss is a mean over samples, as weighting batches by their counts requires."""

import math

import torch
from torch import Tensor, nn

from fedscope.errors import UserError
from fedscope.landscape.loss.batches import Batches
from fedscope.landscape.loss.checks import close, rounding
from fedscope.landscape.loss.flat_loss import SAMPLE, FlatLoss, LossFunction
from fedscope.landscape.loss.trees import Tree, count, cut, joined, some

_PARTS = 3  # samples from which a loss shows whether it is the mean of its parts


class NoMeanError(UserError):
    """The loss of several samples is not the mean of theirs, so that they must stay in one batch."""


@torch.no_grad()
def check_loss(loss: FlatLoss) -> None:
    """Refuse a loss that is random, or a sum, by what it gives for some samples and for these twice over.

    A random loss has no one curvature. A sum doubles where every sample is there twice, and its curvature is
    that of the mean times a number of samples. Any other loss may be measured: what is no mean over samples
    is a function of its batches.
    """
    inputs, targets = next(iter(loss.batches))
    if not loss.coupled:
        inputs, targets = (some(tree, slice(SAMPLE // 2)) for tree in (inputs, targets))
        if not _tells(loss, inputs, targets):  # of fitted samples, or of such without a label
            inputs, targets = loss.batches.spread(3 * SAMPLE)
    first, second = (_scalar(loss, inputs, targets) for _ in range(2))
    if not close(first, second, first.dtype):
        raise UserError(
            f"the loss gives {float(first):.6g} and {float(second):.6g} for the same outputs and targets, so "
            "that there is no one loss to measure: remove the randomness, or the state, that it keeps"
        )
    whole = float(first)
    if _doubles(loss, inputs, targets, whole):
        raise UserError(
            f"the loss is a sum over samples: {whole:.6g} for {count(inputs)} samples, twice that for each "
            "of them twice; divide it by their number (reduction='mean')"
        )


@torch.no_grad()
def check_mean(model: nn.Module, loss_fn: LossFunction, batches: Batches) -> None:
    """Refuse also a loss over several batches that is no mean over samples, by the parts of a batch of them.

    The mean over the parts, weighted by their samples, differs from the whole for a mean over unequal numbers
    of tokens, or a loss between samples. Then the result would depend on how the samples fall into batches,
    and a single batch is required.
    """
    loss = FlatLoss(model, loss_fn, batches)
    check_loss(loss)
    if len(batches) == 1:
        return
    inputs, targets = loss.batches.spread(max(batches.sizes[0], SAMPLE))
    found = _whole_and_parts(loss, inputs, targets)
    if found and not _same(*found, loss.dtype):
        raise NoMeanError(
            f"the loss is no mean over samples: {found[0]:.6g} for a batch of {count(inputs)}, "
            f"{found[1]:.6g} for its parts; average over each sample's own terms, then over samples, or take "
            f"all as one batch with --batch-size {batches.samples}"
        )


@torch.no_grad()
def is_mean(loss: FlatLoss) -> bool:
    """Say whether the loss of some samples is the mean of their parts', so that batches may be cut."""
    if loss.coupled:
        return False
    inputs, targets = (some(tree, slice(3 * SAMPLE)) for tree in loss.batches.spread(3 * SAMPLE))
    found = _whole_and_parts(loss, inputs, targets)
    return found is not None and _same(*found, loss.dtype)


def is_no_mean(loss: FlatLoss) -> bool:
    """Say whether its samples show a loss to be none; one or two show nothing."""
    return loss.batches.samples >= _PARTS and not is_mean(loss)


@torch.no_grad()
def has_parts(loss: FlatLoss, most: int) -> bool:
    with loss.plainly(), loss.exact():
        for batch, whole in zip(loss.batches, loss.losses.double(), strict=True):
            parts = cut(batch, most)
            sums = [count(x) * loss.on_batch(x, y).double() for x, y in parts]
            if not close(torch.stack(sums).sum() / count(batch[0]), whole, loss.dtype):
                return False
    return True


def _whole_and_parts(loss: FlatLoss, inputs: Tree, targets: Tree) -> tuple[float, float] | None:
    """Return the loss of some samples and the mean of their two parts'; None where there are no parts."""
    samples, cut = count(inputs), count(inputs) // _PARTS
    if not cut:
        return None
    parts = slice(None, cut), slice(cut, None)
    try:
        whole = _value(loss, inputs, targets)
        one, other = (_value(loss, some(inputs, rows), some(targets, rows)) for rows in parts)
    except Exception:  # whatever it raises: a network that takes so many samples and no others has no parts
        return None
    return whole, (cut * one + (samples - cut) * other) / samples


def _same(whole: float, mean: float, dtype: torch.dtype) -> bool:
    if math.isfinite(whole) and not math.isfinite(mean):  # a part without a label, say
        return False
    return not abs(mean - whole) > rounding(dtype) * max(abs(whole), abs(mean))  # what is not finite stays so


def _tells(loss: FlatLoss, inputs: Tree, targets: Tree) -> bool:
    """Say whether a loss is other than 0, so that a sum differs from a mean."""
    value = _value(loss, inputs, targets)
    return value != 0 and math.isfinite(value)


def _scalar(loss: FlatLoss, inputs: Tree, targets: Tree) -> Tensor:
    with loss.exact():
        return loss.on_batch(inputs, targets)


def _value(loss: FlatLoss, inputs: Tree, targets: Tree) -> float:
    return float(_scalar(loss, inputs, targets))


def _doubles(loss: FlatLoss, inputs: Tree, targets: Tree, whole: float) -> bool:
    try:
        twice = _value(loss, joined([inputs, inputs]), joined([targets, targets]))
    except Exception:  # whatever it raises: a network of one number of samples is no plain sum
        return False
    return whole != 0 and abs(twice - 2 * whole) <= rounding(loss.dtype) * abs(whole)
