"""The gradient of what clients minimise: the task loss where ``gradient_at`` asks, and the parameters' terms.

One client is differentiated through its module, a stack by one batched computation of all its clients.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext

import torch
from torch import Tensor
from torch.func import functional_call, grad, vmap
from torch.nn.functional import cross_entropy

from fedscope.federated.client.observations import Observations, joined
from fedscope.federated.client.state import ClientState
from fedscope.federated.record.checked import check_all_returned
from fedscope.federated.record.method import Method
from fedscope.federated.record.network import Network
from fedscope.federated.record.taps import tapped
from fedscope.federated.record.tasks import LocalSettings
from fedscope.federated.record.views import Batch, Draws, Pass


class Objective:
    """Differentiates the objective of clients in training; gradients go to ``model.gradient``.

    ``taken`` counts the gradients of the task loss that each client has computed; ``observed`` gets what the
    steps show.
    """

    def __init__(self, clients: ClientState, method: Method, settings: LocalSettings, observed: Observations):
        self.model, self.clients, self.method = clients.model, clients, method
        self.observed = observed
        self.network = Network(self.model, settings.precision == "bf16")
        module = self.model.module
        self._taps = {name: taps(module, clients.options) for name, taps in method.taps.items()}
        self._outputs: dict[str, Tensor] = {}
        self.taken = torch.zeros((), dtype=torch.int64, device=self.model.values.device)
        self._whole = settings.batch_size
        self._compiled = torch.compile(module, dynamic=False) if settings.compile else module

    @contextmanager
    def tapping(self) -> Iterator[None]:
        """Read the outputs that the method's terms ask for, inside this context."""
        names = [name for names in self._taps.values() for name in names]
        with tapped(self.model.module, names) as self._outputs:
            yield

    def draw(self, images: Tensor, random: Mapping[str, torch.Generator]) -> Draws:
        """Return what the method draws for a mini-batch, by name."""
        options, module = self.clients.options, self.model.module
        return {name: draw(random[name], options, images, module) for name, draw in self.method.draws.items()}

    def differentiate(self, batch: Batch, drawn: Draws, *, first: bool) -> Tensor:
        """Leave the gradients of K clients in their rows; return their losses at w, (K,).

        ``batch`` has images (K·B, C, H, W) and labels (K, B).
        """
        clients, count = self.clients, len(batch.labels)
        with torch.no_grad():
            if self.method.gradient_at is None:
                loss = self._task_gradient(batch, drawn)
            else:
                losses: list[Tensor] = []
                found: list[Tensor] = []

                def gradient(w: Tensor, *, keep_buffers: bool = False) -> Tensor:
                    losses.append(self._away(w, batch, drawn, keep_buffers=keep_buffers))
                    found.append(self.model.gradient[:count].clone())
                    return found[-1]

                self.model.gradient[:count] = self.method.gradient_at(gradient, clients.stack(count, first))
                loss = losses[0]
                if len(found) == 2:
                    self.observed.ascend(losses, found)
        if self.method.parameter_terms:
            self._add_parameter_terms(count, first=first)
        self._outputs.clear()
        return loss

    def task(self, batch: Batch, drawn: Draws) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Return the task loss of the client in row 0 on its mini-batch; its cross-entropy, and the notes."""
        model, method = self.model, self.method
        batch = Batch(model.typed(batch.images), batch.labels)
        if method.batch_transform:
            batch = method.batch_transform(batch, drawn, self.clients.options)
        # Ragged batches are not compiled: each size takes long, and a limited number is, the first seen.
        whole = len(batch.images) == self._whole
        run = method.forward_context(model.module, drawn) if method.forward_context else nullcontext()
        with self.network.precision(), run:
            logits = (self._compiled if whole else model.module)(batch.images)
        return self._loss(batch, logits, drawn, *self._row(0))

    def _row(self, row: int | slice) -> tuple[Tensor, ...]:
        """Return a client's rows that task terms see besides its forward pass."""
        clients = self.clients
        own = (clients.start, clients.remembered, clients.took_part_before, clients.label_counts)
        return tuple(rows[row] for rows in own)

    def _away(self, w: Tensor, batch: Batch, drawn: Draws, *, keep_buffers: bool) -> Tensor:
        """Leave the gradients of the task loss at ``w`` (K, P); go back; return the losses there."""
        model, count = self.model, len(w)
        kept, counters = model.values[:count].clone(), model.counters.clone()
        model.values[:count, : model.size] = w
        losses = self._task_gradient(batch, drawn)
        model.values[:count, : model.size] = kept[:, : model.size]
        if keep_buffers:
            model.values[:count, model.size :] = kept[:, model.size :]
            model.counters.copy_(counters)
        return losses

    def _task_gradient(self, batch: Batch, drawn: Draws) -> Tensor:
        """Leave the gradients of the task loss where the clients are; return their cross-entropies, (K,)."""
        self.taken += 1
        if len(self.model.values) > 1:
            return self._stack_gradient(batch, drawn)
        self.model.gradient.zero_()
        with torch.enable_grad():
            objective, (loss, notes) = self.task(Batch(batch.images, batch.labels[0]), drawn)
            objective.backward()
        self.observed.note(notes[None])
        return loss[None]

    def _stack_gradient(self, batch: Batch, drawn: Draws) -> Tensor:
        model, count = self.model, len(batch.labels)

        def objective(
            w: Tensor, buffers: list[Tensor], x: Tensor, y: Tensor, counters: Tensor, *row: Tensor
        ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
            with self.network.precision():
                logits = functional_call(model.module, model.tensors(w, buffers, counters), (x,))
            return self._loss(Batch(x, y), logits, drawn, *row)

        kept = model.buffers(model.values[:count])
        buffers = [buffer.clone() for buffer in kept]  # each contiguous, as BatchNorm's update needs it
        images = batch.images.unflatten(0, batch.labels.shape)
        gradients, (losses, notes) = vmap(
            grad(objective, has_aux=True), in_dims=(0, 0, 0, 0, None, 0, 0, 0, 0)
        )(
            self.clients.parameters(count), buffers, images, batch.labels, model.counters,
            *self._row(slice(count)),
        )  # fmt: skip
        for place, buffer in zip(kept, buffers, strict=True):
            place.copy_(buffer)
        model.gradient[:count] = gradients
        self.observed.note(notes)
        return torch.as_tensor(losses)

    def _loss(
        self,
        batch: Batch,
        logits: Tensor,
        drawn: Draws,
        start: Tensor,
        memory: Tensor,
        took_part_before: Tensor,
        label_counts: Tensor,
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Return one client's task loss; its cross-entropy, and what the terms noted, side by side."""
        dtype, clients = self.model.values.dtype, self.clients
        logits = logits.to(dtype)
        loss = cross_entropy(logits, batch.labels)
        if batch.mixed_labels is not None:
            other = cross_entropy(logits, batch.mixed_labels)
            loss = batch.mix_weight * loss + (1 - batch.mix_weight) * other
        objective, notes = loss, dict[str, Tensor]()
        if self.method.task_terms:
            taps = {
                name: [self._outputs[module].to(dtype) for module in modules if module in self._outputs]
                for name, modules in self._taps.items()
            }
            recalled = clients.memory.split(memory)
            at = Pass(
                batch, logits, loss, taps, drawn, self.network, start, recalled, took_part_before[0],
                clients.options, label_counts, notes,
            )  # fmt: skip
            for term in self.method.task_terms:
                objective = objective + term(at)
        check_all_returned(self.method.name, "notes", self.method.notes, notes)
        return objective, (loss.detach(), joined(self.observed.noted, notes, loss).detach())

    def _add_parameter_terms(self, count: int, *, first: bool) -> None:
        """Add the gradient of the terms of the parameters to every row."""
        clients = self.clients

        def total(w: Tensor, *rows: Tensor) -> Tensor:
            step = clients.client(w, *rows, first=first)
            return torch.stack([term(step) for term in self.method.parameter_terms]).sum()

        if len(self.model.values) == 1:
            value = total(self.model.parameters, *(row[0] for row in clients.rows(1)))
            if value.requires_grad:  # as in a stack, a constant has a gradient of zero
                value.backward()
        else:
            gradients = vmap(grad(total))(clients.parameters(count), *clients.rows(count))
            self.model.gradient[:count] += gradients
