"""What a training will take: its first rounds, timed in a folder that is deleted."""

from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from fedscope.checkpoints.registry.run_registry import RunRegistry
from fedscope.errors import UserError
from fedscope.federated.parallel import workers
from fedscope.process import use_device
from fedscope.workflows.progress import SILENT, Reporter, about, duration
from fedscope.workflows.train.one_run import train_run
from fedscope.workflows.train.train_request import TrainRequest, plan

WARM = 3  # the round that is timed, unless the first takes longer than
LONG = 20.0  # [s]


@dataclass(frozen=True)
class Trial:
    """What a run of ``rounds`` rounds takes."""

    rounds: int
    timed: int  # the round that was timed
    round_seconds: float  # [s]
    seconds: float  # of all rounds [s]
    clients: int  # of the timed round
    gradients: float  # of mini-batches in it
    bytes_down: float  # in it, to the clients [bytes]
    bytes_up: float  # and back [bytes]
    checkpoint_bytes: int  # of a model's file [bytes]

    def described(self) -> list[str]:
        return [
            f"{self.rounds} rounds, {about(self.seconds)}: round {self.timed} of a trial took "
            f"{duration(self.round_seconds)}",
            f"a round: {self.clients} clients, {self.gradients:,.0f} gradients of mini-batches, "
            f"{self.bytes_down / 1e6:.3g} MB to the clients and {self.bytes_up / 1e6:.3g} MB from them",
            f"a model's file: {self.checkpoint_bytes / 1e6:.3g} MB",
        ]


def trial(request: TrainRequest, reporter: Reporter = SILENT) -> Trial:
    if request.resume or workers.under_torchrun():
        raise UserError("--dry-run tries a new run in one process: leave --resume and torchrun out")
    seed = {"seed": request.seeds[0]} if request.seeds else {}
    for rounds in (1, WARM):
        with TemporaryDirectory() as folder:
            one = replace(
                request, registry=Path(folder), settings={**request.settings, **seed}, name="trial",
                seeds=None, loggers=(),
            )  # fmt: skip
            device = use_device(one.device, one.threads, one.workers, workers.place())
            planned = plan(one, str(device), torch.get_num_threads(), reporter=reporter)
            until = min(rounds, planned.settings.rounds)
            train_run(replace(planned, until=until), reporter if rounds == 1 else SILENT)
            run = RunRegistry(one.registry).run("trial")
            last, all_rounds = run.metrics()[-1], planned.settings.rounds * len(request.seeds or "1")
            found = Trial(
                all_rounds, last.round, last.seconds, last.seconds * all_rounds, len(last.clients),
                last.gradients, last.bytes_down, last.bytes_up, run.initial.stat().st_size,
            )  # fmt: skip
        if last.seconds > LONG or until == planned.settings.rounds:
            break
    return found
