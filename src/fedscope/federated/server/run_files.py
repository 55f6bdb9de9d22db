"""The files of a run's rounds: the newest, the first and the best model, uploads and averages.

An upload is kept with what it started from: the model that the server sent, and, where every round's clients
are new, the rows that they held. Under ``--save-clients last`` the last uploads are of different rounds.
"""

import math
from collections.abc import Mapping, Sequence

from torch import Tensor

from fedscope.checkpoints.file.checkpoint import save_checkpoint
from fedscope.checkpoints.file.schema import CheckpointInfo, Round
from fedscope.checkpoints.registry.client_rows import packed
from fedscope.checkpoints.registry.run_registry import RunFolder
from fedscope.federated.parallel.training_round import TrainingRound
from fedscope.federated.record.tasks import Trained
from fedscope.federated.setup.federation import Federation
from fedscope.storage import remove, remove_empty, write_bytes

Models = Mapping[str, Tensor]
Measured = Mapping[str, float | None]


class RunFiles:
    """Writes the files of a run, on rank 0; ``rounds`` are those that are done."""

    def __init__(
        self, federation: Federation, run: RunFolder, training: TrainingRound, rounds: Sequence[Round]
    ):
        self.federation, self.run, self.training = federation, run, training
        # the round of each upload that is kept
        self._uploads = {client: one.round for one in rounds for client in one.clients}
        # of the newest round
        self.rows = federation.stored(federation.rows_in(max(1, len(rounds)))).spec
        self._measured: Measured = {}
        if rounds and rounds[-1].evaluated:
            self._measured = {"accuracy": rounds[-1].accuracy, "loss": rounds[-1].loss}
        if not rounds:
            save_checkpoint(run.initial, self._server_state(), self._info(0, {}))

    def keep_start(self, round: int) -> None:
        fresh, run = self.federation.new_clients, self.run
        rows = self.federation.stored(self.training.rows) if fresh else None
        if self.federation.settings.save_clients != "none":
            self.training.clock.switch_to("checkpointing")
            info = self._info(round - 1, self._measured)
            if self.federation.method.sends_another:
                info = info.model_copy(update={"average": "sent", "metrics": {}})
            save_checkpoint(run.anchor(round), self._server_state(sent=True), info)
            if rows:
                write_bytes(run.rows(round), packed(rows), below=run.root)
        self.rows = rows.spec if rows else self.rows

    def upload(self, round: int, client: int, values: Tensor, counters: Tensor, loss: float) -> None:
        """Keep a client's model (P+Q,) as its last, and under ``--save-clients all`` as that of the round."""
        save, clock = self.federation.settings.save_clients, self.training.clock
        if save == "none":
            return
        clock.switch_to("checkpointing")
        info = self._info(round, {"train_loss": finite(loss)}, client)
        state = self.training.model.state_dict(values, counters)
        save_checkpoint(self.run.client(client), state, info)
        if save == "all":
            save_checkpoint(self.run.client(client, round), state, info)
        self._uploads[client] = round
        clock.switch_to("aggregation")

    def inside(self, round: int, stack: Sequence[int], trained: Trained) -> None:
        """Keep the models after local steps that ``--keep-steps`` asks for."""
        training = self.training
        kept = training.kept.inside(round, stack, training.local_steps)
        if kept:
            training.clock.switch_to("checkpointing")
        for place, (client, step) in enumerate(kept):
            state = training.model.state_dict(trained.inside[place], trained.inside_counters[place])
            info = self._info(round, {}, client).model_copy(update={"step": step})
            save_checkpoint(self.run.step(round, client, step), state, info)
        if kept:
            training.clock.switch_to("aggregation")

    def models(self, round: int, means: Models, measured: Measured, *, best: bool) -> None:
        run, settings = self.run, self.federation.settings
        info, chosen = self._info(round, measured), settings.eval_model
        states = {"cld": self._server_state()}
        states |= {n: self.training.model.state_dict(v, self.training.counters) for n, v in means.items()}

        def about(name: str) -> CheckpointInfo:
            return info.model_copy(update={"average": name})

        if chosen != "cld":
            save_checkpoint(run.average(chosen), states[chosen], about(chosen))
        if best:
            save_checkpoint(run.best, states[chosen], about(chosen))
        if settings.keep_every and round % settings.keep_every == 0:
            save_checkpoint(run.after_round(round), states.pop("cld"), info)
            for name, state in states.items():
                save_checkpoint(run.average(name, round), state, about(name))

    def newest(self, round: int, measured: Measured, *, last: bool) -> None:
        """Write the server's model after ``round``; from then on the round counts."""
        path = self.run.final if last else self.run.last
        save_checkpoint(path, self._server_state(), self._info(round, measured))
        self._measured = measured
        if self.federation.settings.save_clients == "last":
            self._prune()

    def _prune(self) -> None:
        needed = set(self._uploads.values())
        for path in (*self.run.folder.glob("round-*/anchor.pt"), *self.run.folder.glob("round-*/rows.zz")):
            if int(path.parent.name[6:]) not in needed:
                remove(path, below=self.run.root)
                remove_empty(path.parent, below=self.run.root)

    def _server_state(self, *, sent: bool = False) -> dict[str, Tensor]:
        values = self.training.origin if sent else self.training.start
        return self.training.model.state_dict(values, self.training.counters)

    def _info(self, round: int, metrics: Measured, client: int | None = None) -> CheckpointInfo:
        return self.federation.info(self.run.name, round, dict(metrics), self.rows, client)


def finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
