"""The one local loop: what a client does between receiving a model and sending it back.

Per mini-batch: forward in train mode, mean cross-entropy, the method's terms; gradient over all trainable
parameters; one global-norm clip; SGD with weight decay after the clip.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedscope.data.augment import Pipeline
from fedscope.data.datasets import Split
from fedscope.federated.method import Method, Step, Values


@dataclass(frozen=True)
class LocalSettings:
    """How a client optimises."""

    epochs: int
    batch_size: int
    lr: float
    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0
    clip: float | None = None


@dataclass(frozen=True)
class LocalStreams:
    """The client's random streams of this round: batch order and augmentation never share one."""

    order: torch.Generator
    augmentation: torch.Generator


def train_client(
    model: nn.Module,
    split: Split,
    rows: Tensor,
    pipeline: Pipeline,
    method: Method,
    options: Values,
    settings: LocalSettings,
    streams: LocalStreams,
) -> float:
    """Train ``model`` in place on ``rows`` of ``split``; return its mean training loss over the last epoch.

    ``model`` holds θ_t on entry and w_k on return. ``rows``: (n_k,) int64. The last, smaller batch is used.
    """
    model.train()
    parameters = [p for p in model.parameters() if p.requires_grad]
    anchor = [p.detach().clone() for p in parameters]
    optimizer = torch.optim.SGD(
        parameters,
        lr=settings.lr,
        momentum=settings.momentum,
        nesterov=settings.nesterov,
        weight_decay=settings.weight_decay,
        foreach=True,
    )
    total = torch.zeros((), dtype=torch.float64, device=rows.device)
    with tapped(model, [name for taps in method.taps for name in taps(model)]) as activations:
        for _ in range(settings.epochs):
            total.zero_()
            order = rows[torch.randperm(len(rows), generator=streams.order).to(rows.device)]
            for index, batch in enumerate(order.split(settings.batch_size)):
                inputs = pipeline.train(split.images[batch], streams.augmentation)
                logits = model(inputs)
                loss = cross_entropy(logits, split.labels[batch])
                step = Step(parameters, anchor, activations, logits, options, first_of_epoch=index == 0)
                objective = loss
                for term in method.task + method.anchored:
                    objective = objective + term(step)
                optimizer.zero_grad()
                objective.backward()
                if settings.clip is not None:
                    nn.utils.clip_grad_norm_(parameters, settings.clip, foreach=True)
                optimizer.step()
                total += loss.detach() * len(batch)
                activations.clear()
    return float(total / len(rows))


@contextmanager
def tapped(model: nn.Module, names: list[str]) -> Iterator[dict[str, Tensor]]:
    """Collect the outputs of the named modules at each forward pass; the hooks are gone afterwards."""
    outputs: dict[str, Tensor] = {}

    def keep(name: str) -> None:
        def hook(_module: nn.Module, _inputs: object, output: Tensor) -> None:
            outputs[name] = output

        handles.append(model.get_submodule(name).register_forward_hook(hook))

    handles: list[torch.utils.hooks.RemovableHandle] = []
    try:
        for name in dict.fromkeys(names):
            keep(name)
        yield outputs
    finally:
        for handle in handles:
            handle.remove()
