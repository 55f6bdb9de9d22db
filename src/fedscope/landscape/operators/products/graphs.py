"""The graphs of a loss operator: how batches are cut or joined, after a look at what products rest on."""

from collections.abc import Callable

from fedscope.landscape.loss.flat_loss import FlatLoss
from fedscope.landscape.loss.mean_loss import adds_up, has_parts
from fedscope.landscape.operators.graph_cache import Build, Cost, Graphs


def prepared(
    loss: FlatLoss, build: Build, looked_at: Callable[[], Cost], *, memory: int | None, keep: bool
) -> Graphs:
    """Return the graphs of a loss's batches, small enough for the ``memory``.

    Where even one sample's graph is not, what is in the network's blocks is computed again.

    Args:
        loss: that they are of.
        build: makes a graph.
        looked_at: checks what products rest on, and returns what graphs cost
            (:func:`~fedscope.landscape.operators.products.preflight.preflight`).
        memory: bytes that they may take together, see :class:`Graphs`.
        keep: whether any is kept between products.

    Raises:
        UserError: of ``looked_at``; or a batch that cannot be cut exceeds the memory.
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


def joined(loss: FlatLoss, graphs: Graphs) -> Graphs | None:
    """Return the graphs of several small batches each, for products that no batch is told apart in.

    None where there are no two to join, or where the joined ones' loss would be another.
    """
    found = None if graphs.plan.note else graphs.joined()
    return found if found and adds_up(loss, found.batches) else None


def _note(loss: FlatLoss) -> str:
    parts = []
    if loss.logits.found:
        whole = loss.logits.whole
        parts.append(f"all logits at once, for {whole}" if whole else "logits by chunks")
    if loss.recomputes_blocks:
        parts.append("what is in the network's blocks computed again for each product")
    return ", ".join(parts)
