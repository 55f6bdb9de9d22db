"""A surface that is kept: killed at random points, it goes on with the same bits and no point twice."""

import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedscope.landscape import Batches, Surface, surface, surroundings
from tests.processes import processes


def work(folder: Path, log: Path, pause: float) -> None:
    """What a process does that may be killed."""
    torch.set_num_threads(1)
    torch.save(evaluated(folder, log, pause).loss, folder / "loss.pt")


def evaluated(folder: Path, log: Path, pause: float = 0, adaptive: float | None = None) -> Surface:
    """Return a kept surface; every evaluation of its metric leaves a line in a log."""

    def logged(output: Tensor, _: Tensor) -> Tensor:
        with log.open("a") as file:
            file.write(f"{float(output.double().sum())!r}\n")
        time.sleep(pause)
        return output[:, 0].abs()

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3))
    batches = Batches(torch.randn(9, 3), torch.randint(3, (9,)), 9)
    directions = torch.randn(2, 31, dtype=torch.float64)
    return surface(
        model, cross_entropy, batches, directions=(directions[0], directions[1]), grid=(6, 5), keep=folder,
        metrics=[logged], adaptive=adaptive,
    )  # fmt: skip


@pytest.mark.slow
def test_killed_at_random_points_it_goes_on(tmp_path: Path) -> None:
    whole = evaluated(tmp_path / "other", tmp_path / "whole.log")
    log, lines = tmp_path / "log", list[str]()
    draw = random.Random(7)
    for _ in range(3):
        process = processes().Process(target=work, args=(tmp_path, log, 0.02))
        process.start()
        wanted = len(lines) + draw.randint(3, 8)
        while len(lines) < wanted and process.is_alive():
            time.sleep(0.002)
            lines = log.read_text().splitlines() if log.exists() else []
        process.kill()
        process.join()
        assert process.exitcode == -signal.SIGKILL
    last = processes().Process(target=work, args=(tmp_path, log, 0))
    last.start()
    last.join()
    assert last.exitcode == 0
    assert torch.equal(torch.load(tmp_path / "loss.pt"), whole.loss)
    values = log.read_text().splitlines()
    first = set(values[:2])  # the origin, and the grid's corner: each run begins there
    others = [value for value in values if value not in first]
    assert [values.count(value) for value in first] == [4, 4]
    # A kill may fall between an evaluation and its writing: one point of each run at most is lost.
    assert 29 <= len(others) <= 29 + 3
    assert len(set(others)) == 29


def test_a_finished_surface_is_found(tmp_path: Path) -> None:
    first = evaluated(tmp_path, tmp_path / "log")
    (tmp_path / "log").unlink()
    again = evaluated(tmp_path, tmp_path / "log")
    assert torch.equal(again.loss, first.loss)
    assert torch.equal(again.metrics["logged"], first.metrics["logged"])
    assert len((tmp_path / "log").read_text().splitlines()) == 2  # they say what it is
    (tmp_path / "log").unlink()
    adaptive = evaluated(tmp_path, tmp_path / "log", adaptive=0.5)
    assert len((tmp_path / "log").read_text().splitlines()) == 2  # points of another grid of the same slice
    assert adaptive.computed is None or bool((adaptive.loss == first.loss)[adaptive.computed].all())


def test_a_damaged_row_is_evaluated_again(tmp_path: Path) -> None:
    first = evaluated(tmp_path, tmp_path / "log")
    (path,) = (tmp_path / "points").iterdir()
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    (tmp_path / "log").unlink()
    assert torch.equal(evaluated(tmp_path, tmp_path / "log").loss, first.loss)
    assert len((tmp_path / "log").read_text().splitlines()) == 3


def _kept(folder: Path, **changes: object) -> None:
    torch.manual_seed(0)
    activation, shift = changes.pop("activation", nn.Tanh()), changes.pop("shift", 0.0)
    assert isinstance(activation, nn.Module)
    first, norm = nn.Linear(3, 4), nn.BatchNorm1d(4)
    model = nn.Sequential(first, norm, activation, nn.Linear(4, 3))
    inputs, targets = torch.randn(9, 3), torch.randint(3, (9,))
    vector = torch.randn(39)
    with torch.no_grad():
        first.weight[0, 0] += shift if isinstance(shift, float) else 0.0
        if changes.pop("statistics", False):
            norm.get_buffer("running_mean")[0] += 1e-3
        if changes.pop("sample", False):
            inputs[8, 0] += 1e-3
        if changes.pop("label", False):
            targets[8] = (targets[8] + 1) % 3
        if changes.pop("turned", False):
            vector[38] += 1e-3
    size = changes.pop("batch_size", 9)
    assert isinstance(size, int)
    given: dict[str, object] = {"loss_fn": cross_entropy, "directions": (vector,), "grid": 1, **changes}
    surface(model, batches=Batches(inputs, targets, size), keep=folder, **given)  # type: ignore[arg-type]


def _weighted(output: Tensor, targets: Tensor) -> Tensor:
    return cross_entropy(output, targets, label_smoothing=0.01)


OTHERS: dict[str, dict[str, object]] = {
    "weights": {"shift": 1e-6},
    "statistics": {"statistics": True},
    "sample": {"sample": True},
    "label": {"label": True},
    "batches": {"batch_size": 5},
    "direction": {"turned": True},
    "network": {"activation": nn.Hardtanh()},
    "loss": {"loss_fn": _weighted},
    "metric": {"metrics": ["accuracy"]},
    "batch norm": {"bn": "recalibrate"},
    "precision": {"precision": "bf16"},
}


def _files(folder: Path) -> set[str]:
    return {path.name for path in (folder / "points").iterdir()}


def test_another_problem_never_finds_these_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _kept(tmp_path)
    _kept(tmp_path)
    known = _files(tmp_path)
    assert len(known) == 1

    def is_new(make: Callable[[], object]) -> bool:
        before = _files(tmp_path)
        make()
        return len(_files(tmp_path)) == len(before) + 1

    for name, change in OTHERS.items():
        assert is_new(lambda change=dict(change): _kept(tmp_path, **change)), name  # type: ignore[misc]
    monkeypatch.setattr(surroundings, "code", lambda: "changed")
    assert is_new(lambda: _kept(tmp_path)), "code"
    _kept(tmp_path, grid=3)  # another grid of the same slice has the same rows
    assert len(_files(tmp_path)) == len(OTHERS) + 2


@pytest.mark.parametrize("what", ["loss_fn", "metrics"])
def test_a_number_that_differs_far_from_the_origin_only_is_another(tmp_path: Path, what: str) -> None:
    def cut(height: float) -> object:
        def number(output: Tensor, targets: Tensor) -> Tensor:
            return cross_entropy(output, targets, reduction="none").clamp(max=height).mean()

        return number if what == "loss_fn" else {"cut": number}

    for height in (2.0, 40.0):  # of the samples at the origin 1.4, a unit away 2.4
        _kept(tmp_path, **{what: cut(height)})
    assert len(_files(tmp_path)) == 2
