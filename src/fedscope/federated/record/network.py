"""The network as a function: with the client's parameters, or with any others as constants."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from fedscope.federated.record.flat import FlatModel
from fedscope.task_loss import TaskLoss

T = TypeVar("T")
CHUNK = 32  # samples whose own gradients are held at once, on a CPU
_ON_GPU = 1 << 28  # numbers in them on a GPU, where few samples would leave it waiting for launches


class _Call(nn.Module):
    """Lets :func:`functional_call` run any function of a network, not only its forward pass."""

    def __init__(self, network: nn.Module):
        super().__init__()
        self.network = network

    def forward(self, function: Callable[..., T], *inputs: Any) -> T:
        return function(self.network, *inputs)


class Network:
    """Runs functions ``f(module, *inputs)`` of the network that ``model`` holds, under ``precision``."""

    def __init__(self, model: FlatModel, bf16: bool, loss: TaskLoss = TaskLoss()):  # noqa: B008 (immutable)
        self.model, self._bf16, self._call = model, bf16, _Call(model.module)
        self._loss = loss

    def __call__(self, function: Callable[..., Tensor], *inputs: Any) -> Tensor:
        """Return ``function(module, *inputs)`` at the client's current parameters, differentiable in them."""
        with self.precision():
            return function(self.model.module, *inputs).to(self.model.values.dtype)

    @torch.no_grad()
    def at(
        self, values: Tensor, function: Callable[..., Tensor], *inputs: Any, train: bool = False
    ) -> Tensor:
        """Return ``function(module, *inputs)`` at ``values`` (P+Q,), which stay as they are; a constant.

        ``train`` says whether normalisation uses the batch or the statistics in ``values``.
        """
        with in_mode(self.model.module, train=train), self.precision():
            named = {
                f"network.{name}": tensor
                for name, tensor in self._tensors(values[: self.model.size], values).items()
            }
            result: Tensor = functional_call(self._call, named, (function, *inputs))
        return result.to(values.dtype)

    def gradients(self, values: Tensor, images: Tensor, labels: Tensor) -> Iterator[Tensor]:
        """Yield the gradients of each sample's cross-entropy at ``values`` (P+Q,), in chunks (≤ chunk, P).

        In eval mode, so that samples do not mix.
        """
        size = self.model.size

        def loss(parameters: Tensor, image: Tensor, label: Tensor) -> Tensor:
            tensors = self._tensors(parameters, values)
            return self._loss(functional_call(self.model.module, tensors, (image[None],)), label[None])

        each = vmap(grad(loss), in_dims=(None, 0, 0))
        with in_mode(self.model.module, train=False):
            for x, y in zip(images.split(self.chunk), labels.split(self.chunk), strict=True):
                yield each(values[:size], x, y)

    @property
    def chunk(self) -> int:
        """Samples whose own gradients are computed at once."""
        return chunk(self.model.values.device, self.model.size)

    def gradient(self, values: Tensor, images: Tensor, labels: Tensor) -> Tensor:
        """Return the gradient (P,) of a batch's summed cross-entropy at ``values`` (P+Q,), in eval mode."""
        size = self.model.size

        def loss(parameters: Tensor) -> Tensor:
            tensors = self._tensors(parameters, values)
            return self._loss.total(functional_call(self.model.module, tensors, (images,)), labels)

        with in_mode(self.model.module, train=False):
            return torch.as_tensor(grad(loss)(values[:size]))

    def precision(self) -> torch.autocast:
        return torch.autocast(self.model.values.device.type, torch.bfloat16, enabled=self._bf16)

    def _tensors(self, parameters: Tensor, values: Tensor) -> dict[str, Tensor]:
        buffers = [buffer.clone() for buffer in self.model.buffers(values)]
        return self.model.tensors(parameters, buffers, self.model.counters.clone())


def chunk(device: torch.device, size: int) -> int:
    return CHUNK if device.type == "cpu" else max(CHUNK, min(512, _ON_GPU // size))


def pooled_first(network: nn.Module) -> nn.Module:
    """Return a plain sequence with every max-pooling before the ReLU that it follows; others as they are.

    max(ReLU(x)) = ReLU(max(x)), and the gradient goes the same way, bit for bit: a window without a positive
    number has none. Pooled 2×2, the ReLU then reads and writes a quarter of the numbers. The layers are the
    same objects.
    """
    if type(network) is not nn.Sequential:
        return network
    layers = list(network)
    for place, (first, second) in enumerate(pairwise(network)):
        if type(first) is nn.ReLU and type(second) is nn.MaxPool2d and not second.return_indices:
            layers[place : place + 2] = [second, first]
    return nn.Sequential(*layers)


def is_dense(network: nn.Module) -> bool:
    """Say whether the network has linear layers with weights, and nothing else with a state."""
    layers = [layer for layer in network.modules() if isinstance(layer, nn.Linear)]
    linear = {id(parameter) for layer in layers for parameter in layer.parameters()}
    return {id(parameter) for parameter in network.parameters()} == linear and not list(network.buffers())


@contextmanager
def in_mode(network: nn.Module, *, train: bool) -> Iterator[None]:
    modes = [(module, module.training) for module in network.modules()]
    network.train(train)
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode
