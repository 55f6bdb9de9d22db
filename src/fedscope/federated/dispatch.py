"""Every worker's part of a round: train its share of the clients, evaluate its share of the test set."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from fedscope.checkpoints.schema import Settings
from fedscope.federated.accounting import Clock, peak_gpu_memory, peak_memory
from fedscope.federated.evaluation import evaluate
from fedscope.federated.federation import Federation
from fedscope.federated.flat import FlatModel
from fedscope.federated.local import LocalSettings, LocalTrainer, Task, Trained
from fedscope.federated.memory import Memory
from fedscope.federated.sampling import sample_clients
from fedscope.federated.schedule import Stack, assign, stacks, windows
from fedscope.federated.workers import Workers
from fedscope.streams import torch_stream

HELD = 2**30  # bytes of uploads that a worker holds back, on average, before they are folded in


class Dispatch:
    """One worker's trainer, and the exchange with the others; every worker calls the same methods in turn."""

    def __init__(self, federation: Federation, workers: Workers):
        settings = federation.settings
        self.federation, self.workers, self.clock = federation, workers, Clock()
        self.model = FlatModel(federation.model, settings.stack)
        self.trainer = LocalTrainer(
            self.model, federation.dataset.train, federation.pipeline, federation.method, settings.options,
            LocalSettings(
                settings.epochs, settings.batch_size, settings.momentum, settings.nesterov,
                settings.weight_decay, settings.clip, settings.precision, settings.compile,
            ), self.clock,
        )  # fmt: skip
        self.start = self.model.values[0].clone()  # θ_t and the buffers, as the server sends them
        self.counters = self.model.counters.clone()
        self.samples = sum(map(len, federation.rows))

    def begin(self, done: int) -> int:
        """Agree on the number of rounds ``done`` and on the model; return the former."""
        number = torch.tensor([done])
        self.workers.share(number)
        self._share_model()
        self.clock.lap()
        return int(number)

    def sample(self, round: int) -> list[int]:
        """Return the clients of ``round``, counted from 1."""
        settings = self.federation.settings
        return sample_clients(
            settings.sampling, settings.clients, settings.participation, settings.seed, round - 1
        )

    def uploads(
        self, round: int, sampled: list[int], memory: Memory | None
    ) -> Iterator[tuple[Stack, Trained]]:
        """Train the sampled clients; on rank 0, yield every stack's upload in the order of the stacks."""
        settings, workers = self.federation.settings, self.workers
        everyone = stacks(sampled, self._size, settings.stack)
        row = 4 * (self.model.values.shape[1] + self.model.size * len(self.federation.method.memory))
        held = max(1, HELD // (row * settings.stack)) if workers.size > 1 else 1
        for window in windows(everyone, held * workers.size):
            shares = assign([len(stack) * self._size(stack[0]) for stack in window], workers.size)
            owner = {place: rank for rank, places in enumerate(shares) for place in places}
            recalled = self._recall(window, owner, memory)
            trained = {
                place: self._train(round, window[place], recalled.pop(place, {}))
                for place in shares[workers.rank]
            }
            for place, stack in enumerate(window):
                if owner[place] == workers.rank == 0:
                    yield stack, trained.pop(place)
                elif workers.rank == 0:
                    self.clock.enter("waiting")
                    yield stack, self._receive(len(stack), owner[place])
                elif owner[place] == workers.rank:
                    self._send(trained.pop(place))

    def evaluate(self) -> tuple[float, float, list[list[float]]]:
        """Return test loss and accuracy of the server's next model, each worker's peak memory (host, GPU)."""
        self._share_model()
        self.clock.enter("evaluation")
        self.model.values[0] = self.start
        self.model.counters.copy_(self.counters)
        loss, accuracy = evaluate(
            self.model.module, self.federation.dataset.test, self.federation.pipeline, workers=self.workers
        )
        peaks = torch.zeros(self.workers.size, 2, dtype=torch.float64)
        peaks[self.workers.rank] = torch.tensor([peak_memory(), peak_gpu_memory()])
        return loss, accuracy, self.workers.total(peaks).tolist()

    def _share_model(self) -> None:
        self.workers.share(self.start)
        self.workers.share(self.counters)

    def _size(self, client: int) -> int:
        return len(self.federation.rows[client])

    def _train(self, round: int, stack: Stack, recalled: dict[int, Tensor]) -> Trained:
        settings = self.federation.settings
        tasks = [
            Task(
                self.federation.rows[client],
                torch_stream(settings.seed, "batch order", round, client),
                torch_stream(settings.seed, "augmentation", round, client),
                self._size(client) * settings.clients / self.samples,
                recalled.get(client),
            )
            for client in stack
        ]
        return self.trainer.train(self.start, self.counters, tasks, learning_rate(settings, round))

    def _recall(
        self, window: Sequence[Stack], owner: dict[int, int], memory: Memory | None
    ) -> dict[int, dict[int, Tensor]]:
        """Bring every client's memory from rank 0's files to the worker that trains it."""
        names = self.federation.method.memory
        recalled: dict[int, dict[int, Tensor]] = {}
        for place, stack in enumerate(window) if names else ():
            rank = owner[place]
            if memory is not None:
                found = [memory.recall(client) for client in stack]
                vectors = torch.stack([torch.zeros(memory.shape) if v is None else v for v in found])
                if rank:
                    self.workers.send(vectors, rank)
            elif rank == self.workers.rank:
                vectors = self.workers.receive((len(stack), len(names), self.model.size), torch.float32, 0)
            if rank == self.workers.rank:
                recalled[place] = dict(zip(stack, vectors, strict=True))
        return recalled

    def _send(self, trained: Trained) -> None:
        for tensor in (trained.values, trained.memory, trained.counters, trained.loss):
            self.workers.send(tensor, 0)

    def _receive(self, count: int, rank: int) -> Trained:
        memory = (count, len(self.federation.method.memory), self.model.size)
        take, values = self.workers.receive, self.model.values
        return Trained(
            take((count, values.shape[1]), values.dtype, rank),
            take(memory, values.dtype, rank),
            take(tuple(self.counters.shape), torch.int64, rank),
            take((count,), torch.float64, rank),
        )


def learning_rate(settings: Settings, round: int) -> float:
    """Return η of ``round``, counted from 1."""
    return settings.lr * settings.lr_decay ** (round - 1)
