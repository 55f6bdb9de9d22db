"""Every worker's part of a round: train its share of the clients, evaluate its share of the test set."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import prod

import torch
from torch import Tensor

from fedscope.checkpoints.file.kept_steps import KeptSteps
from fedscope.data.loading.datasets import Split
from fedscope.federated.client.clock import PhaseClock
from fedscope.federated.client.local_loop import LocalTrainer
from fedscope.federated.parallel.evaluation import EvaluationScore, score_sums
from fedscope.federated.parallel.memory import Memory
from fedscope.federated.parallel.schedule import Stack, assign, stacks, windows
from fedscope.federated.parallel.workers import Workers
from fedscope.federated.record.flat import FlatModel
from fedscope.federated.record.tasks import Task, Trained
from fedscope.federated.record.vectors import TRAINED
from fedscope.federated.record.views import Sending
from fedscope.federated.setup.federation import Federation, local_settings
from fedscope.federated.setup.learning_rate import round_rate
from fedscope.federated.setup.local_work import full_work, stragglers
from fedscope.federated.setup.sampling import sample_clients
from fedscope.process import peak_gpu_memory, peak_memory
from fedscope.streams import torch_stream

NO_DRAWS = torch.Generator()  # of a pipeline that draws nothing
WAITING = 2**30  # bytes of uploads that a worker keeps, on average, before rank 0 adds them up


class TrainingRound:
    """One worker's trainer, and the exchange with the others; every worker calls the same methods in turn."""

    def __init__(self, federation: Federation, workers: Workers):
        settings = federation.settings
        self.federation, self.workers, self.clock = federation, workers, PhaseClock()
        self.rows, self.test = federation.rows, federation.dataset.test
        self.sizes = list(map(len, self.rows))  # n_k
        self.model = FlatModel(federation.model, settings.stack, channels_last=not federation.spec.own)
        self.trainer = LocalTrainer(
            self.model, federation.training, federation.pipeline, federation.method, settings.options,
            local_settings(settings, federation.weights), self.clock,
            lr=round_rate(settings, federation.method, 1), mean_samples=sum(self.sizes) / settings.clients,
            draws=federation.spec.own, classes=len(federation.dataset.classes),
        )  # fmt: skip
        self.validation = federation.validation
        self.clients = self.trainer.clients
        self.shared = torch.ones(self.model.size, dtype=torch.bool)  # which parameters a server rule moves
        self.shared[[place for place in self.clients.personal.tolist() if place < self.model.size]] = False
        uploads = self.clients.uploads.names
        self.summed = tuple(dict.fromkeys((*uploads, *federation.method.summed_memory)))
        self.remembers = bool(self.clients.memory.names) and settings.memory == "keep"
        self.work: dict[int, int] = {}  # of the round's stragglers
        self.kept = KeptSteps.parse(settings.keep_steps)
        self._before: set[int] = set()  # clients that took part in the last round
        self.start = self.model.values[0].clone()  # the server's model and its buffers
        # θ_t: where clients start
        self.origin = self.start.clone() if federation.method.sends_another else self.start
        self.counters = self.model.counters.clone()

    def share_progress(self, done: int) -> int:
        """Share rank 0's number of rounds ``done`` and its model with all workers; return that number."""
        number = torch.tensor([done])
        self.workers.share(number)
        self.share_model()
        self.clock.read()
        return int(number)

    def prepare(self, round: int) -> list[int]:
        """Take the data of ``round``, counted from 1; return its clients."""
        federation = self.federation
        rows = federation.rows_in(round)
        if rows is not self.rows:
            self.rows, self.sizes = rows, list(map(len, rows))
        if federation.label_maps is not None:
            now = federation.label_maps[round - 1]
            self.trainer.split.labels.copy_(now[federation.dataset.train.labels])
            self.test = replace(self.test, labels=now[federation.dataset.test.labels])
            if self.validation is not None:
                labels = federation.dataset.train.labels[federation.held_out]
                self.validation = replace(self.validation, labels=now[labels])
        self._before = set(self._sample(round - 1)) if round > 1 and not federation.new_clients else set()
        sampled = self._sample(round)
        self.work = stragglers(federation.settings, sampled, round)
        return sampled

    def _sample(self, round: int) -> list[int]:
        settings = self.federation.settings
        sampled = sample_clients(
            settings.sampling, settings.clients, settings.participation, settings.seed, round - 1
        )
        return sampled[: settings.clients_limit]

    def uploads(
        self, round: int, sampled: list[int], memory: Memory | None
    ) -> Iterator[tuple[Stack, Trained]]:
        """Train the sampled clients; on rank 0, yield every stack's upload in the order of the stacks."""
        settings, workers = self.federation.settings, self.workers
        everyone = stacks(sampled, self._alike, settings.stack)
        row = 4 * (self.model.values.shape[1] + self.clients.memory.width + self.clients.uploads.width)
        waiting = max(1, WAITING // (row * settings.stack)) if workers.size > 1 else 1
        for window in windows(everyone, waiting * workers.size):
            shares = assign([len(stack) * prod(self._alike(stack[0])) for stack in window], workers.size)
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
                    self.clock.switch_to("waiting")
                    yield stack, self._receive(round, stack, owner[place])
                elif owner[place] == workers.rank:
                    self._send(trained.pop(place))

    def broadcast(self, state: Mapping[str, Tensor]) -> None:
        """Set the vectors that the clients of the next round receive, and the model they start from."""
        method, size = self.federation.method, self.model.size
        if method.sends_another:
            kept = self.start[:size].to("cpu", torch.float64, copy=True)
            model = state[TRAINED.name] if method.averages else kept
            if method.sends:
                model = method.sends(Sending(model, state, self.federation.settings.options))
            self.origin.copy_(self.start)
            self.origin[:size][self.shared] = model.to(self.start)[self.shared]
        for name, place in self.clients.broadcast.split(self.clients.received).items():
            place.copy_(state[name])

    def vectors_of(self, trained: Trained, row: int) -> dict[str, Tensor]:
        return self.clients.memory.split(trained.memory[row]) | self.clients.uploads.split(
            trained.uploads[row]
        )

    def share_model(self, *, last: bool = False) -> bool:
        """Give all workers rank 0's model; return whether it says that this is the ``last`` round."""
        told = torch.tensor([last])
        self.workers.share(told, self.start, self.origin, self.counters, self.clients.received)
        return bool(told)

    def evaluates(self, round: int, *, last: bool) -> bool:
        return last or round % self.federation.settings.evaluate_every == 0

    def evaluate(self, models: Mapping[str, Tensor], memory: Memory | None) -> dict[str, EvaluationScore]:
        """Return the score of each tracked model: of ``cld``, the server's next, and of ``models`` (P+Q,)."""
        self.clock.switch_to("evaluation")
        domains, scores = self.federation.dataset.domains, dict[str, EvaluationScore]()
        for name in self.federation.tracked:
            if name == "sel" and self._keeps_mean:
                scores[name] = scores["cld"]
                continue
            values = models.get(name, self.start).clone()
            if name != "cld":  # which all have
                self.workers.share(values)
            scores[name] = EvaluationScore.from_sums(self._score_sums(values, memory, self.test), domains)
        return scores

    def peaks(self) -> list[list[int]]:
        """Return each worker's peak memory in bytes (host, GPU), on rank 0."""
        peaks = torch.zeros(self.workers.size, 2, dtype=torch.int64)
        peaks[self.workers.rank] = torch.tensor([peak_memory(), peak_gpu_memory()])
        return self.workers.total(peaks).tolist()

    def validate(self, models: Mapping[str, Tensor], memory: Memory | None) -> EvaluationScore | None:
        """Return the score of the model that counts on the rows held out of training, where there are any."""
        if self.validation is None:
            return None
        values = models.get(self.federation.settings.eval_model, self.start).clone()
        self.workers.share(values)
        sums = self._score_sums(values, memory, self.validation)
        return EvaluationScore.from_sums(sums, self.federation.dataset.domains)

    @property
    def nominal_steps(self) -> int:
        """The local steps E·⌈(n/N)/B⌉ of a mean client."""
        return self.trainer.settings.round_steps(self.trainer.mean_samples)

    @property
    def _keeps_mean(self) -> bool:
        method = self.federation.method
        return method.server is None and method.averages is None

    def _score_sums(self, values: Tensor, memory: Memory | None, split: Split) -> Tensor:
        """Evaluate a model (P+Q,); each domain with its client's own tensors, where clients are domains."""
        self.model.counters.copy_(self.counters)
        domains = split.domains
        by_client = self.federation.settings.partition == "per_domain" and self.federation.method.personal
        if domains is None or not by_client:
            return self._sums_on(values, split)
        columns = 3 + 2 * len(self.federation.dataset.classes)
        total = torch.zeros(len(self.federation.dataset.domains), columns, dtype=torch.float64)
        for client in range(len(total)):
            rows = (domains == client).nonzero()[:, 0]
            if len(rows):
                found = self._sums_on(self._own(values, client, memory), split.take(rows))
                total[: len(found)] += found
        return total

    def _sums_on(self, values: Tensor, split: Split) -> Tensor:
        self.model.values[0] = values
        model, pipeline, classes = self.model, self.federation.pipeline, self.federation.dataset.classes
        return score_sums(
            model.module, split, pipeline, workers=self.workers, arranged=model.arranged, classes=len(classes)
        )

    def _own(self, values: Tensor, client: int, memory: Memory | None) -> Tensor:
        own, clients = values.clone(), self.clients
        if (remembered := memory.recall(client) if memory else None) is not None:
            own[clients.personal] = clients.memory.split(remembered)["personal"].to(own)
        self.workers.share(own)
        return own

    def local_steps(self, client: int) -> int:
        return self.trainer.steps(self._size(client), self.work.get(client))

    def local_work(self, client: int) -> int:
        return self.work.get(client, full_work(self.federation.settings))

    def _size(self, client: int) -> int:
        return self.sizes[client]

    def _alike(self, client: int) -> tuple[int, int]:
        return self._size(client), self.local_work(client)

    def _train(self, round: int, stack: Stack, recalled: dict[int, Tensor]) -> Trained:
        settings, samples = self.federation.settings, sum(self.sizes)
        augmented = self.federation.pipeline.draws

        def task(client: int) -> Task:
            def stream(name: str, round: int = round) -> torch.Generator:
                return torch_stream(settings.seed, name, round, client)

            return Task(
                self.rows[client], stream("batch order"), stream("augmentation") if augmented else NO_DRAWS,
                self._size(client) * settings.clients / samples,
                recalled.get(client), client in self._before, stream,
                partial(self.federation.own_start, client), self.local_work(client),
                self.kept.of(round, client, self.local_steps(client)),
            )  # fmt: skip

        tasks = [task(client) for client in stack]
        rate = round_rate(settings, self.federation.method, round)
        return self.trainer.train(self.origin, self.counters, tasks, rate)

    def _recall(
        self, window: Sequence[Stack], owner: dict[int, int], memory: Memory | None
    ) -> dict[int, dict[int, Tensor]]:
        width, workers = self.clients.memory.width, self.workers
        recalled: dict[int, dict[int, Tensor]] = {}
        for place, stack in enumerate(window) if self.remembers else ():
            rank, rows = owner[place], torch.zeros(len(stack), 1 + width)  # first whether it remembers
            if memory is not None:
                for row, client in enumerate(stack):
                    found = memory.recall(client)
                    if found is not None:
                        rows[row, 0], rows[row, 1:] = 1, found
                if rank:
                    workers.send(rank, rows)
            elif rank == workers.rank:
                workers.receive(0, rows)
            if rank == workers.rank:
                recalled[place] = {
                    client: row[1:] for client, row in zip(stack, rows, strict=True) if row[0] > 0
                }
        return recalled

    def _send(self, trained: Trained) -> None:
        self.workers.send(0, *trained.parts)

    def _receive(self, round: int, stack: Stack, rank: int) -> Trained:
        values, clients = self.model.values, self.clients
        widths = (values.shape[1], clients.memory.width, clients.uploads.width)
        inside = len(self.kept.inside(round, stack, self.local_steps))
        found = Trained.empty(
            (len(stack), inside), widths, self.trainer.observed.values.shape[1], self.counters, values.dtype
        )
        self.workers.receive(rank, *found.parts)
        return found
