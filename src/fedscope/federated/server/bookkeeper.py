"""Rank 0's part of one round: average the uploads, apply the method's server rule, evaluate, write files."""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor

from fedscope.checkpoints.file.round_diagnostics import CurvatureProbe
from fedscope.checkpoints.file.schema import Round
from fedscope.checkpoints.registry.best import best
from fedscope.checkpoints.registry.run_registry import RunFolder
from fedscope.federated.client.local_loop import LocalTrainer
from fedscope.federated.parallel.evaluation import NOTHING, EvaluationScore
from fedscope.federated.parallel.memory import Memory, Writer
from fedscope.federated.parallel.training_round import TrainingRound
from fedscope.federated.record.checked import check_all_returned
from fedscope.federated.record.vectors import TRAINED, RowLayout
from fedscope.federated.record.views import Averaging, ServerStep
from fedscope.federated.server.diagnostics import DiagnosticsRecorder
from fedscope.federated.server.resume import check_remembered, done_rounds
from fedscope.federated.server.run_files import RunFiles, finite
from fedscope.federated.server.weighted_sum import WeightedSum
from fedscope.federated.setup.federation import Federation
from fedscope.federated.setup.learning_rate import round_rate

Probe = Callable[[int, Mapping[str, Tensor]], CurvatureProbe]  # the round and the model's state dict


def traffic(trainer: LocalTrainer, clients: int) -> dict[str, int]:
    """Return the bytes sent to and by ``clients`` sampled clients.

    A client receives and sends the P parameters, the Q running statistics and the method's further vectors,
    each less what is personal, in float32: the traffic of a deployment, not that between workers.
    """
    state = trainer.clients
    size = trainer.model.values.shape[1] - len(state.personal)
    layouts = (state.broadcast, state.uploads)
    down, up = (4 * clients * (size + state.further(layout)) for layout in layouts)
    return {"bytes_down": down, "bytes_up": up}


