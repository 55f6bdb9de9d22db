import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fedscope.checkpoints.registry.run_registry import RunFolder, RunRegistry
from fedscope.cli.main import call
from fedscope.cli.terminal import verbosity


@dataclass(frozen=True)
class Outcome:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Command = Callable[..., Outcome]


@pytest.fixture
def fedscope(
    run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Command]:
    """Call the command line in an empty folder, with the registry that holds `run` and afterwards only it."""
    registry = RunRegistry(run.folder.parent)
    before = {other.name for other in registry.folders()}
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(os.environ, "FEDSCOPE_REGISTRY", str(run.folder.parent))

    def command(*arguments: str) -> Outcome:
        code = call(arguments)
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    yield command
    verbosity.reset()
    for other in registry.folders():
        if other.name not in before:
            registry.delete(other)


@pytest.fixture
def copied(run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunRegistry:
    """A copy of the registry that holds ``run`` alone, which the commands take, in the working directory."""
    shutil.copytree(run.folder, tmp_path / "registry" / run.name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDSCOPE_REGISTRY", "registry")
    return RunRegistry(Path("registry"))
