"""A `hessian` that was measured before is answered without PyTorch, as the long way answers it."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedscope.checkpoints.registry import Run
from fedscope.cli import answers, catalogues, measuring
from fedscope.errors import UserError
from tests.cli.conftest import Command, Outcome

ASKED = ("hessian", "tiny", "--samples", "16", "--probes", "2", "--tol", "0.5", "--batch-size", "8")
SEVERAL = ("hessian", "tiny@1", "tiny@best", *ASKED[2:], "--top-k", "2", "--layers")
CLIENTS = (*ASKED, "--clients", "--client-probes", "3")
Measured = list[answers.Place | None]


@pytest.fixture
def registry(run: Run, tmp_path: Path, fedscope: Command, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The session's run in a registry of the test's own, and a process that has not imported PyTorch yet."""
    shutil.copytree(run.folder, tmp_path / "own" / run.name)
    monkeypatch.setenv("FEDSCOPE_REGISTRY", "own")
    monkeypatch.setattr(answers, "has_torch", lambda: False)
    return tmp_path / "own"


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> Measured:
    """What went the long way, which here measures nothing."""
    found: Measured = []
    monkeypatch.setattr(measuring, "run", lambda place, **_: found.append(place))
    return found


def _without_torch(*commands: tuple[str, ...]) -> list[Outcome]:
    code = f"""
import contextlib, io, json, sys
from fedscope.cli.main import call
for words in {commands!r}:
    with contextlib.redirect_stderr(io.StringIO()) as err, contextlib.redirect_stdout(io.StringIO()) as out:
        code = call(words)
    assert not {{"torch", "scipy", "matplotlib"}} & set(sys.modules), words
    print(json.dumps([code, out.getvalue(), err.getvalue()]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [Outcome(*json.loads(line)) for line in done.stdout.splitlines()]


def test_the_second_time_needs_no_torch_and_says_the_same(
    fedscope: Command, registry: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(registry / "tiny" / "best.pt", registry / "tiny" / "round-0001.pt")
    monkeypatch.setenv("COLUMNS", "90")
    measured = (ASKED, SEVERAL, CLIENTS, ("hessian", "--split", "test", "--samples", "400", *ASKED[4:8]))
    asked = [(*words, *more) for words in measured for more in ((), ("--json",), ("--json", "a.json", "-v"))]
    for words in measured:
        assert fedscope(*words).code == 0
    given = _without_torch(*asked)
    file = Path("a.json").read_bytes()
    monkeypatch.setattr(answers, "has_torch", lambda: True)
    assert given == [fedscope(*words) for words in asked]
    assert file == Path("a.json").read_bytes()
    assert "as measured before" in given[0].err
    assert "on all 360 samples, fewer than --samples 400" in given[-1].err
    assert all(record["reused"] for record in json.loads(given[4].out))


@pytest.mark.parametrize(
    "more",
    [("--seed", "1"), ("--samples", "65"), ("--bn", "batch"), ("--dtype", "float64"), ("--threads", "1"),
     ("--split", "test"), ("--top-k", "2"), ("--data-dir", ".")],
    ids=" ".join,
)  # fmt: skip
def test_another_option_is_another_question(
    fedscope: Command, registry: Path, measured: Measured, more: tuple[str, str]
) -> None:
    fedscope(*ASKED)
    fedscope(*ASKED, "--json", "a.json")
    fedscope(*ASKED, *more)
    first, again, other = measured
    assert first == again != other
    assert other


@pytest.mark.parametrize(
    "more",
    [("--recompute",), ("--figure", "a.png"), ("--model", "m:f", "--data", "m:g"), ("--reading", "code"),
     ("--engine", "pyhessian"), ("--device", "cuda"), ("--global-model", "final"), ("--loss", "m:l")],
    ids=" ".join,
)  # fmt: skip
def test_what_may_change_unseen_goes_the_long_way(
    fedscope: Command, registry: Path, measured: Measured, more: tuple[str, ...]
) -> None:
    assert fedscope(*ASKED, *more).err == ""
    assert measured == [None]


@pytest.mark.parametrize("what", ["extended", "torch", "gpu"])
def test_so_does_another_package_or_a_gpu(
    fedscope: Command, registry: Path, measured: Measured, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    if what == "extended":
        monkeypatch.setattr(catalogues, "extended", lambda: True)
    if what == "torch":
        monkeypatch.setattr(answers, "has_torch", lambda: True)
    if what == "gpu":
        monkeypatch.setattr(answers, "GPUS", ("/dev/null",))
    fedscope(*ASKED)
    assert measured == [None]


@pytest.fixture
def kept(fedscope: Command, registry: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], bool]:
    """Say whether the answer of ASKED, which is measured once, is given again."""
    assert fedscope(*ASKED).code == 0

    def given() -> bool:
        seen: list[Any] = []
        with monkeypatch.context() as patch:
            patch.setattr(measuring, "run", lambda place, **_: seen.append(place))
            fedscope(*ASKED)
        return not seen

    assert given()
    return given


def _result(registry: Path) -> Path:
    (file,) = (registry / ".analysis").glob("*.json")
    return file


def _answer(registry: Path) -> Path:
    (file,) = (registry / ".analysis" / "answers").iterdir()
    return file


def test_a_change_of_what_it_rests_on_is_seen(
    kept: Callable[[], bool], registry: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in (registry / "tiny" / "final.pt", _result(registry), _answer(registry)):
        before = path.read_bytes()
        digit = before.replace(b"0", b"1", 1)
        assert len(digit) == len(before)
        for content in (digit, before[:-9], b""):
            path.write_bytes(content)
            assert not kept(), (path, content[:9])
        path.write_bytes(before)
        assert kept()
    with monkeypatch.context() as patch:
        patch.setattr(catalogues, "source", lambda: "other")
        assert not kept()
    with monkeypatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "2")
        assert not kept()
    with monkeypatch.context() as patch:
        patch.setattr(answers, "version", lambda _: "0")
        assert not kept()
    assert kept()
    _result(registry).unlink()
    assert not kept()


def test_a_deleted_result_is_measured_anew(fedscope: Command, registry: Path) -> None:
    assert not fedscope(*ASKED, "--json").json["reused"]
    _result(registry).unlink()
    assert not fedscope(*ASKED, "--json").json["reused"]


def test_the_clients_files_are_looked_at_where_they_are_compared(registry: Path) -> None:
    final, client = registry / "tiny" / "final.pt", registry / "tiny" / "clients" / "0001.pt"
    before = [answers.rests_on([final], None, clients=clients) for clients in (False, True)]
    assert None not in before
    client.write_bytes(client.read_bytes())
    after = [answers.rests_on([final], None, clients=clients) for clients in (False, True)]
    assert (before[0] == after[0], before[1] == after[1]) == (True, False)


def test_a_data_folder_is_looked_at_as_a_whole(cifar_dir: Path, tmp_path: Path) -> None:
    shutil.copytree(cifar_dir / "cifar10", tmp_path / "cifar10")
    assert answers._data("digits", None) == []
    (folder,) = answers._data("cifar10", tmp_path)
    assert folder == tmp_path / "cifar10"
    first = answers.stamp(folder)
    assert first == answers.stamp(folder)
    (folder / "more").write_text("")
    second = answers.stamp(folder)
    next(file for file in folder.rglob("*") if file.stat().st_size).touch()
    assert len({first, second, answers.stamp(folder)}) == 3
    for name, data_dir in (("digits", tmp_path), ("cifar10", folder), ("cifar100", tmp_path)):
        with pytest.raises(UserError):
            answers._data(name, data_dir)


def test_a_large_folder_and_a_foreign_file_have_no_stamp(
    registry: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "foreign.pt").write_bytes(b"no checkpoint")
    assert answers.rests_on([tmp_path / "foreign.pt"], None, clients=False) is None
    monkeypatch.setattr(answers, "MOST", 1)
    assert answers.stamps([registry]) is None
