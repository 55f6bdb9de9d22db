"""What a user asks for, trained: one run, or one run per seed, NAME-s0, NAME-s1…, continued together."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import torch

from fedscope.checkpoints.registry.run_registry import RunRegistry
from fedscope.errors import UserError
from fedscope.federated.parallel import workers
from fedscope.process import use_device
from fedscope.workflows.progress import SILENT, Reporter
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
