"""The state of clients in training: the vectors that a method's functions see beside the network's own."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from fedscope.federated.record.flat import FlatModel
from fedscope.federated.record.method import Method
from fedscope.federated.record.options import Values
from fedscope.federated.record.tasks import Task
from fedscope.federated.record.vectors import RowLayout, Vector
from fedscope.federated.record.views import Stack, Term


class ClientState:
    """The rows of up to ``len(model.values)`` clients in training: where they started, what they remember.

    The tensors stay where they are, for recorded steps. ``further`` are vectors that clients remember
    besides the method's.
    """

    def __init__(
        self,
        model: FlatModel,
        method: Method,
        options: Values,
        further: Sequence[Vector] = (),
        classes: int = 0,
    ):
        self.model, self.options = model, options
        stack, (size, width) = len(model.values), (model.size, model.values.shape[1])
        own = method.personal(model.module, options) if method.personal else []
        self.personal = model.positions(own)  # places of the numbers that stay with a client

        def layout(vectors: Sequence[Vector]) -> RowLayout:
            return RowLayout(vectors, size, width, len(self.personal))

        self.memory, self.uploads = layout((*method.memory, *further)), layout(method.uploads)
        self.step_state = layout(method.step_state)
        self.broadcast = layout([v for v in method.server_state if v.name in method.broadcast])
        new = model.values.new_zeros
        self.initial = model.values[0].clone()  # the run's first model
        self.received = new(self.broadcast.width)
        self.start = new(stack, width)
        self.remembered = new(stack, self.memory.width)
        self.relative_size = new(stack, 1)
        self.took_part_before, self.took_part_last_round = new(stack, 1), new(stack, 1)
        self.lr = new(())
        self.carried = new(stack, self.step_state.width)  # the step state
        self.label_counts = new(stack, classes if method.label_counts else 0)
        self.last_gradient = new(stack, size) if method.last_gradient else None
        self._masks = {
            name: model.mask(choose(model.module, options))[:size].to(model.values.dtype)
            for name, choose in method.masks.items()
        }
        self._models = [v.name for v in method.memory if v.scope == "parameters" and v.start != "zero"]
        self._shared = None  # which parameters the method's vectors act on; None: all
        if method.personal and not (method.terms_see_personal and method.terms_see_personal(options)):
            self._shared = ~model.mask(own)[:size]

    def load(self, tasks: Sequence[Task], start: Tensor, lr: float, labels: Tensor) -> None:
        """Place clients that received ``start`` (P+Q,) in the first rows; ``labels`` are of all samples."""
        self.lr.fill_(lr)
        if self.last_gradient is not None:
            self.last_gradient.zero_()
        self.carried.copy_(self.step_state.initial_row(self.initial))
        count, classes = len(tasks), self.label_counts.shape[1]
        numbers = [(t.relative_size, t.memory is not None, t.took_part_last_round) for t in tasks]
        columns = torch.tensor(numbers, dtype=self.start.dtype).split(1, 1)
        for place, column in zip(
            (self.relative_size, self.took_part_before, self.took_part_last_round), columns, strict=True
        ):
            place[:count] = column
        self.start[:count] = start
        for row, task in enumerate(tasks) if self.memory.width or classes else ():
            if classes:
                self.label_counts[row] = torch.bincount(labels[task.rows], minlength=classes)
            if task.memory is None:
                self.remembered[row] = self.memory.initial_row(self.initial, task.initial())
            else:
                self.remembered[row] = task.memory
                if len(self.personal):
                    self.start[row, self.personal] = self.memory.split(self.remembered[row])["personal"]
        for name in self._models:  # whose difference to θ_t is zero at personal parameters, as steps are
            remembered = self.memory.split(self.remembered[:count])[name]
            remembered.copy_(self.where_shared(remembered, self.anchor(count)))
        self.model.values[:count] = self.start[:count]

    def further(self, layout: RowLayout) -> int:
        """Return how many numbers of ``layout`` are sent beyond the model, personal ones left out."""
        own = 0 if self._shared is None else int((~self._shared).sum())
        vectors = zip(layout.vectors, layout.sizes, strict=True)
        return sum(size - own * (v.scope == "parameters") for v, size in vectors if not v.replaces_model)

    def parameters(self, count: int) -> Tensor:
        return self.model.values[:count, : self.model.size]

    def anchor(self, count: int) -> Tensor:
        """Return θ_t, as the first ``count`` clients received it, a view (count, P)."""
        return self.start[:count, : self.model.size]

    def where_shared(self, new: Tensor, old: Tensor) -> Tensor:
        """Return new parameters, or a new gradient, as far as the method acts: the old at personal ones."""
        return new if self._shared is None else torch.where(self._shared, new, old)

    def masked(self, vector: Tensor) -> Tensor:
        """Return a correction as far as it acts: not on personal parameters."""
        return vector if self._shared is None else vector * self._shared.to(vector.device)

    def shared_vectors(self, vectors: Sequence[Vector], named: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the method's vectors by name, as far as they act; those that begin at a model are whole."""
        steps = {v.name for v in vectors if v.scope == "parameters" and v.start == "zero"}
        return {name: self.masked(value) if name in steps else value for name, value in named.items()}

    def stack(self, count: int, first_of_epoch: bool, gradient: Tensor | None = None) -> Stack:
        last_gradient = None if self.last_gradient is None else self.last_gradient[:count]
        return Stack(
            self.parameters(count), self.anchor(count), self.options, self.relative_size[:count], self.lr,
            self.memory.split(self.remembered[:count]), self.broadcast.split(self.received), self._masks,
            self.took_part_last_round[:count], first_of_epoch,
            self.label_counts[:count], self.model.named, last_gradient, gradient,
            self.step_state.split(self.carried[:count]),
        )  # fmt: skip

    def carry(self, changed: Mapping[str, Tensor], count: int) -> None:
        places = self.step_state.split(self.carried[:count])
        for name, vectors in self.shared_vectors(self.step_state.vectors, changed).items():
            places[name].copy_(vectors)

    def rows(self, count: int) -> tuple[Tensor, ...]:
        """Return the arguments of :meth:`client` for the first ``count`` clients."""
        sizes, last_round = self.relative_size[:count], self.took_part_last_round[:count]
        return self.anchor(count), sizes, self.remembered[:count], last_round, self.label_counts[:count]

    def client(
        self,
        w: Tensor,
        anchor: Tensor,
        relative_size: Tensor,
        remembered: Tensor,
        took_part_last_round: Tensor,
        label_counts: Tensor,
        *,
        first: bool,
    ) -> Term:
        return Term(
            self.where_shared(w, anchor), anchor, self.options, relative_size[0], self.lr,
            self.memory.split(remembered), self.broadcast.split(self.received), self._masks,
            took_part_last_round[0], first, label_counts, self.model.named,
        )  # fmt: skip
