"""What products rest on, looked at on a few samples before the first one, and what their graphs cost."""

from collections.abc import Callable, Iterable, Set
from contextlib import suppress

import torch
from torch import Tensor

from fedscope.landscape.loss.checks import (
    check_repeats,
    explained,
    once_differentiable,
    once_error,
    saved_tensors,
)
from fedscope.landscape.loss.flat_loss import SAMPLE, FlatLoss
from fedscope.landscape.loss.mean_loss import check_loss
from fedscope.landscape.loss.streamed import Batch
from fedscope.landscape.loss.trees import count, flat, leaves, some
from fedscope.landscape.operators.graph_cache import Build, Graph, GraphBytes, device_memory

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
