"""The one local loop: what a client does between receiving a model and sending it back.

Per mini-batch: the method's transform, forward in train mode, mean cross-entropy and the task terms, their
gradient where the method's oracle wants it; the gradient of the terms of the parameters; one global-norm
clip; corrections; SGD with weight decay after the clip. Everything after the backward pass works on flat
vectors, so its cost in Python does not grow with the network. Clients of equal size may be trained as a
stack: the same steps on (K, P) vectors, with one batched forward and backward pass for all K.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from torch.func import functional_call, grad, vmap
from torch.nn.functional import cross_entropy

from fedscope.data.augment import Pipeline
from fedscope.data.datasets import Split
from fedscope.federated.clock import Clock
from fedscope.federated.flat import FlatModel
from fedscope.federated.graphs import Replay
from fedscope.federated.method import Batch, Client, Finish, Method, Pass, Step
from fedscope.federated.network import Network
from fedscope.federated.options import Values, Weights
from fedscope.federated.taps import tapped
from fedscope.federated.vectors import Layout, Vector


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
    drop_last: bool = False
    weights: Weights = "n_k"
    optimizer_state: Literal["round", "client"] = "round"

    def steps(self, samples: float) -> int:
        """Return the local steps of one epoch over ``samples``; fewer than a batch make one step."""
        whole = int(samples // self.batch_size)
        return max(1, whole) if self.drop_last else -int(-samples // self.batch_size)

    def used(self, samples: int) -> int:
        """Return how many of ``samples`` an epoch uses: whole batches under ``drop_last``, or all."""
        return min(samples, self.steps(samples) * self.batch_size)


def _no_stream(name: str) -> torch.Generator:
    raise ValueError(f"the method draws from {name!r}: give the task its random streams")


@dataclass(frozen=True)
class Task:
    """One client's part in a round: its rows, random streams, share n_k·N/n, and what it remembers."""

    rows: Tensor  # (n_k,) int64
    order: torch.Generator
    augmentation: torch.Generator
    share: float = 1.0
    memory: Tensor | None = None  # (M,), the row of its vectors; None: never sampled before
    previous: bool = False  # whether it also took part in the round before
    random: Callable[[str], torch.Generator] = _no_stream  # the method's own streams
    initial: Tensor | None = None  # (P+Q,): where its memory begins, if not at the run's first model


@dataclass(frozen=True)
class Trained:
    """What K clients of a stack send back."""

    values: Tensor  # (K, P+Q): w_k and the floating buffers
    memory: Tensor  # (K, M)
    uploads: Tensor  # (K, U)
    counters: Tensor  # (n,) int64: the integer buffers
    loss: Tensor  # (K,) float64: cross-entropy alone, mean over the last local epoch


