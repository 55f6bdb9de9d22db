"""The gradient noise scale of a network on samples, and how gradients differ between clients."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from fedscope.choices import BatchNormMode
from fedscope.errors import UserError
from fedscope.landscape.gradients.inner_products import of_losses
from fedscope.landscape.gradients.noise_results import GradientNoise, NoiseScale
from fedscope.landscape.gradients.noise_scale import FEWEST, gradient_noise_of
from fedscope.landscape.loss.batches import Batches, Data
from fedscope.landscape.loss.flat_loss import FlatLoss, LossFunction
from fedscope.landscape.loss.mean_loss import NoMeanError, check_loss, is_no_mean
from fedscope.landscape.operators.probes import seed_of
from fedscope.landscape.operators.progress_callback import Progress
from fedscope.statistics.standard_errors import finite_population

GROUPS = 16


def gradient_noise(
    model: nn.Module,
    loss_fn: LossFunction,
    batches: Data,
    *,
    bn: BatchNormMode = "eval",
    groups: int = GROUPS,
    generator: torch.Generator | None = None,
    seed: int | None = None,
    progress: Progress | None = None,
) -> NoiseScale:
    """Return tr Σ, ‖G‖² and the noise scale tr Σ/‖G‖² of a network's loss.

    Arguments and errors as of :func:`client_gradient_noise`, for one client.
    """
    found = client_gradient_noise(
        model, loss_fn, [batches], bn=bn, groups=groups, generator=generator, seed=seed, progress=progress
    )
    return found.clients[0]


def client_gradient_noise(
    model: nn.Module,
    loss_fn: LossFunction,
    clients: Sequence[Data],
    *,
    weights: Sequence[float] | None = None,
    bn: BatchNormMode = "eval",
    groups: int = GROUPS,
    generator: torch.Generator | None = None,
    seed: int | None = None,
    progress: Progress | None = None,
) -> GradientNoise:
    """Return how gradients scatter over the samples of each client, of all, and between clients.

    One forward and one backward pass over all samples; two where the batches' gradients exceed 1 GiB. Batches
    of one sample give the exact per-sample scatter at the cost of a pass each.

    Args:
        model: any module, the same for all clients; copied, never modified.
        loss_fn: (output, targets) ↦ scalar batch mean over samples.
        clients: K clients' samples, see :meth:`Batches.of`.
        weights: p_k of F = Σ p_k F_k; by samples if not given, as FedAvg averages.
        bn: as of ``Hessian``.
        groups: batches that each client's samples are dealt to at least, of 8 samples or more where they are
            not in smaller batches already (:meth:`Batches.dealt`); at least 3 for errors.
        generator: draws the deal.
        seed: of such a generator instead; 0 if neither is given.
        progress: called after every batch.

    Raises:
        UserError: no clients, weights that do not fit, ``groups`` below 1; as of ``check_loss``.
        NoMeanError: the loss is no plain mean over samples, such as one with class weights, as far as some
            samples of all batches tell.
    """
    if not clients or groups < 1:
        raise UserError(
            f"{len(clients)} clients in {groups} groups have no gradients; give one or more of each"
        )
    own = seed_of(generator, seed)
    given = [_client(number, client, loss_fn) for number, client in enumerate(clients)]
    p = _shares(weights, [one.samples for one in given])
    losses = [_dealt(FlatLoss(model, loss_fn, one, bn=bn), groups, own) for one in given]
    finite = [finite_population(one.samples, one.population) for one in given]
    products, gradients = of_losses(losses, finite, progress=progress)
    total = sum(len(one.batches) for one in losses)
    return gradient_noise_of(products, p, gradients=gradients, passes=gradients / total)


def _client(number: int, data: Data, loss_fn: LossFunction) -> Batches:
    try:
        return Batches.of(data, loss=loss_fn)
    except UserError as error:
        raise UserError(f"client {number}: {error}") from error


def _dealt(loss: FlatLoss, groups: int, seed: int) -> FlatLoss:
    """Return the loss with its samples dealt; one by one where too few for three batches of several."""
    check_loss(loss)
    if loss.coupled:
        return loss
    samples = loss.batches
    if is_no_mean(loss):
        raise NoMeanError(
            "gradient noise is of a mean over samples, and this loss is none: take the plain mean of each "
            "sample's own terms, without class weights and with as many terms in each"
        )
    loss.batches = samples.dealt(groups, seed)
    if len(loss.batches) < min(FEWEST, groups) and samples.samples >= FEWEST:
        loss.batches = samples.taken(torch.arange(samples.samples).split(1))
    return loss


def _shares(weights: Sequence[float] | None, samples: Sequence[int]) -> Tensor:
    own = torch.tensor(samples if weights is None else list(weights), dtype=torch.float64)
    if own.shape != (len(samples),) or not bool((own >= 0).all()) or not 0 < float(own.sum()) < float("inf"):
        raise UserError(
            f"{own.numel()} weights for {len(samples)} clients; give each a number of 0 or more, not all 0"
        )
    return own / own.sum()
