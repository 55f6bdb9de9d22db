"""W&B offline: what it keeps in the run's folder, and with which names."""

from pathlib import Path
from time import sleep
from typing import Any

import pytest

from fedscope.checkpoints.file.layout import files
from fedscope.checkpoints.registry.run_folder import RunFolder
from fedscope.loggers.logger import logged
from fedscope.loggers.trackers import key, to_wandb


@pytest.fixture(autouse=True)
def _offline(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb", reason="needs wandb: pip install 'fedscope[wandb]'")
    for name, value in {"MODE": "offline", "SILENT": "true", "ERROR_REPORTING": "false"}.items():
        monkeypatch.setenv(f"WANDB_{name}", value)


class Kept:
    """Stands for W&B's run: keeps steps, and fails at one of them."""

    def __init__(self, fails_at: int = 0):
        self.steps: list[int] = []
        self.fails_at, self.finished = fails_at, False

    def log(self, metrics: dict[str, float], step: int) -> None:
        if step == self.fails_at:
            raise OSError("the connection was lost")
        assert 0 < metrics["accuracy"] <= 1
        self.steps.append(step)

    def finish(self) -> None:
        self.finished = True


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> list[tuple[dict[str, Any], Kept]]:
    """The runs that are begun, each with the arguments of ``wandb.init``."""
    begun: list[tuple[dict[str, Any], Kept]] = []

    def init(**arguments: Any) -> Kept:
        begun.append((arguments, Kept(fails_at=3 if len(begun) == 1 else 0)))
        return begun[-1][1]

    monkeypatch.setattr("wandb.init", init)
    return begun


@pytest.mark.usefixtures("in_time")
def test_offline_files_lie_in_the_run_and_are_no_part_of_it(own: RunFolder) -> None:
    before = list(files(own.folder))
    with logged(own, {"wandb": to_wandb}, pytest.fail):
        pass
    (written,) = (own.folder / "wandb").glob("offline-run-*/*.wandb")
    assert written.name == f"run-{key(own.manifest())}.wandb"
    while written.stat().st_size < 500:  # W&B's own process may write after `finish`
        sleep(0.05)
    assert list(files(own.folder)) == before


def test_a_continued_run_is_the_same_and_gets_no_round_twice(
    own: RunFolder, kept: list[tuple[dict[str, Any], Kept]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_PROJECT", "thesis")
    notes: list[str] = []
    for _ in range(3):
        with logged(own, {"wandb": to_wandb}, notes.append) as log:
            log(own.metrics()[-1].edited(round=3))
    assert [one.steps for _, one in kept] == [[1, 2, 3], [], [3]]
    assert all(one.finished for _, one in kept)
    assert len(notes) == 1
    first, *others = ({**given, "config": given["config"]["dataset"], "settings": None} for given, _ in kept)
    assert others == [first, first]
    assert first == {
        "project": "thesis", "id": key(own.manifest()), "name": "tiny", "dir": str(own.folder),
        "resume": "allow", "config": "digits", "settings": None,
    }  # fmt: skip


def test_without_a_project_it_is_fedscope_s(
    own: RunFolder, kept: list[tuple[dict[str, Any], Kept]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("WANDB_PROJECT", raising=False)
    monkeypatch.chdir(tmp_path)
    with logged(own, {"wandb": to_wandb}, pytest.fail):
        pass
    assert kept[0][0]["project"] == "fedscope"