class RoundBookkeeper:
    """Rank 0: averages, applies the method's rule, and writes the run's files."""

    def __init__(
        self, federation: Federation, run: RunFolder, training: TrainingRound, probe: Probe | None = None
    ):
        self.federation, self.run, self.training, self.probe = federation, run, training, probe
        rounds = done_rounds(federation, run, training)
        self.metrics = list(map(_scores_only, rounds))
        top = best(rounds)
        self.best = -math.inf if top is None or top.deciding is None else top.deciding
        self.files = RunFiles(federation, run, training, rounds)
        self.diverged = bool(self.metrics) and _diverged(self.metrics[-1].train_loss, training.start)
        done, method = len(self.metrics), federation.method
        clients = training.clients
        layout = RowLayout(method.kept_vectors, training.model.size, clients.initial.numel())
        self.state = {
            name: v.double() for name, v in layout.split(layout.initial_row(clients.initial.cpu())).items()
        }
        self.memory: Memory | None = None
        self.latest: Memory | None = None  # every client's last upload, where their mean is tracked
        if "all" in federation.tracked:
            self.latest = Memory.after(run.folder / "latest", clients.initial.numel(), done)
        self.sampled_mean = clients.initial
        if federation.remembers:
            self.memory = Memory.after(run.folder / "state", clients.memory.width, done)
        for memory, of_clients in ((self.memory, training.remembers), (self.latest, True)):
            if memory and 0 < done < federation.settings.rounds:
                check_remembered(run, method.name, rounds, memory, of_clients=of_clients)
        if self.memory and self.memory.holds(done):
            self.state = self.memory.server(done)
        training.broadcast(self.state)
        self.recorder = DiagnosticsRecorder(training, run, done)

    def round(self, round: int, *, last: bool) -> Round:
        """Train, evaluate and keep one round; return its metrics.

        The other workers begin the next round once this process has taken their peak memory.
        """
        federation, training, run = self.federation, self.training, self.run
        settings, sampled = federation.settings, training.prepare(round)
        self.files.keep_start(round)
        with self._recorded(self.memory, round) as writer, self._recorded(self.latest, round) as latest:
            train_loss, train_accuracy, gradients = self._average(round, sampled, writer, latest)
        models = self._averages()
        self.diverged = _diverged(train_loss, training.start)
        last = last or self.diverged
        training.share_model(last=last)
        due = training.evaluates(round, last=last)
        scores = training.evaluate(models, self.memory) if due else {}
        validated = training.validate(models, self.memory) if due else None
        score = scores.get(settings.eval_model, NOTHING)
        training.clock.switch_to("diagnostics")
        diagnostics = self.recorder.record(score.classes, self._probed(round, models))
        training.clock.switch_to("checkpointing")
        measured = _entry(score) if due else {}
        decided = (validated or score).deciding
        self.files.models(round, models, measured, best=decided > self.best)
        self.best = max(self.best, decided)
        peaks = training.peaks()
        seconds = training.clock.read()  # writing the next two files counts in the next round
        found = {
            "round": round,
            **measured,
            **({"validation": _entry(validated)} if validated else {}),
            **({"accuracies": {n: finite(s.accuracy) for n, s in scores.items()}} if len(scores) > 1 else {}),
            **({"domains": score.domains} if score.domains else {}),
            "train_loss": finite(train_loss),
            **({} if math.isnan(train_accuracy) else {"train_accuracy": train_accuracy}),
            "lr": round_rate(settings, federation.method, round),
            **({"shifted": True} if federation.shifted(round) else {}),
            "clients": sampled,
            **({"local_work": list(map(training.local_work, sampled))} if settings.stragglers else {}),
            **({"local_steps": list(map(training.local_steps, sampled))} if settings.keep_steps else {}),
            **({"rows": self.files.rows.model_dump(mode="json")} if federation.new_clients else {}),
            **traffic(training.trainer, len(sampled)),
            "gradients": gradients,
            "diagnostics": diagnostics.to_json(),
            "workers": training.workers.size,
            "peak_memory_bytes": [host for host, _ in peaks],
            **({"peak_gpu_memory_bytes": [gpu for _, gpu in peaks]} if any(g for _, g in peaks) else {}),
            "seconds": sum(seconds.values()),
            "seconds_in": seconds,
        }
        record = Round.read(found, "a round's metrics")
        run.append_metrics(record)  # before the weights: resuming drops a record that is ahead of them
        self.files.newest(round, measured, last=round == settings.rounds and not self.diverged)
        if self.memory:
            self.memory.prune(round, keep_every=settings.keep_every)
        if self.latest:
            self.latest.prune(round)
        self.metrics.append(_scores_only(record))
        return record

    def _probed(self, round: int, models: Mapping[str, Tensor]) -> CurvatureProbe | None:
        settings, training = self.federation.settings, self.training
        every = settings.probe_curvature
        if self.probe is None or not every or round % every:
            return None
        training.clock.switch_to("probe")
        values = models.get(settings.eval_model, training.start)
        found = self.probe(round, training.model.state_dict(values, training.counters))
        training.clock.switch_to("diagnostics")
        return found

    def _averages(self) -> dict[str, Tensor]:
        """Return the tracked models (P+Q,) besides the server's: the means of Yashwanth et al. 2024 (MAN).

        ``sel`` is the mean of the round's uploads; ``all`` the mean over all N clients of their last
        uploads, and of the first model for clients that never took part.
        """
        training, federation = self.training, self.federation
        if self.latest is None:
            return {}
        weights = [federation.weight(size) for size in training.sizes]
        everyone, initial = WeightedSum(), training.clients.initial.cpu()
        for client, weight in enumerate(weights):
            last = self.latest.recall(client)
            everyone.add(initial if last is None else last, weight / sum(weights))
        found = {"sel": self.sampled_mean, "all": everyone.value}
        return {name: values.to(training.start) for name, values in found.items()}

    def _average(
        self, round: int, sampled: list[int], writer: Writer | None, latest: Writer | None
    ) -> tuple[float, float, int]:
        """Add up the uploads; the server's model becomes the result of the method's rule.

        Returns the clients' cross-entropy over the last local epoch and their training accuracy, NaN where it
        was not measured, both weighted by size; and the gradients that they computed.
        """
        federation, training = self.federation, self.training
        sizes = {client: training.sizes[client] for client in sampled}
        of_size = {size: federation.weight(size) for size in set(sizes.values())}
        weights = {client: of_size[size] for client, size in sizes.items()}
        weight, samples = sum(weights.values()), sum(sizes.values())
        mean, counters = WeightedSum(), training.counters.clone()
        train_loss, train_accuracy, gradients = 0.0, 0.0, 0
        sums = {name: WeightedSum() for name in training.summed}
        self.recorder.begin_round(sampled, [weights[client] / weight for client in sampled])
        for stack, trained in training.uploads(round, sampled, self.memory):
            training.clock.switch_to("aggregation")
            trained = trained.on_cpu()
            self.recorder.add(stack, trained)
            self.files.inside(round, stack, trained)
            gradients += int(trained.gradients.sum())
            values, losses, accuracies = trained.values, trained.loss.tolist(), trained.accuracy.tolist()
            for row, client in enumerate(stack):
                mean.add(values[row], weights[client] / weight)
                train_loss += losses[row] * sizes[client] / samples
                train_accuracy += accuracies[row] * sizes[client] / samples
                sent = training.vectors_of(trained, row) if sums else {}
                for name, sum_ in sums.items():
                    sum_.add(sent[name])
                if writer and training.remembers:
                    writer.client(client, trained.memory[row])
                if latest:
                    latest.client(client, values[row])
                self.files.upload(round, client, values[row], trained.counters, losses[row])
            counters = torch.maximum(counters, trained.counters.to(counters.device))
        self.sampled_mean = mean.value.clone()
        totals = {name: sum_.value for name, sum_ in sums.items()}
        training.start.copy_(self._serve(mean.value, totals, round, len(sampled), weight))
        training.counters.copy_(counters)
        training.broadcast(self.state)
        self.recorder.end(self.state)
        if writer:
            writer.server(self.state)
        return train_loss, train_accuracy, gradients

    def _serve(
        self, mean: Tensor, sums: dict[str, Tensor], round: int, participants: int, weight: float
    ) -> Tensor:
        """Return the next model (P+Q,): the rule moves shared trainable parameters; all else is the mean."""
        federation, training = self.federation, self.training
        method, size, settings = federation.method, training.model.size, federation.settings
        anchor, average = (
            model[:size].to("cpu", torch.float64, copy=True) for model in (training.origin, training.start)
        )
        kept = self.state[TRAINED.name] if method.averages else average
        step = ServerStep(
            mean[:size].clone(), anchor, self.state, participants, len(federation.rows),
            settings.options, sums, weight, round, kept, training.model.named,
            round_rate(settings, method, round) * method.mean_rate(settings.options, training.nominal_steps),
            training.nominal_steps, settings.momentum, settings.nesterov,
        )  # fmt: skip
        state: dict[str, Tensor] = {}
        if method.server:
            model, state = method.server(step)
            mean[:size][training.shared] = model[training.shared]
        for observe in method.server_notes:
            state = {**state, **observe(step)}
        if method.averages:  # rounded, as a model that is sent
            trained = state[TRAINED.name] = mean[:size].clone().to(training.start.dtype).double()
            new = method.averages(Averaging(trained, average, round, settings.options))
            mean[:size][training.shared] = new[training.shared]
        check_all_returned(method.name, "server_state", self.state, state)
        self.state = {**self.state, **training.clients.shared_vectors(method.kept_vectors, state)}
        return mean

    @contextmanager
    def _recorded(self, memory: Memory | None, round: int) -> Iterator[Writer | None]:
        if memory is None:
            yield None
        else:
            with memory.record(round) as writer:
                yield writer
                self.training.clock.switch_to("checkpointing")


def _entry(score: EvaluationScore) -> dict[str, float | None]:
    return {"accuracy": finite(score.accuracy), "loss": finite(score.loss)}


def _scores_only(record: Round) -> Round:
    """Return a record without what grows with the clients, so that memory hardly grows with the rounds."""
    long = ("clients", "local_work", "local_steps", "rows", "diagnostics")
    content = {key: value for key, value in record.to_json().items() if key not in long}
    return Round.model_validate(content)


def _diverged(train_loss: float | None, model: Tensor) -> bool:
    return train_loss is None or not (math.isfinite(train_loss) and bool(model.isfinite().all()))
