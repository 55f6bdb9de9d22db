"""The graphs of a loss operator: how batches are cut or joined, after a look at what products rest on."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.distributed import ProcessGroup

from fedscope.landscape.loss.checks import close
from fedscope.landscape.loss.flat_loss import FlatLoss
from fedscope.landscape.loss.mean_loss import has_parts, is_mean
from fedscope.landscape.operators.by_batch.parallel import add_up, share
from fedscope.landscape.operators.graph_cache import Build, GraphBytes, Graphs


def prepared(
    loss: FlatLoss, build: Build, looked_at: Callable[[], GraphBytes], *, memory: int | None, keep: bool
) -> Graphs:
    """Return the graphs of a loss's batches, small enough for the ``memory``.

    Where even one sample's graph is not, what is in the network's blocks is computed again.
    """
    cost = looked_at()
    if cost.exceeds(memory) and loss.blocks.found:
        loss.recomputes_blocks = True
        cost = looked_at()
    longest, whole = max(loss.batches.sizes), loss.coupled
    most = longest if whole else cost.fitting(longest, memory)
    whole = whole or (most < longest and not has_parts(loss, most))
    most = longest if whole else most
    return Graphs(build, loss.batches, cost, most=most, memory=memory, keep=keep, note=_note(loss))


def joined(
    loss: FlatLoss,
    graphs: Graphs,
    rows: Tensor,
    apart: Tensor,
    together: Callable[[Graphs, Tensor], Tensor],
) -> Graphs | None:
    """Return the graphs of several small batches each, for products that no batch is told apart in.

    None where there are no two to join, or where their product is not the one that tells them apart: a loss
    between samples, or a mean over their tokens; a network that takes so many samples and no more.
    """
    found = None if graphs.plan.note or not is_mean(loss) else graphs.joined
    try:
        fits = found is not None and close(together(found, rows), apart, loss.dtype)
    except Exception:  # whatever a network or a loss raises
        return None
    return found if fits else None


def difference(loss: FlatLoss, graphs: Graphs, group: ProcessGroup | None) -> str:
    """Return in which batch the form that the first product was computed in is another network, if any.

    A layer whose BatchNorm is folded into it puts out other numbers than its own, at which a forward may
    look on some samples only. Every batch's loss has come with the product; it is compared with that of
    the network as it is. The processes of a group find the same.
    """
    if not loss.doubtful:
        return ""
    count = len(loss.batches)
    differing = torch.zeros(count, device=loss.device)
    for b in share(count, group):
        differing[b] = float(loss.differs(b, graphs.loss(b)))
    add_up(group, differing)
    found = differing.nonzero().flatten().tolist()
    return f"its loss would differ in batch {found[0] + 1} of {count}" if found else ""


def _note(loss: FlatLoss) -> str:
    parts = []
    if loss.logits.found:
        whole = loss.logits.whole
        parts.append(f"all logits at once, for {whole}" if whole else "logits by chunks")
    if loss.recomputes_blocks:
        parts.append("what is in the network's blocks computed again for each product")
    return ", ".join(parts)
