"""Runs from beginning to end, and runs that are cut short and taken up again."""

from pathlib import Path

import pytest

from fedscope.checkpoints.file.schema import Round
from fedscope.checkpoints.file.settings import Settings
from fedscope.checkpoints.registry.run_registry import RunFolder, RunRegistry
from fedscope.federated.server.run_rounds import train
from fedscope.federated.setup.federation import Federation, open_run, prepare


def trained(
    root: Path,
    settings: Settings,
    given: dict[str, str] | None = None,
    name: str = "run",
    federation: Federation | None = None,
) -> RunFolder:
    """Return a finished run of ``settings``, or of a federation that is there."""
    federation = federation or prepare(settings, given or {})
    run = open_run(federation, RunRegistry(root), name, resume=False)
    train(federation, run, lambda _: None)
    return run


def interrupted(root: Path, settings: Settings, name: str = "cut", after: int = 2) -> RunFolder:
    """Return a run that was interrupted when round ``after`` was done."""

    def stop(metrics: Round) -> None:
        if metrics.round == after:
            raise KeyboardInterrupt

    federation = prepare(settings, {})
    run = open_run(federation, RunRegistry(root), name, resume=False)
    with pytest.raises(KeyboardInterrupt):
        train(federation, run, stop)
    return run


def resumed(root: Path, settings: Settings, name: str = "cut") -> list[Round]:
    """Continue the run to its end, as another process would; return its metrics."""
    federation = prepare(settings, {})
    run = open_run(federation, RunRegistry(root), name, resume=True)
    train(federation, run, lambda _: None)
    return run.metrics()
