"""The one local loop: what a client does between receiving a model and sending it back.

Per mini-batch: forward in train mode, mean cross-entropy, the method's terms; gradient over all trainable
parameters; one global-norm clip; SGD with weight decay after the clip. Everything after the backward pass
works on flat vectors, so its cost in Python does not grow with the network. Clients of equal size may be
trained as a stack: the same steps on (K, P) vectors, with one batched forward and backward pass for all K.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.functional import cross_entropy

from fedscope.data.augment import Pipeline
from fedscope.data.datasets import Split
from fedscope.federated.accounting import Clock
from fedscope.federated.flat import FlatModel
from fedscope.federated.graphs import Replay
from fedscope.federated.method import Finish, Method, Step, Values


@dataclass(frozen=True)
class LocalSettings:
    """How a client optimises."""

    epochs: int
    batch_size: int
    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0
    clip: float | None = None
    precision: Literal["fp32", "bf16"] = "fp32"
    compile: bool = False


@dataclass(frozen=True)
class Task:
    """One client's part in a round: its rows, random streams, share n_k·N/n, and what it remembers."""

    rows: Tensor  # (n_k,) int64
    order: torch.Generator
    augmentation: torch.Generator
    share: float = 1.0
    memory: Tensor | None = None  # (M, P); None: never sampled before, all zero


@dataclass(frozen=True)
class Trained:
    """What K clients of a stack send back."""

    values: Tensor  # (K, P+Q): w_k and the floating buffers
    memory: Tensor  # (K, M, P)
    counters: Tensor  # (n,) int64: the integer buffers
    loss: Tensor  # (K,) float64: cross-entropy alone, mean over the last local epoch


