"""The one local loop: from the model that a client receives to the one that it sends back.

Everything after the backward pass works on flat vectors, so its cost in Python does not grow with the
network. Clients of equal size may be trained as a stack: the same steps on (K, P) vectors.
"""

import math
from collections.abc import Mapping, Sequence
from contextlib import nullcontext

import torch
from torch import Tensor

from fedscope.data.augment import Pipeline
from fedscope.data.loading.datasets import Split
from fedscope.federated.client.client_objective import Objective
from fedscope.federated.client.clock import PhaseClock
from fedscope.federated.client.cuda_graphs import Replay
from fedscope.federated.client.observations import Observations
from fedscope.federated.client.optimizers import optimizer
from fedscope.federated.client.recalibration import STREAM, recalibrate
from fedscope.federated.client.state import ClientState
from fedscope.federated.record.checked import check_all_returned
from fedscope.federated.record.flat import FlatModel
from fedscope.federated.record.method import Method
from fedscope.federated.record.options import Values
from fedscope.federated.record.tasks import Client, LocalSettings, Task, Trained
from fedscope.federated.record.vectors import RowLayout
from fedscope.federated.record.views import Batch, Finish
from fedscope.streams import seeded


class LocalTrainer:
    """Trains stacks of equally large clients; holds the vectors, and on a GPU the recorded steps, in between.

    ``draws`` says that the network may draw from the global generators, which are set for each stack then.
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
        clock: PhaseClock | None = None,
        *,
        lr: float = 1.0,
        mean_samples: float = 1.0,
        draws: bool = False,
        classes: int = 0,
    ):
        self.model, self.split, self.pipeline = model, split, pipeline
        self.method, self.options, self.settings = method, options, settings
        self.clock = clock or PhaseClock()
        self.initial_lr, self.mean_samples, self._seeded = lr, mean_samples, draws
        self.optimizer = optimizer(settings, model.values, model.size)
        kept = self.optimizer.vectors if settings.optimizer_state == "client" else ()
        self._kept = RowLayout(kept, model.size, model.size)  # of the optimizer's state, between two rounds
        self.clients = ClientState(model, method, options, kept, classes)
        noted = {name: labels(model.module, options) for name, labels in method.notes.items()}
        self.observed = Observations(model.values, len(model.values), noted)
        self.objective = Objective(
            self.clients, method, settings, self.observed, split.task_loss, plain=not draws
        )
        self._inside: list[tuple[Tensor, Tensor]] = []  # models and counters after steps that are kept
        self._loss = torch.zeros(len(model.values), dtype=torch.float64, device=model.values.device)
        self._clip = settings.clip
        if self._clip is None and method.default_clip is not None:
            self._clip = float(options[method.default_clip]) or None
        changed = (
            model.values,
            model.counters,
            self.optimizer.state,
            self._loss,
            self.objective.taken,
            self.observed.values,
            self.clients.carried,
            *([] if self.clients.last_gradient is None else [self.clients.last_gradient]),
        )
        # What is drawn, what is read on the CPU, and a user's own loss cannot be recorded.
        fixed = not method.draws and isinstance(split.images, Tensor) and split.loss is None
        recorded = model.values.device.type == "cuda" and fixed
        self._run = Replay(self._step, changed) if recorded else self._step

    def train(self, start: Tensor, counters: Tensor, tasks: Sequence[Task], lr: float) -> Trained:
        """Train K clients of one size and work from ``start`` (P+Q,) at rate ``lr``; none of it is kept."""
        model, clients, count = self.model, self.clients, len(tasks)
        if len({(len(task.rows), task.work) for task in tasks}) != 1 or count > len(model.values):
            raise ValueError("a stack is clients of one size and work, at most as many as the model has rows")
        model.module.train()
        model.counters.copy_(counters)
        self.objective.taken.zero_()
        self.observed.values.zero_()
        self._inside = []
        clients.load(tasks, start, lr, self.split.labels)
        self.optimizer.state.zero_()
        if self._kept.names:
            remembered = clients.memory.split(clients.remembered[:count])
            self.optimizer.state[:count] = self._kept.join(remembered, count)
        rows = torch.stack([task.rows for task in tasks])
        random = {name: tasks[0].random(name) for name in self.method.draws}  # who draws trains alone
        # What a network draws itself, as for dropout, comes from the global generators.
        drawing = seeded(tasks[0].random("network").initial_seed()) if self._seeded else nullcontext()
        with self.objective.tapping(), drawing:
            most = self.steps(rows.shape[1], tasks[0].work)
            for left in range(most, 0, -self.settings.steps(rows.shape[1])):
                samples = self._epoch(rows, tasks, random, left, lr, first=left == most)
        self.clock.switch_to("compute")
        with torch.no_grad():
            done = self._finish(tasks, lr)
        accuracy = self._recalibrated(tasks)
        if self.method.personal:  # as it is sent, with what was re-estimated
            done["personal"] = model.values[:count, clients.personal]
        return Trained(
            model.values[:count].clone(),
            clients.memory.join(done, count),
            clients.uploads.join(done, count),
            model.counters.clone(),
            self._loss[:count] / samples,
            torch.full_like(self._loss[:count], accuracy),
            self.objective.taken.expand(count).clone(),
            self.observed.values[:count].clone(),
            *self._kept_inside(),
        )

    @property
    def clips(self) -> bool:
        return self._clip is not None

    def steps(self, samples: float, work: int | None = None) -> int:
        """Return the local steps τ_k of a client of ``samples`` in a round."""
        settings, equal = self.settings, self.method.equal_steps
        counted = self.mean_samples if equal and equal(self.options) else samples
        return settings.round_steps(counted, work)

    def _recalibrated(self, tasks: Sequence[Task]) -> float:
        """Return the training accuracy of the one client after recalibration, NaN without."""
        chosen = self.method.recalibration(self.options) if self.method.recalibration else "off"
        if chosen == "off":
            return math.nan
        (task,) = tasks  # methods that recalibrate train their clients one by one
        return recalibrate(
            self.model, self.split, self.pipeline, task.rows, self.settings.batch_size,
            task.random(STREAM), keep=chosen == "upload",
        )  # fmt: skip

    def _finish(self, tasks: Sequence[Task], lr: float) -> dict[str, Tensor]:
        """Return the vectors that the clients remember and send from now on, each (K, size)."""
        count, settings, samples = len(tasks), self.settings, len(tasks[0].rows)
        steps = self.steps(samples, tasks[0].work)
        mean_rate = self.method.mean_rate(self.options, steps)
        model, clients = self.model, self.clients
        done = {name: v.clone() for name, v in clients.memory.split(clients.remembered[:count]).items()}

        def client(row: int) -> Client:
            rows = tasks[row].rows

            def inputs(part: slice) -> Tensor:
                return model.typed(self.pipeline.test(self.split.images, rows[part]))

            return Client(self.split.wanted[rows], inputs, tasks[row].random)

        end = Finish(
            parameters=clients.where_shared(clients.parameters(count), clients.anchor(count)),
            anchor=clients.anchor(count),
            memory=clients.memory.split(clients.remembered[:count]),
            received=clients.broadcast.split(clients.received),
            options=self.options,
            relative_size=clients.relative_size[:count],
            weight=settings.weight(samples),
            steps=steps,
            nominal_steps=settings.round_steps(self.mean_samples),
            lr=lr * mean_rate,
            initial_lr=self.initial_lr * mean_rate,
            momentum=settings.momentum,
            nesterov=settings.nesterov,
            batch_size=settings.batch_size,
            values=model.values[:count],
            start=clients.start[:count],
            network=self.objective.network,
            client=client,
            state=clients.step_state.split(clients.carried[:count]),
            label_counts=clients.label_counts[:count],
            tensors=model.named,
        )
        changed = {"personal": done["personal"]} if self.method.personal else {}
        for finish in self.method.finish:
            changed |= finish(end)
        for field in ("memory", "uploads"):
            names = [vector.name for vector in getattr(self.method, field)]
            check_all_returned(self.method.name, field, names, changed)
        done |= clients.shared_vectors((*self.method.memory, *self.method.uploads), changed)
        return done | self._kept.split(self.optimizer.state[:count, : self._kept.width])

    def _epoch(
        self,
        rows: Tensor,
        tasks: Sequence[Task],
        random: Mapping[str, torch.Generator],
        most: int,
        lr: float,
        *,
        first: bool,
    ) -> int:
        """Take at most ``most`` steps, those of an epoch; return how many samples they used."""
        self.clock.switch_to("data")
        count, used = rows.shape[1], self.settings.used(rows.shape[1])
        shuffles = torch.stack([torch.randperm(count, generator=task.order) for task in tasks])
        draws = torch.stack([self.pipeline.draw(count, task.augmentation) for task in tasks], 1)
        self.clock.switch_to("compute")  # on a GPU the copies wait for the epoch before
        used = min(used, most * self.settings.batch_size)
        order, draws = rows.gather(1, shuffles.to(rows.device))[:, :used], draws.to(rows.device)[..., :used]
        self._loss.zero_()
        size = self.settings.batch_size
        batches = list(zip(order.split(size, 1), draws.split(size, 2), strict=True))
        total = self.steps(count, tasks[0].work)
        for index, (batch, drawn) in enumerate(self.pipeline.ahead(self.split.images, batches)):
            if self.method.local_rate:
                self.clients.lr.fill_(
                    lr * self.method.local_rate((total - most + index) / total, self.options)
                )
            self._run(batch, drawn, flag=index == 0, **({"random": random} if random else {}))
            self._keep(tasks, total - most + index + 1)
            if first and index == 0:
                self.observed.set("before", self._loss[: len(tasks)] / batch.shape[1])
        if first:
            self.observed.set("first_epoch", self._loss[: len(tasks)] / used)
        return used

    def _keep(self, tasks: Sequence[Task], step: int) -> None:
        for row, task in enumerate(tasks):
            if step in task.keep:
                model = self.model
                self._inside.append((model.values[row].to("cpu", copy=True), model.counters.cpu().clone()))

    def _kept_inside(self) -> tuple[Tensor, Tensor]:
        if not self._inside:
            model = self.model
            return model.values.new_zeros(0, model.values.shape[1]), model.counters.new_zeros(
                0, len(model.counters)
            )
        models, counters = zip(*self._inside, strict=True)
        return torch.stack(models), torch.stack(counters)

    def _step(
        self, rows: Tensor, draws: Tensor, flag: bool, random: Mapping[str, torch.Generator] | None = None
    ) -> None:
        """Take one local step of every client on ``rows`` (K, B), augmented by ``draws`` (D, K, B)."""
        self.clock.switch_to("data")
        images, wanted = self.split.batch(self.pipeline, rows, draws)
        images = self.model.arranged(images)
        drawn = self.objective.draw(images, random or {})
        self.clock.switch_to("compute")
        loss = self.objective.differentiate(Batch(images, wanted), drawn, first=flag)
        with torch.no_grad():
            self._loss[: len(rows)] += loss * rows.shape[1]
            self._descend(len(rows), flag)

    def _descend(self, count: int, first: bool) -> None:
        method, clients = self.method, self.clients
        w, gradient = clients.parameters(count), self.model.gradient[:count]
        if self._clip is not None:
            norm = gradient.norm(dim=1, keepdim=True)
            scale = (self._clip / (norm + 1e-6)).clamp(max=1.0)
            gradient.mul_(scale)
            self.observed.clip(scale)
        if clients.last_gradient is not None:
            clients.last_gradient[:count] = gradient
        carried = set(self.objective.carried)
        for rule in method.each_step:
            changed = rule(clients.stack(count, first, gradient))
            clients.carry(changed, count)
            carried |= changed.keys()
        check_all_returned(method.name, "step_state", clients.step_state.names, carried)
        at = clients.stack(count, first, gradient) if method.after_clip or method.after_momentum else None
        if at:
            for correction in method.after_clip:
                gradient.add_(clients.masked(correction(at)))
        direction = self.optimizer.direction(w, gradient, clients.lr)
        if at:
            for displacement in method.after_momentum:
                direction = direction + clients.masked(displacement(at))
        w.addcmul_(direction, clients.lr, value=-1)