class LocalTrainer:
    """Trains stacks of equally large clients; holds the vectors, and on a GPU the recorded steps, in between.

    ``model``'s rows are overwritten. ``split`` lies on the model's device. ``lr`` is the first round's rate,
    ``mean_samples`` the mean client's n/N: the references of the nominal step count.
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
        *,
        lr: float = 1.0,
        mean_samples: float = 1.0,
    ):
        self.model, self.split, self.pipeline = model, split, pipeline
        self.method, self.options, self.settings = method, options, settings
        self.clock = clock or Clock()
        self.initial_lr, self.mean_samples = lr, mean_samples
        stack, (size, width) = len(model.values), (model.size, model.values.shape[1])
        new = model.values.new_zeros
        own = method.personal(model.module, options) if method.personal else []
        self.personal = model.mask(own).nonzero()[:, 0]  # places of the numbers that stay with a client

        def layout(vectors: Sequence[Vector]) -> Layout:
            return Layout(vectors, size, width, len(self.personal))

        self._keeps_velocity = settings.momentum > 0 and settings.optimizer_state == "client"
        velocity = (Vector("velocity"),) if self._keeps_velocity else ()
        self.memory, self.uploads = layout((*method.memory, *velocity)), layout(method.uploads)
        self.network = Network(model, settings.precision == "bf16")
        self.initial = model.values[0].clone()  # the run's first model
        self.broadcast = layout([v for v in method.server_state if v.name in method.broadcast])
        self.received = new(self.broadcast.width)
        self._start, self._velocity = new(stack, width), new(stack, size if settings.momentum else 0)
        self._memory = new(stack, self.memory.width)
        self._share, self._seen, self._previous = new(stack, 1), new(stack, 1), new(stack, 1)
        self._lr = new(())
        self._stale = new(stack, size) if method.stale else None
        self._loss = torch.zeros(stack, dtype=torch.float64, device=model.values.device)
        self._taps = {name: taps(model.module, options) for name, taps in method.taps.items()}
        self._outputs: dict[str, Tensor] = {}
        self._masks = {
            name: model.mask(choose(model.module, options))[:size].to(model.values.dtype)
            for name, choose in method.masks.items()
        }
        self._shared = None  # which parameters the method's vectors act on; None: all
        if options.get("fedbn.reg_scope") == "shared":
            self._shared = ~model.mask(own)[:size]
        self._clip = settings.clip
        if self._clip is None and method.clip is not None:
            self._clip = float(options[method.clip]) or None
        self._compiled = torch.compile(model.module, dynamic=False) if settings.compile else model.module
        changed = (model.values, model.counters, self._velocity, self._loss)
        on_gpu = model.values.device.type == "cuda" and not method.draws  # what is drawn cannot be recorded
        self._run = Replay(self._step, changed) if on_gpu else self._step

    def train(self, start: Tensor, counters: Tensor, tasks: Sequence[Task], lr: float) -> Trained:
        """Train K clients of one size from ``start`` (P+Q,) at rate ``lr`` and keep nothing of them."""
        model, count = self.model, len(tasks)
        if len({len(task.rows) for task in tasks}) != 1 or count > len(model.values):
            raise ValueError("a stack is clients of one size, at most as many as the model has rows")
        model.module.train()
        model.counters.copy_(counters)
        self._lr.fill_(lr)
        self._velocity.zero_()
        if self._stale is not None:
            self._stale.zero_()
        for row, task in enumerate(tasks):
            self._share[row], self._seen[row] = task.share, task.memory is not None
            self._previous[row] = task.previous
            self._memory[row] = self._fresh(task) if task.memory is None else task.memory
            if self._keeps_velocity:
                self._velocity[row] = self.memory.split(self._memory[row])["velocity"]
            self._start[row] = start
            if len(self.personal) and task.memory is not None:
                self._start[row, self.personal] = self.memory.split(self._memory[row])["personal"]
        model.values[:count] = self._start[:count]
        rows = torch.stack([task.rows for task in tasks])
        randoms = [{name: task.random(name) for name in self.method.draws} for task in tasks]
        with self.tapping():
            for _ in range(self.settings.epochs):
                self._epoch(rows, tasks, randoms[0])
        self.clock.enter("compute")
        done = self._finish(tasks, lr)
        memory = self._memory[:count].clone()
        if self.method.personal:
            done["personal"] = model.values[:count, self.personal]
        if self._keeps_velocity:
            done["velocity"] = self._velocity[:count]
        if self.memory.names:
            memory = self.memory.join({**self.memory.split(memory), **done})
        return Trained(
            model.values[:count].clone(),
            memory,
            self.uploads.join(done) if self.uploads.names else memory.new_zeros(count, 0),
            model.counters.clone(),
            self._loss[:count] / self.settings.used(rows.shape[1]),
        )

    def _fresh(self, task: Task) -> Tensor:
        return self.memory.fresh(self.initial if task.initial is None else task.initial)

    def _finish(self, tasks: Sequence[Task], lr: float) -> dict[str, Tensor]:
        """Return what the method's ``finish`` makes of the trained clients: each vector (K, size)."""
        if not self.method.finish:
            return {}
        count, settings, samples = len(tasks), self.settings, len(tasks[0].rows)
        weight = {"n_k": samples, "n_used": settings.used(samples), "uniform": 1}[settings.weights]

        def client(row: int) -> Client:
            rows = tasks[row].rows
            images = self.pipeline.test(self.split.images[rows]).to(self.model.values.dtype)
            return Client(images, self.split.labels[rows], tasks[row].random)

        with torch.no_grad():
            end = Finish(
                parameters=self._acting(self.model.values[:count, : self.model.size]),
                anchor=self._anchor(count),
                memory=self.memory.split(self._memory[:count]),
                received=self.broadcast.split(self.received),
                options=self.options,
                share=self._share[:count],
                weight=weight,
                steps=settings.epochs * settings.steps(samples),
                nominal_steps=settings.epochs * settings.steps(self.mean_samples),
                lr=lr,
                initial_lr=self.initial_lr,
                momentum=settings.momentum,
                nesterov=settings.nesterov,
                batch_size=settings.batch_size,
                values=self.model.values[:count],
                start=self._start[:count],
                network=self.network,
                client=client,
            )
            return {name: vector for finish in self.method.finish for name, vector in finish(end).items()}

    def _anchor(self, count: int) -> Tensor:
        return self._start[:count, : self.model.size]

    def _acting(self, w: Tensor) -> Tensor:
        """Return the parameters as the method's vectors see them: personal ones as if they had not moved."""
        return w if self._shared is None else torch.where(self._shared, w, self._anchor(len(w)))

    def _epoch(self, rows: Tensor, tasks: Sequence[Task], random: Mapping[str, torch.Generator]) -> None:
        self.clock.enter("data")
        count, used = rows.shape[1], self.settings.used(rows.shape[1])
        shuffles = torch.stack([torch.randperm(count, generator=task.order) for task in tasks])
        draws = torch.stack([self.pipeline.draw(count, task.augmentation) for task in tasks], 1)
        self.clock.enter("compute")  # on a GPU the copies wait for the epoch before
        order, draws = rows.gather(1, shuffles.to(rows.device))[:, :used], draws.to(rows.device)[..., :used]
        self._loss.zero_()
        size = self.settings.batch_size
        for index, (batch, drawn) in enumerate(zip(order.split(size, 1), draws.split(size, 2), strict=True)):
            self._run(batch, drawn, flag=index == 0, **({"random": random} if random else {}))

    @contextmanager
    def tapping(self) -> Iterator[None]:
        """Read the outputs that the method's terms ask for, inside this context."""
        names = [name for names in self._taps.values() for name in names]
        with tapped(self.model.module, names) as self._outputs:
            yield

    def draw(self, images: Tensor, random: Mapping[str, torch.Generator]) -> dict[str, Any]:
        """Return what the method draws for a mini-batch, by name."""
        draws, module = self.method.draws, self.model.module
        return {name: draw(random[name], self.options, images, module) for name, draw in draws.items()}

    def _step(
        self, rows: Tensor, draws: Tensor, flag: bool, random: Mapping[str, torch.Generator] | None = None
    ) -> None:
        """Take one local step of every client on ``rows`` (K, B), augmented by ``draws`` (D, K, B)."""
        self.clock.enter("data")
        images = self.pipeline.train(self.split.images[rows.flatten()], draws.flatten(1))
        images = images.contiguous(memory_format=torch.channels_last)
        drawn = self.draw(images, random or {})
        self.clock.enter("compute")
        loss = self._differentiate(Batch(images, self.split.labels[rows]), drawn, flag)
        with torch.no_grad():
            self._loss[: len(rows)] += loss * rows.shape[1]
            self._descend(len(rows), flag)
        self._outputs.clear()

    def _descend(self, count: int, first: bool) -> None:
        """Clip, correct, decay, and move the parameters along the gradient."""
        settings, method = self.settings, self.method
        w, gradient = self.model.values[:count, : self.model.size], self.model.gradient[:count]
        if self._clip is not None:
            norm = gradient.norm(dim=1, keepdim=True)
            gradient.mul_((self._clip / (norm + 1e-6)).clamp(max=1.0))
        if self._stale is not None:
            self._stale[:count] = gradient
        at = self._at(count, first) if method.corrections or method.displaced else None
        if at:
            for correction in method.corrections:
                gradient.add_(self._masked(correction(at)))
        if settings.weight_decay:
            gradient.add_(w, alpha=settings.weight_decay)
        direction = gradient
        if settings.momentum:
            velocity = self._velocity[:count]
            velocity.mul_(settings.momentum).add_(gradient)
            direction = gradient.add_(velocity, alpha=settings.momentum) if settings.nesterov else velocity
        if at:
            for displacement in method.displaced:
                direction = direction + self._masked(displacement(at))
        w.addcmul_(direction, self._lr, value=-1)

    def _masked(self, vector: Tensor) -> Tensor:
        return vector if self._shared is None else vector * self._shared

    def _at(self, count: int, first: bool) -> Step:
        """Return what an oracle or a correction sees of the stack."""
        return Step(
            self.model.values[:count, : self.model.size], self._anchor(count), self.options,
            self._share[:count], self._lr, self.memory.split(self._memory[:count]),
            self.broadcast.split(self.received), self._masks, self._previous[:count],
            None if self._stale is None else self._stale[:count], first,
        )  # fmt: skip

    def _differentiate(self, batch: Batch, drawn: Mapping[str, Any], first: bool) -> Tensor:
        """Leave the objective's gradient in ``model.gradient``; return the losses at w, (K,)."""
        method, model = self.method, self.model
        count = len(batch.labels)
        one = self._task_stack if len(model.values) > 1 else self._task
        if method.oracle is None:
            loss = one(batch, drawn)
        else:
            losses: list[Tensor] = []

            def gradient(w: Tensor, *, keep_buffers: bool = False) -> Tensor:
                """Return the task loss's gradient at ``w`` (K, P), of the same mini-batch and draws."""
                kept, counters = model.values[:count].clone(), model.counters.clone()
                model.values[:count, : model.size] = w
                losses.append(one(batch, drawn))
                model.values[:count, : model.size] = kept[:, : model.size]
                if keep_buffers:
                    model.values[:count, model.size :] = kept[:, model.size :]
                    model.counters.copy_(counters)
                return model.gradient[:count].clone()

            model.gradient[:count] = method.oracle(gradient, self._at(count, first))
            loss = losses[0]
        if method.anchored:
            self._add_anchored(count, first)
        return loss.detach()

    def _task(self, batch: Batch, drawn: Mapping[str, Any]) -> Tensor:
        """Leave the gradient of the task loss in row 0; return its cross-entropy, (1,)."""
        self.model.gradient.zero_()
        objective, loss = self.task(Batch(batch.images, batch.labels[0]), drawn)
        objective.backward()
        return loss[None]

    def task(self, batch: Batch, drawn: Mapping[str, Any]) -> tuple[Tensor, Tensor]:
        """Return the task loss of the client in row 0 on a mini-batch, and its cross-entropy."""
        model, method = self.model, self.method
        batch = Batch(batch.images.to(model.values.dtype), batch.labels)
        if method.transform:
            batch = method.transform(batch, drawn, self.options)
        # Ragged batches are not compiled: each size takes long, and a limited number is, the first seen.
        whole = len(batch.images) == self.settings.batch_size
        run = method.strategy(model.module, drawn) if method.strategy else nullcontext()
        with self.network.precision(), run:
            logits = (self._compiled if whole else model.module)(batch.images)
        return self._objective(batch, logits, drawn, 0)

    def _task_stack(self, batch: Batch, drawn: Mapping[str, Any]) -> Tensor:
        """Leave the gradient of every client's task loss in its row; return their cross-entropies, (K,)."""
        model, count = self.model, len(batch.labels)

        def objective(
            w: Tensor, buffers: list[Tensor], x: Tensor, y: Tensor, counters: Tensor
        ) -> tuple[Tensor, Tensor]:
            with self.network.precision():
                logits = functional_call(model.module, model.tensors(w, buffers, counters), (x,))
            return self._objective(Batch(x, y), logits, drawn, 0)

        kept = model.buffers(model.values[:count])
        buffers = [buffer.clone() for buffer in kept]  # each contiguous, as BatchNorm's update needs it
        images = batch.images.unflatten(0, batch.labels.shape)
        gradients, losses = vmap(grad(objective, has_aux=True), in_dims=(0, 0, 0, 0, None))(
            model.values[:count, : model.size], buffers, images, batch.labels, model.counters
        )
        for place, buffer in zip(kept, buffers, strict=True):
            place.copy_(buffer)
        model.gradient[:count] = gradients
        return torch.as_tensor(losses)

    def _objective(
        self, batch: Batch, logits: Tensor, drawn: Mapping[str, Any], row: int
    ) -> tuple[Tensor, Tensor]:
        """Return one client's task loss and its cross-entropy."""
        dtype = self.model.values.dtype
        logits = logits.to(dtype)
        loss = cross_entropy(logits, batch.labels)
        if batch.others is not None:
            loss = batch.share * loss + (1 - batch.share) * cross_entropy(logits, batch.others)
        objective = loss
        if self.method.task:
            taps = {
                name: [self._outputs[module].to(dtype) for module in modules if module in self._outputs]
                for name, modules in self._taps.items()
            }
            memory = self.memory.split(self._memory[row])
            seen = Pass(
                batch, logits, loss, taps, drawn, self.network, self._start[row], memory,
                self._seen[row, 0], self.options,
            )  # fmt: skip
            for term in self.method.task:
                objective = objective + term(seen)
        return objective, loss.detach()

    def _add_anchored(self, count: int, first: bool) -> None:
        """Add the gradient of the terms of the parameters to every row."""

        def total(w: Tensor, anchor: Tensor, share: Tensor, memory: Tensor, previous: Tensor) -> Tensor:
            acting = w if self._shared is None else torch.where(self._shared, w, anchor)
            step = Step(
                acting, anchor, self.options, share[0], self._lr, self.memory.split(memory),
                self.broadcast.split(self.received), self._masks, previous[0], None, first,
            )  # fmt: skip
            return torch.stack([term(step) for term in self.method.anchored]).sum()

        parts = (self._anchor(count), self._share[:count], self._memory[:count], self._previous[:count])
        if len(self.model.values) == 1:
            total(self.model.parameters, *(part[0] for part in parts)).backward()
        else:
            w = self.model.values[:count, : self.model.size]
            self.model.gradient[:count] += vmap(grad(total))(w, *parts)