class LocalTrainer:
    """Trains stacks of equally large clients; holds the vectors, and on a GPU the recorded steps, in between.

    ``model``'s rows are overwritten. ``split`` lies on the model's device.
    """

    def __init__(
        self,
        model: FlatModel,
        split: Split,
        pipeline: Pipeline,
        method: Method,
        options: Values,
        settings: LocalSettings,
        clock: Clock | None = None,
    ):
        self.model, self.split, self.pipeline = model, split, pipeline
        self.method, self.options, self.settings = method, options, settings
        self.clock = clock or Clock()
        stack, size = model.gradient.shape
        new = model.values.new_zeros
        self._anchor, self._velocity = new(stack, size), new(stack, size if settings.momentum else 0)
        self._memory = new(stack, len(method.memory), size)
        self._share, self._lr = new(stack, 1), new(())
        self._loss = torch.zeros(stack, dtype=torch.float64, device=model.values.device)
        self._activations: dict[str, Tensor] = {}
        self._compiled = torch.compile(model.module, dynamic=False) if settings.compile else model.module
        changed = (model.values, model.counters, self._velocity, self._loss)
        on_gpu = model.values.device.type == "cuda"
        self._run = Replay(self._step, changed) if on_gpu else self._step

    def train(self, start: Tensor, counters: Tensor, tasks: Sequence[Task], lr: float) -> Trained:
        """Train K clients of one size from ``start`` (P+Q,) at rate ``lr`` and keep nothing of them."""
        model, count = self.model, len(tasks)
        if len({len(task.rows) for task in tasks}) != 1 or count > len(model.values):
            raise ValueError("a stack is clients of one size, at most as many as the model has rows")
        model.module.train()
        model.values[:count] = start
        model.counters.copy_(counters)
        self._anchor[:count] = start[: model.size]
        self._velocity.zero_()
        self._lr.fill_(lr)
        for row, task in enumerate(tasks):
            self._share[row] = task.share
            self._memory[row] = 0.0 if task.memory is None else task.memory
        rows = torch.stack([task.rows for task in tasks])
        names = [name for taps in self.method.taps for name in taps(model.module)]
        with tapped(model.module, names) as self._activations:
            for _ in range(self.settings.epochs):
                self._epoch(rows, tasks)
        self.clock.enter("compute")
        finish = Finish(
            model.values[:count, : model.size], self._anchor[:count], self._remembered(count), self.options
        )
        memory = self.method.remember(finish) if self.method.remember else {}
        return Trained(
            model.values[:count].clone(),
            torch.stack([memory[name] for name in self.method.memory], 1)
            if memory
            else self._memory[:count].clone(),
            model.counters.clone(),
            self._loss[:count] / rows.shape[1],
        )

    def _epoch(self, rows: Tensor, tasks: Sequence[Task]) -> None:
        self.clock.enter("data")
        count = rows.shape[1]
        shuffles = torch.stack([torch.randperm(count, generator=task.order) for task in tasks])
        draws = torch.stack([self.pipeline.draw(count, task.augmentation) for task in tasks], 1)
        self.clock.enter("compute")  # on a GPU the copies wait for the epoch before
        order, draws = rows.gather(1, shuffles.to(rows.device)), draws.to(rows.device)
        self._loss.zero_()
        size = self.settings.batch_size
        for index, (batch, drawn) in enumerate(zip(order.split(size, 1), draws.split(size, 2), strict=True)):
            self._run(batch, drawn, flag=index == 0)

    def _step(self, batch: Tensor, draws: Tensor, flag: bool) -> None:
        """Take one local step of every client on rows ``batch`` (K, B), augmented by ``draws`` (D, K, B)."""
        self.clock.enter("data")
        count, size = batch.shape
        images = self.pipeline.train(self.split.images[batch.flatten()], draws.flatten(1))
        images = images.contiguous(memory_format=torch.channels_last)
        labels = self.split.labels[batch]
        self.clock.enter("compute")
        differentiate = self._differentiate_stack if len(self.model.values) > 1 else self._differentiate
        loss = differentiate(images, labels, flag)
        with torch.no_grad():
            self._loss[:count] += loss.detach() * size
            self._descend(count)
        self._activations.clear()

    def _descend(self, count: int) -> None:
        """Clip, correct, decay, and move the parameters along the gradient."""
        settings = self.settings
        w, gradient = self.model.values[:count, : self.model.size], self.model.gradient[:count]
        if settings.clip is not None:
            norm = gradient.norm(dim=1, keepdim=True)
            gradient.mul_((settings.clip / (norm + 1e-6)).clamp(max=1.0))
        if self.method.corrections:
            step = Step(
                w, self._anchor[:count], self.options, self._share[:count], self._remembered(count), {}
            )
            for correction in self.method.corrections:
                gradient.add_(correction(step))
        if settings.weight_decay:
            gradient.add_(w, alpha=settings.weight_decay)
        direction = gradient
        if settings.momentum:
            velocity = self._velocity[:count]
            velocity.mul_(settings.momentum).add_(gradient)
            direction = gradient.add_(velocity, alpha=settings.momentum) if settings.nesterov else velocity
        w.addcmul_(direction, self._lr, value=-1)

    def _differentiate(self, images: Tensor, labels: Tensor, first: bool) -> Tensor:
        """Leave the objective's gradient in row 0; return the loss, (1,)."""
        model = self.model
        model.gradient.zero_()
        with self._precision():
            # Ragged batches are not compiled: each size takes long, and a limited number is, the first seen.
            whole = len(images) == self.settings.batch_size
            logits = (self._compiled if whole else model.module)(images)
        memory = {name: self._memory[0, m] for m, name in enumerate(self.method.memory)}
        objective, loss = self._objective(
            model.parameters, self._anchor[0], self._share[0, 0], memory, logits, labels[0], first
        )
        objective.backward()
        return loss[None]

    def _differentiate_stack(self, images: Tensor, labels: Tensor, first: bool) -> Tensor:
        """Leave every client's gradient in its row; return the losses, (K,)."""
        model, count = self.model, len(labels)

        def objective(
            w: Tensor, buffers: list[Tensor], anchor: Tensor, share: Tensor, memory: Tensor,
            x: Tensor, y: Tensor, counters: Tensor,
        ) -> tuple[Tensor, Tensor]:  # fmt: skip
            with self._precision():
                logits = functional_call(model.module, model.tensors(w, buffers, counters), (x,))
            recalled = {name: memory[m] for m, name in enumerate(self.method.memory)}
            return self._objective(w, anchor, share[0], recalled, logits, y, first)

        kept = model.buffers(model.values[:count])
        buffers = [buffer.clone() for buffer in kept]  # each contiguous, as BatchNorm's update needs it
        gradients, losses = vmap(grad(objective, has_aux=True), in_dims=(*[0] * 7, None))(
            model.values[:count, : model.size], buffers, self._anchor[:count], self._share[:count],
            self._memory[:count], images.unflatten(0, labels.shape), labels, model.counters,
        )  # fmt: skip
        for place, buffer in zip(kept, buffers, strict=True):
            place.copy_(buffer)
        model.gradient[:count] = gradients
        return torch.as_tensor(losses)

    def _objective(
        self, w: Tensor, anchor: Tensor, share: Tensor, memory: Mapping[str, Tensor],
        logits: Tensor, labels: Tensor, first: bool,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        """Return one client's objective and its cross-entropy."""
        logits = logits.to(w.dtype)
        loss = cross_entropy(logits, labels)
        activations = {name: output.to(w.dtype) for name, output in self._activations.items()}
        step = Step(w, anchor, self.options, share, memory, activations, logits, first)
        objective = loss
        for term in self.method.task + self.method.anchored:
            objective = objective + term(step)
        return objective, loss.detach()

    def _remembered(self, count: int) -> dict[str, Tensor]:
        return {name: self._memory[:count, m] for m, name in enumerate(self.method.memory)}

    def _precision(self) -> torch.autocast:
        enabled = self.settings.precision == "bf16"
        return torch.autocast(self.model.values.device.type, torch.bfloat16, enabled=enabled)


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
