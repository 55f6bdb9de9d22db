"""Small manifests and checkpoints that need no training, and processes that write them."""

import multiprocessing
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

import torch
from torch import Tensor

from fedscope.checkpoints.file.checkpoint import save_checkpoint
from fedscope.checkpoints.file.schema import CheckpointInfo, DataSpec, Manifest, ModelSpec, Round
from fedscope.checkpoints.file.settings import Settings
from fedscope.checkpoints.registry.run_registry import RunFolder, RunRegistry
from tests.processes import processes

SETTINGS = Settings(clients=2, rounds=3, save_clients="none")
MODEL = ModelSpec(name="resnet_digits", classes=10, channels=1)
DATA = DataSpec(
    name="digits", augmentation="none", fingerprint="0" * 64, train_samples=1437, test_samples=360
)
VERSIONS = {"fedscope": "0"}


def manifest(name: str) -> Manifest:
    return Manifest(
        name=name,
        created="2026-01-01T00:00:00+00:00",
        settings=SETTINGS,
        model=MODEL,
        data=DATA,
        versions=VERSIONS,
    )


def info(run: str, round: int = 1) -> CheckpointInfo:
    return CheckpointInfo(
        run=run,
        kind="global",
        round=round,
        samples=1437,
        settings=SETTINGS,
        model=MODEL,
        data=DATA,
        versions=VERSIONS,
    )


def state(value: float, size: int = 1000) -> dict[str, Tensor]:
    return {"a.weight": torch.full((size,), value), "a.bias": torch.full((3, 2), value, dtype=torch.float64)}


def small_run(root: Path, name: str = "small") -> RunFolder:
    """Return a finished run of three rounds with two tags."""
    run = RunRegistry(root).create(manifest(name))
    for round in (1, 2, 3):
        run.append_metrics(Round(round=round, accuracy=round / 4, loss=1.0 / round))
        about = info(name, round).model_copy(update={"metrics": {"accuracy": round / 4}})
        save_checkpoint(run.best, state(round), about)
        save_checkpoint(run.last, state(round), about)
    run.last.replace(run.final)
    run.tag("good")
    run.tag("paper")
    return run


def _tell(target: Callable[..., None], sender: Connection, arguments: tuple[object, ...]) -> None:
    torch.set_num_threads(1)
    try:
        target(*arguments)
        sender.send("")
    except BaseException as error:
        sender.send(f"{type(error).__name__}: {error}")


def in_a_process(target: Callable[..., None], *arguments: object) -> str:
    """Call ``target`` in a process of its own; return what it raised, as text."""
    receiver, sender = multiprocessing.Pipe(duplex=False)
    process = processes().Process(target=_tell, args=(target, sender, arguments))
    process.start()
    sender.close()
    try:
        said: str = receiver.recv()
    finally:
        process.join()
    return said
