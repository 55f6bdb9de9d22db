"""What a user asks for, trained: one run, or one per seed, continued together; or tried, to time it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from fedscope.checkpoints.registry.run_registry import RunRegistry
from fedscope.errors import UserError
from fedscope.federated.parallel import workers
from fedscope.process import use_device
from fedscope.workflows.progress import SILENT, Reporter, about, duration
from fedscope.workflows.train.one_run import train_run
from fedscope.workflows.train.train_request import RunPlan, TrainedRun, TrainRequest, plan


def train(request: TrainRequest, reporter: Reporter = SILENT) -> list[TrainedRun]:
    """Train and register what is asked for; return one result per run, diverged ones too, on rank 0 alone."""
    threads = request.threads or _threads_before(request)
    device = use_device(request.device, threads, request.workers, workers.place())
    if request.seeds is None:
        found = train_run(_planned(request, device, reporter=reporter), reporter)
        return [found] if found else []
    return list(_each_seed(request, request.seeds, device, reporter))


def _planned(
    request: TrainRequest, device: torch.device, *, reporter: Reporter, like: str | None = None
) -> RunPlan:
    return plan(request, str(device), torch.get_num_threads(), like=like, reporter=reporter)


def _threads_before(request: TrainRequest) -> int | None:
    store = RunRegistry(request.registry)
    known = [name for name in _names(request) if store.has(name)] if request.resume else []
    return store.run(known[0]).manifest().settings.threads if known else None


def _names(request: TrainRequest) -> Sequence[str]:
    if request.name is None:
        return []
    suffixes = [""] if request.seeds is None else [f"-s{seed}" for seed in request.seeds]
    return [f"{request.name}{suffix}" for suffix in suffixes]


def _each_seed(
    request: TrainRequest, seeds: Sequence[int], device: torch.device, reporter: Reporter
) -> Iterator[TrainedRun]:
    """Yield the result of every seed; with ``resume``, runs that are there are continued.

    A seed that was not begun before the interruption is trained with the settings of one that was.
    """
    if workers.under_torchrun():
        raise UserError("--seeds trains one run after the other; with torchrun start one for each --seed")
    store, name = RunRegistry(request.registry), request.name
    there = [run for run in _names(request) if request.resume and store.has(run)]
    if request.resume and not there:
        raise UserError(f"--resume needs the --name of runs such as NAME-s{seeds[0]}; {name} has none")
    suffixes = tuple(f"-s{seed}" for seed in seeds)
    planned = partial(_planned, device=device, reporter=reporter)
    for seed, suffix in zip(seeds, suffixes, strict=True):
        one = replace(request, settings={**request.settings, "seed": seed}, seeds=None, resume=False)
        if name is None:
            job = replace(planned(one), suffixes=suffixes)
        else:
            run = f"{name}{suffix}"
            one = replace(one, name=run, resume=run in there)
            job = planned(one, like=there[0] if there else None)
        found = train_run(job, reporter)
        assert found  # of rank 0, which this process is
        name = name or found.run.removesuffix(suffix)
        yield found


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
