"""The preflight of products: what they rest on, looked at on a few samples, and how their graphs are cut."""

from collections.abc import Callable, Iterable, Set
from contextlib import suppress

import torch
from torch import Tensor
from torch.distributed import ProcessGroup

from fedscope.landscape.loss.checks import (
    check_repeats,
    close,
    explained,
    once_differentiable,
    once_error,
    saved_tensors,
)
from fedscope.landscape.loss.flat_loss import SAMPLE, FlatLoss
from fedscope.landscape.loss.mean_loss import check_loss, has_parts, is_mean
from fedscope.landscape.loss.streamed import Batch
from fedscope.landscape.loss.trees import count, flat, leaves, some
from fedscope.landscape.operators.batch_mean import add_up, share
from fedscope.landscape.operators.products.graph_cache import Build, Graph, GraphBytes, Graphs, device_memory

OTHERWISE = (
    ", or take products by finite differences of gradients, which need no second derivative "
    "(--products finite-differences, products='finite-differences')"
)


def preflight(loss: FlatLoss, build: Build, *, twice: bool, otherwise: str = "") -> GraphBytes:
    """Return the bytes of graphs, after checking what the products rest on."""
    inputs, targets = loss.batches[0]
    if not loss.coupled:
        inputs, targets = some(inputs, slice(SAMPLE)), some(targets, slice(SAMPLE))

    def outputs() -> Tensor:
        return flat(loss.outputs(inputs))

    def whole() -> Tensor:
        return loss.of(loss.outputs(inputs), targets)

    with torch.enable_grad(), loss.exact(), explained(loss.model, whole, otherwise):
        check_repeats(outputs)
        check_loss(loss)
        weights = (*loss.model.parameters(), *loss.model.buffers())
        graph, cost = measured(build, (inputs, targets), whole=loss.coupled, weights=weights)
        if twice and once_differentiable(graph):
            raise once_error(loss.model, whole, otherwise)
    return cost


def measured(
    build: Build, batch: Batch, *, whole: bool, weights: Iterable[Tensor] = ()
) -> tuple[Graph, GraphBytes]:
    """Return a batch's graph, and what graphs cost by it and, unless only ``whole`` will do, by its half."""
    inputs, targets = batch
    samples = count(inputs)
    half = samples if whole else max(1, samples // 2)
    memory = device_memory(next(leaves(inputs)).device)
    known = {storage.data_ptr() for tensor in weights for storage in _storages(tensor)}
    graph, size = _saved_bytes(lambda: build(inputs, targets)[0], known)
    if half == samples:
        own = min(size, sum(tensor.nbytes for tensor in graph))
        return graph, GraphBytes(own, (size - own) / samples, memory)
    _, less = _saved_bytes(lambda: build(some(inputs, slice(half)), some(targets, slice(half)))[0], known)
    each = (size - less) / (samples - half)
    return graph, GraphBytes(max(0.0, size - each * samples), each, memory)


def _saved_bytes(build: Callable[[], Graph], known: Set[int]) -> tuple[Graph, int]:
    """Return a graph and the bytes of the distinct storages that it holds on to, but for the ``known``."""
    storages: dict[int, torch.UntypedStorage] = {}  # alive, or one freed on the way would lend its place

    def seen(tensor: Tensor) -> Tensor:
        with suppress(RuntimeError):  # of a tensor without memory, as ``torch.cond`` traces its branches with
            storages.update((storage.data_ptr(), storage) for storage in _storages(tensor))
        return tensor.detach()

    try:
        with torch.autograd.graph.saved_tensors_hooks(seen, lambda tensor: tensor):
            graph = build()
    except RuntimeError as error:
        if "saved tensor hooks" not in str(error):  # which ``torch.func`` in a forward refuses
            raise
        graph = build()
        for tensor in saved_tensors(graph):
            seen(tensor)
    for tensor in graph:
        seen(tensor)
    return graph, sum(storage.nbytes() for at, storage in storages.items() if at not in known)


def _storages(tensor: Tensor) -> list[torch.UntypedStorage]:
    parts = (tensor._indices(), tensor._values()) if tensor.layout is torch.sparse_coo else (tensor,)
    return [part.untyped_storage() for part in parts]


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
