"""Bare PyTorch loops on a GPU: the same network and batch as a federated run, and nothing else.

A step is forward pass, cross-entropy, backward pass and SGD on batches that lie in the GPU's memory; eager,
or recorded once as a CUDA graph and replayed, which is the floor of a step's time. Kernels are those of
fedscope (deterministic, fp32 without TF32), but in the loops that may take any.
"""

import time
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

WARM_UPS, BATCHES = 5, 8


@dataclass(frozen=True)
class Loop:
    """How a loop computes."""

    precision: str = "fp32"
    graph: bool = False
    layout: torch.memory_format = torch.channels_last
    any_kernel: bool = False  # TF32, kernels that differ from run to run, the fastest found by trying


LOOPS = {
    "eager, fp32": Loop(),
    "eager, bf16": Loop("bf16"),
    "CUDA graph, fp32": Loop(graph=True),
    "CUDA graph, bf16": Loop("bf16", graph=True),
    "CUDA graph, fp32, channels first": Loop(graph=True, layout=torch.contiguous_format),
    "CUDA graph, fp32, any kernel": Loop(graph=True, any_kernel=True),
    "CUDA graph, bf16, any kernel": Loop("bf16", graph=True, any_kernel=True),
}


def seconds_per_step(
    loop: Loop, model: nn.Module, images: Tensor, labels: Tensor, settings: Mapping[str, Any], steps: int
) -> float:
    """Return the mean seconds of ``steps`` steps on batches of ``images`` (n, C, H, W), after a warm-up."""
    device = images.device
    allow(loop.any_kernel)
    network: nn.Module = deepcopy(model).to(memory_format=loop.layout).train()  # type: ignore[call-overload]
    names = ("lr", "momentum", "nesterov", "weight_decay")
    optimizer = torch.optim.SGD(network.parameters(), **{n: settings[n] for n in names}, foreach=True)
    size = settings["batch_size"]
    pairs = zip(images.split(size), labels.split(size), strict=True)
    batches = [(x.contiguous(memory_format=loop.layout), y) for x, y in pairs if len(y) == size][:BATCHES]
    bf16 = loop.precision == "bf16"

    def step(inputs: Tensor, targets: Tensor) -> None:
        optimizer.zero_grad()
        # A cast that is cached outside of a graph would not be repeated by its replay.
        with torch.autocast(device.type, torch.bfloat16, enabled=bf16, cache_enabled=not loop.graph):
            loss = cross_entropy(network(inputs), targets)
        loss.backward()
        optimizer.step()

    run = recorded(step, *batches[0]) if loop.graph else step
    for index in range(WARM_UPS):
        run(*batches[index % len(batches)])
    finish(device)
    start = time.perf_counter()
    for index in range(steps):
        run(*batches[index % len(batches)])
    finish(device)
    return (time.perf_counter() - start) / steps


def recorded(
    step: Callable[[Tensor, Tensor], None], inputs: Tensor, targets: Tensor
) -> Callable[[Tensor, Tensor], None]:
    """Return ``step`` as a CUDA graph: its inputs are copied into place, then it is replayed."""
    inputs, targets = inputs.clone(), targets.clone()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(WARM_UPS):
            step(inputs, targets)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step(inputs, targets)

    def replay(x: Tensor, y: Tensor) -> None:
        inputs.copy_(x)
        targets.copy_(y)
        graph.replay()

    return replay


def allow(any_kernel: bool) -> None:
    """Let cuDNN and cuBLAS take any kernel, or only those that fedscope's training takes."""
    torch.backends.cudnn.benchmark = any_kernel
    torch.backends.cudnn.deterministic = not any_kernel
    torch.backends.cudnn.allow_tf32 = any_kernel
    torch.backends.cuda.matmul.allow_tf32 = any_kernel


def finish(device: torch.device) -> None:
    """Wait for what was launched."""
    if device.type == "cuda":
        torch.cuda.synchronize()
