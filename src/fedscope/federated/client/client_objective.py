"""The gradient of what clients minimise: the task loss where ``gradient_at`` asks, and the parameters' terms.

One client is differentiated through its module, a stack by one batched computation of all its clients.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext

import torch
from torch import Tensor
from torch.func import functional_call, grad, vmap

from fedscope.federated.client.observations import Observations, joined
from fedscope.federated.client.state import ClientState
from fedscope.federated.client.traced import Function, Traced
from fedscope.federated.record.checked import MethodError, check_all_returned
from fedscope.federated.record.method import Method, TaskTerm
from fedscope.federated.record.network import Network, is_dense, pooled_first
from fedscope.federated.record.taps import tapped
from fedscope.federated.record.tasks import LocalSettings
from fedscope.federated.record.views import Batch, Draws, Pass
from fedscope.task_loss import TaskLoss


class Objective:
    """Differentiates the objective of clients in training; gradients go to ``model.gradient``.

    ``taken`` counts the gradients of the task loss that each client has computed. ``plain`` says that the
    network is of the catalogue, and does the same in every pass.
    """

    def __init__(
        self,
        clients: ClientState,
        method: Method,
        settings: LocalSettings,
        observed: Observations,
        loss: TaskLoss,
        *,
        plain: bool = False,
    ):
        self.model, self.clients, self.method = clients.model, clients, method
        self.observed, self._task_loss = observed, loss
        self.network = Network(self.model, settings.precision == "bf16", loss)
        module = self.model.module
        self._taps = {name: taps(module, clients.options) for name, taps in method.taps.items()}
        self._outputs: dict[str, Tensor] = {}
        self.taken = torch.zeros((), dtype=torch.int64, device=self.model.values.device)
        self.carried: set[str] = set()  # the step state that ``gradient_at`` returned
        self._whole = settings.batch_size
        reads_layers = method.taps or method.forward_context
        self._module = pooled_first(module) if plain and not reads_layers else module
        self._compiled = torch.compile(module, dynamic=False) if settings.compile else self._module
        fixed = not (method.task_terms or method.logits or method.ascent_loss or method.draws)
        fixed &= plain and is_dense(module) and loss.own is None
        on_cpu = self.model.values.device.type == "cpu"  # elsewhere the whole step is recorded
        self._traced = Traced(self._stacked({}, ascent=False)) if fixed and on_cpu else None

    @contextmanager
    def tapping(self) -> Iterator[None]:
        names = [name for names in self._taps.values() for name in names]
        with tapped(self.model.module, names) as self._outputs:
            yield

    def draw(self, images: Tensor, random: Mapping[str, torch.Generator]) -> Draws:
        options, module = self.clients.options, self.model.module
        return {name: draw(random[name], options, images, module) for name, draw in self.method.draws.items()}

    def differentiate(self, batch: Batch, drawn: Draws, *, first: bool) -> Tensor:
        """Leave the gradients of K clients in their rows; return their losses at w, (K,).

        ``batch`` has images (K·B, C, H, W) and labels (K, B), or sequences (K·B, T) and targets (K, B, T).
        """
        clients, count = self.clients, len(batch.labels)
        with torch.no_grad():
            if self.method.gradient_at is None:
                loss = self._task_gradient(batch, drawn)
            else:
                losses: list[Tensor] = []
                seen: list[tuple[Tensor, Tensor]] = []  # of an ascent step: at the parameters, and at its end
                at = clients.stack(count, first)

                def gradient(w: Tensor, *, keep_buffers: bool = False, ascent: bool = False) -> Tensor:
                    losses.append(self._away(w, batch, drawn, keep_buffers=keep_buffers, ascent=ascent))
                    found = self.model.gradient[:count].clone()
                    if not ascent and (seen or w is at.parameters):
                        seen.append((losses[-1], found))
                    return found

                found = self.method.gradient_at(gradient, at)
                found, state = found if isinstance(found, tuple) else (found, {})
                self.model.gradient[:count] = found
                clients.carry(state, count)
                self.carried = set(state)
                loss = losses[0]
                if len(seen) == 2:
                    self.observed.ascend(*zip(*seen, strict=True))
            for mapped in self.method.gradient_maps:
                own = self.model.gradient[:count]
                own.copy_(clients.where_shared(mapped(clients.stack(count, first, own.clone())), own))
        if self.method.parameter_terms:
            self._add_parameter_terms(count, first=first)
        self._outputs.clear()
        return loss

    def task(
        self, batch: Batch, drawn: Draws, *, ascent: bool = False
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Return the task loss, or the ascent's, of the client in row 0; its cross-entropy, and the notes."""
        model, method = self.model, self.method
        batch = Batch(model.typed(batch.images), batch.labels)
        if method.batch_transform:
            batch = method.batch_transform(batch, drawn, self.clients.options)
        # Ragged batches are not compiled: each size takes long, and a limited number is, the first seen.
        whole = len(batch.images) == self._whole
        run = method.forward_context(model.module, drawn) if method.forward_context else nullcontext()
        with self.network.precision(), run:
            logits = (self._compiled if whole else self._module)(batch.images)
        return self._loss(batch, logits, drawn, *self._row(0), ascent=ascent)

    def _row(self, row: int | slice) -> tuple[Tensor, ...]:
        clients = self.clients
        own = (clients.start, clients.remembered, clients.took_part_before, clients.label_counts)
        return tuple(rows[row] for rows in own)

    def _away(self, w: Tensor, batch: Batch, drawn: Draws, *, keep_buffers: bool, ascent: bool) -> Tensor:
        """Leave the gradients of the task loss at ``w`` (K, P); go back; return the losses there."""
        model, count = self.model, len(w)
        kept, counters = model.values[:count].clone(), model.counters.clone()
        model.values[:count, : model.size] = w
        losses = self._task_gradient(batch, drawn, ascent=ascent)
        model.values[:count, : model.size] = kept[:, : model.size]
        if keep_buffers:
            model.values[:count, model.size :] = kept[:, model.size :]
            model.counters.copy_(counters)
        return losses

    def _task_gradient(self, batch: Batch, drawn: Draws, *, ascent: bool = False) -> Tensor:
        """Leave the gradients of the task loss, or of the ascent's, where the clients are.

        Returns their cross-entropies, (K,).
        """
        self.taken += 1
        if len(self.model.values) > 1:
            return self._stack_gradient(batch, drawn, ascent=ascent)
        self.model.gradient.zero_()
        with torch.enable_grad():
            objective, (loss, notes) = self.task(Batch(batch.images, batch.labels[0]), drawn, ascent=ascent)
            objective.backward()
        self.observed.note(notes[None])
        return loss[None]

    def _stacked(self, drawn: Draws, *, ascent: bool) -> Function:
        model = self.model

        def objective(
            w: Tensor, buffers: list[Tensor], x: Tensor, y: Tensor, counters: Tensor, *row: Tensor
        ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
            with self.network.precision():
                logits = functional_call(model.module, model.tensors(w, buffers, counters), (x,))
            return self._loss(Batch(x, y), logits, drawn, *row, ascent=ascent)

        return vmap(grad(objective, has_aux=True), in_dims=(0, 0, 0, 0, None, 0, 0, 0, 0))

    def _stack_gradient(self, batch: Batch, drawn: Draws, *, ascent: bool) -> Tensor:
        model, count = self.model, len(batch.labels)
        kept = model.buffers(model.values[:count])
        buffers = [buffer.clone() for buffer in kept]  # each contiguous, as BatchNorm's update needs it
        images = batch.images.unflatten(0, batch.labels.shape[:2])
        differentiate = self._traced or self._stacked(drawn, ascent=ascent)
        gradients, (losses, notes) = differentiate(
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
        *,
        ascent: bool,
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        dtype, clients, method = self.model.values.dtype, self.clients, self.method
        if isinstance(logits, Tensor):  # the user's own loss may take anything else
            logits = logits.to(dtype)
        seen = logits
        for calibrated in method.logits:
            seen = calibrated(seen, label_counts, clients.options)
        objective = loss = self._task_loss_of(seen, batch)
        plain = self._task_loss_of(logits.detach(), batch) if method.logits else loss.detach()
        notes = dict[str, Tensor]()
        if method.task_terms or ascent:
            taps = {
                name: [self._outputs[module].to(dtype) for module in modules if module in self._outputs]
                for name, modules in self._taps.items()
            }
            recalled = clients.memory.split(memory)
            at = Pass(
                batch, logits, loss, taps, drawn, self.network, start, recalled, took_part_before[0],
                clients.options, label_counts, notes,
            )  # fmt: skip
            if ascent:
                return _ascent_loss(method)(at), (plain, plain.new_zeros(0))
            for term in method.task_terms:
                objective = objective + term(at)
        check_all_returned(method.name, "notes", method.notes, notes)
        return objective, (plain, joined(self.observed.noted, notes, loss).detach())

    def _task_loss_of(self, logits: Tensor, batch: Batch) -> Tensor:
        loss = self._task_loss(logits, batch.labels)
        if batch.mixed_labels is None:
            return loss
        other = self._task_loss(logits, batch.mixed_labels)
        return batch.mix_weight * loss + (1 - batch.mix_weight) * other

    def _add_parameter_terms(self, count: int, *, first: bool) -> None:
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


def _ascent_loss(method: Method) -> TaskTerm:
    if method.ascent_loss is None:
        raise MethodError(f"method {method.name}: gradient_at asks for ascent_loss, which is empty")
    return method.ascent_loss
