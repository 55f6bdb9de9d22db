"""What averaging costs: the loss at the clients' mean weights beside the mean of their losses, by orders.

With w̄ = Σ p_k w_k and δ_k = w_k − w̄, a loss G has

    Σ p_k G(w_k) − G(w̄)  =  Σ p_k ∇G(w̄)·δ_k  +  ½ Σ p_k δ_kᵀ∇²G(w̄)δ_k  +  remainder.

For the global loss the first term is 0, as Σ p_k δ_k = 0; the second is the drift weighted by curvature, by
which the mean is *below* the clients where the loss is convex between them. For a quadratic loss the
remainder is 0. With each client's own loss f_k in place of G the left side is what averaging costs the
clients on their own data (with the sign turned), and the first term need not vanish.

The expansion is in the parameters. Buffers (BatchNorm's statistics) are those of w̄ in all terms; what
changes if each model keeps its own is a difference of the losses of :mod:`.flatness_gap`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedscope.errors import UserError
from fedscope.landscape.heterogeneity.one_round.flatness_gap import check_shares
from fedscope.landscape.heterogeneity.one_round.paired import Paired, mean_of_batches, total
from fedscope.landscape.loss.copies import whole_copy
from fedscope.landscape.loss.flat_loss import FlatLoss
from fedscope.landscape.operators.base import Operator
from fedscope.landscape.printing import Printed


@torch.no_grad()
def batch_losses(loss: FlatLoss, points: Tensor) -> Tensor:
    """Return each batch's mean loss (m, B) at m flat vectors of weights (m, n), in float64.

    The loss must not be that of an operator that is still to make products: its graphs are of one point.
    """
    found = torch.zeros(len(points), len(loss.batches), dtype=torch.float64)
    for i, point in enumerate(points):
        loss.load(point.to(loss.center))
        with loss.plainly(), loss.exact():
            for b, batch in enumerate(loss.batches):
                found[i, b] = loss.on_batch(*batch).double()
    loss.load(loss.center)
    return found


def batch_slopes(loss: FlatLoss, directions: Tensor) -> Tensor:
    """Return ∇loss_b · v (m, B) at the loss's own weights, for each batch and m directions v (m, n)."""
    found = torch.zeros(len(directions), len(loss.batches), dtype=torch.float64)
    loss.load(loss.center)
    rows = directions.to(loss.center)
    for b, batch in enumerate(loss.batches):
        found[:, b] = rows.double() @ loss.gradient(*batch).double()
    return found


@dataclass(frozen=True, repr=False)
class Expansion(Printed):
    """G(w̄ + δ) − G(w̄), and its terms."""

    measured: Paired
    first: Paired  # ∇G(w̄)·δ
    second: Paired  # ½ δᵀ∇²G(w̄)δ

    @property
    def remainder(self) -> Paired:
        return total([(1.0, self.measured), (-1.0, self.first), (-1.0, self.second)])


@dataclass(frozen=True, repr=False)
class AveragingCost(Printed):
    """The expansions of K clients, of one function or of each client's own."""

    shares: tuple[float, ...]  # (K,) p_k
    clients: tuple[Expansion, ...]  # (K,)

    @property
    def mean(self) -> Expansion:
        columns = zip(*((one.measured, one.first, one.second) for one in self.clients), strict=True)
        return Expansion(*(total(zip(self.shares, column, strict=True)) for column in columns))


def expansions(op: Operator, loss: FlatLoss, displacements: Tensor, *, samples: str) -> tuple[Expansion, ...]:
    """Return the expansion of one loss along K displacements (K, n), at K products.

    ``loss`` must not be that of ``op``, whose graphs stay at one point.
    """
    rows = displacements.to(loss.device)
    points = torch.cat([loss.center[None].double(), loss.center.double() + rows.double()])
    values = batch_losses(loss, points)
    slopes = batch_slopes(loss, rows)
    found = []
    for i, product in enumerate(op.products(rows.to(op.dtype))):
        curved = float(rows[i].double() @ product.vector.double()) / 2
        forms = product.forms if product.forms is not None else torch.full_like(slopes[i], 2 * curved)
        found.append(
            Expansion(
                mean_of_batches(op, samples, values[i + 1] - values[0]),
                mean_of_batches(op, samples, slopes[i]),
                mean_of_batches(op, samples, forms / 2, curved),
            )
        )
    return tuple(found)


def averaging_cost(shares: Sequence[float], clients: Sequence[Expansion]) -> AveragingCost:
    check_shares(shares)
    if len(shares) != len(clients):
        raise UserError(f"{len(shares)} shares are not of {len(clients)} clients")
    return AveragingCost(tuple(shares), tuple(clients))


def mean_model(models: Sequence[nn.Module], shares: Sequence[float]) -> nn.Module:
    """Return a model of the mean weights Σ p_k w_k, added up in float64 and beginning at the first model.

    Buffers of floating numbers (BatchNorm's running statistics) are averaged in the same way, as a server
    averages them; of counters the largest is taken. Equal models have exactly their own mean.
    """
    check_shares(shares)
    states = [model.state_dict() for model in models]
    mean = whole_copy(models[0])
    found = {}
    for name, first in states[0].items():
        column = [state.get(name) for state in states]
        if any(one is None or one.shape != first.shape for one in column):
            raise UserError(f"the clients' models differ in {name}: there is no mean of them")
        tensors = [one for one in column if one is not None]
        if not first.is_floating_point():
            found[name] = torch.stack(tensors).amax(0)
            continue
        wide = first.double()
        step = sum((p * (one.double() - wide) for p, one in zip(shares, tensors, strict=True)), wide * 0)
        found[name] = (wide + step).to(first.dtype)
    mean.load_state_dict(found)
    return mean
