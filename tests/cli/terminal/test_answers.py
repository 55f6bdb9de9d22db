"""A `hessian` that was measured before is answered without PyTorch, as the long way answers it."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedscope.checkpoints.registry.run_registry import RunFolder
from fedscope.cli import data, figures
from fedscope.cli.runs import show as runs_show
from fedscope.errors import UserError
from fedscope.workflows import catalogues
from fedscope.workflows.curvature import hessian_command
from fedscope.workflows.results import answer_files, stored_answers
from tests.cli.conftest import Command, Outcome

ASKED = ("hessian", "tiny", "--samples", "16", "--probes", "2", "--tol", "0.5", "--batch-size", "8")
SEVERAL = ("hessian", "tiny@1", "tiny@best", *ASKED[2:], "--top-k", "2", "--layers")
CLIENTS = (*ASKED, "--clients", "--client-probes", "3")
Measured = list[answer_files.AnswerFile | None]


@pytest.fixture(scope="module")
def run(perceptron: RunFolder) -> RunFolder:
    return perceptron


@pytest.fixture
def registry(run: RunFolder, tmp_path: Path, fedscope: Command, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The session's run in a registry of the test's own, and a process that has not imported PyTorch yet."""
    shutil.copytree(run.folder, tmp_path / "own" / run.name)
    monkeypatch.setenv("FEDSCOPE_REGISTRY", "own")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))  # else PyTorch sets it when first used
    monkeypatch.setattr(answer_files, "has_torch", lambda: False)
    return tmp_path / "own"


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> Measured:
    """What went the long way, which here measures nothing."""
    found: Measured = []
    places: Measured = []
    place = answer_files.place

    def looked_up(*asked: Any) -> answer_files.AnswerFile | None:
        places.append(place(*asked))
        return places[-1]

    def measure(*_: object, **__: object) -> list[object]:
        found.append(places.pop() if places else None)
        return []

    monkeypatch.setattr(answer_files, "place", looked_up)
    monkeypatch.setattr(hessian_command, "curvature", measure)
    return found


def _without_torch(*commands: tuple[str, ...], drawing: bool = False) -> list[Outcome]:
    heavy = {"torch"} if drawing else {"torch", "scipy", "matplotlib"}
    code = f"""
import contextlib, io, json, sys
from fedscope.cli.main import call
for words in {commands!r}:
    with contextlib.redirect_stderr(io.StringIO()) as err, contextlib.redirect_stdout(io.StringIO()) as out:
        code = call(words)
    assert not {heavy!r} & set(sys.modules), words
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
    monkeypatch.setattr(answer_files, "has_torch", lambda: True)
    assert given == [fedscope(*words) for words in asked]
    assert file == Path("a.json").read_bytes()
    assert "as measured before" in given[0].err
    assert "on all 360 samples, fewer than --samples 400" in given[-1].err
    assert all(record["reused"] for record in json.loads(given[4].out))


def test_a_part_of_a_larger_result_is_kept_by_itself_and_then_needs_no_torch(
    fedscope: Command, registry: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "90")
    wide = fedscope(*CLIENTS, "--top-k", "2", "--json").json
    part = fedscope(*ASKED, "--json").json
    assert part["reused"]
    assert part["lambda_max"] == wide["lambda_max"]
    assert (len(part["eigenvalues"]), part["cross_client"]) == (1, None)
    (given,) = _without_torch((*ASKED, "--json"))
    assert json.loads(given.out) == part


PLANE = ("plot-landscape", "tiny", "--grid", "5", *ASKED[2:4], *ASKED[8:], "--directions", "random")


def test_a_plane_is_drawn_again_without_torch(fedscope: Command, registry: Path) -> None:
    first = fedscope(*PLANE, "--out", "a.png", "--json", "a.json")
    assert first.code == 0, first.err
    again, contours = _without_torch(
        (*PLANE, "--out", "b.png", "--json", "b.json"),
        (*PLANE, "--out", "c.svg", "--kind", "contour"),
        drawing=True,
    )
    assert (again.code, contours.code, Path("c.svg").exists()) == (0, 0, True)
    assert Path("b.json").read_text() == Path("a.json").read_text()
    assert Path("b.png").read_bytes() == Path("a.png").read_bytes()
    assert set(again.err.splitlines()) <= set(first.err.splitlines())  # the same notes, and no long step


@pytest.mark.parametrize(
    "more", [("--recompute",), ("--grid", "3"), ("--bn", "batch"), ("--metric", "mine:metric")]
)
def test_another_plane_is_not_answered(
    fedscope: Command,
    registry: Path,
    code: Callable[[str, str], Path],
    monkeypatch: pytest.MonkeyPatch,
    more: tuple[str, ...],
) -> None:
    code("mine", "def metric(outputs, targets):\n    return outputs.amax(1)\n")
    assert fedscope(*PLANE, "--out", "a.png").code == 0
    computed = list[object]()

    def compute(*asked: object, **_: object) -> list[object]:
        computed.append(asked)
        return []

    monkeypatch.setattr("fedscope.workflows.landscape.landscape_command.landscapes", compute)
    assert fedscope(*PLANE, "--out", "a.png").code == 0
    assert computed == []
    assert fedscope(*PLANE, "--out", "a.png", *more).code == 0
    assert len(computed) == 1


def test_a_block_of_the_parameters_is_no_part_of_all(fedscope: Command, registry: Path) -> None:
    block = fedscope(*ASKED, "--parameters", "fc2*", "--json").json
    whole = fedscope(*ASKED, "--json").json
    assert block["lambda_max"]["value"] != whole["lambda_max"]["value"]
    assert not whole["reused"]


@pytest.mark.parametrize(
    "more",
    [("--seed", "1"), ("--samples", "65"), ("--bn", "batch"), ("--dtype", "float64"), ("--threads", "1"),
     ("--split", "test"), ("--top-k", "2"), ("--data-dir", "."), ("--device", "cuda")],
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
     ("--engine", "pyhessian"), ("--loss", "m:l")],
    ids=" ".join,
)  # fmt: skip
def test_what_may_change_unseen_goes_the_long_way(
    fedscope: Command, registry: Path, measured: Measured, more: tuple[str, ...]
) -> None:
    assert fedscope(*ASKED, *more).err == ""
    assert measured == [None]


@pytest.mark.parametrize("what", ["extended", "torch", "torchrun"])
def test_so_does_another_package_or_one_of_several_processes(
    fedscope: Command, registry: Path, measured: Measured, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    if what == "extended":
        monkeypatch.setattr(catalogues, "extended", lambda: True)
    if what == "torch":
        monkeypatch.setattr(answer_files, "has_torch", lambda: True)
    if what == "torchrun":
        monkeypatch.setenv("WORLD_SIZE", "2")
    fedscope(*ASKED)
    assert measured == [None]


@pytest.fixture
def kept(fedscope: Command, registry: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], bool]:
    """Say whether the answer of ASKED, which is measured once, is given again."""
    assert fedscope(*ASKED).code == 0

    def given() -> bool:
        seen: list[Any] = []
        with monkeypatch.context() as patch:
            patch.setattr(hessian_command, "curvature", lambda *asked, **_: seen.extend(asked[2:]))
            fedscope(*ASKED)
        return not seen

    assert given()
    return given


def _result(registry: Path) -> Path:
    (file,) = (registry / ".analysis").glob("*.json")
    return file


def _said(registry: Path) -> Path:
    """Return the file of what was said."""
    (file,) = (registry / ".analysis" / "answers").iterdir()
    return file


def test_a_change_of_what_it_rests_on_is_seen(
    kept: Callable[[], bool], registry: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in (registry / "tiny" / "final.pt", _result(registry), _said(registry)):
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
        patch.setattr("fedscope.extras.versions", lambda _: {})
        assert not kept()
    Path("nvidia0").touch()  # a GPU came
    with monkeypatch.context() as patch:
        patch.setattr(answer_files, "DEVICES", Path())
        assert not kept()
    assert kept()
    _result(registry).unlink()
    assert not kept()


def test_a_list_is_made_anew_where_a_file_came_or_changed(
    fedscope: Command, registry: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[tuple[object, ...]] = []

    def make(*given: object) -> stored_answers.Answer:
        made.append(given)
        return stored_answers.Answer([])

    for module, name in ((runs_show, "_described"), (figures, "_listed"), (data, "_listed")):
        monkeypatch.setattr(module, name, make)
    monkeypatch.setenv("FEDSCOPE_CACHE", "cache")
    monkeypatch.delenv("FEDSCOPE_DATA", raising=False)
    Path("sets").mkdir()
    asked = (
        ("runs", "show", "tiny"),
        ("figures", "list"),
        ("data", "list"),
        ("data", "list", "--data-dir", "sets"),
    )

    def again() -> list[int]:
        found = []
        for words in asked:
            made.clear()
            assert fedscope(*words).code == 0
            found.append(len(made))
        return found

    assert (again(), again()) == ([1, 1, 1, 1], [0, 0, 0, 0])
    (registry / "tiny" / "tags").mkdir(exist_ok=True)
    (registry / "tiny" / "tags" / "mine").touch()
    assert (again(), again()) == ([1, 1, 0, 0], [0, 0, 0, 0])
    (registry / "other").mkdir()
    (registry / "other" / "manifest.json").touch()
    assert again() == [0, 1, 0, 0]
    Path("sets/cifar10").mkdir()
    Path("sets/cifar10/train-00000-of-00001.parquet").touch()
    assert again() == [0, 0, 0, 1]
    fetched = Path("cache/cifar10-hub")
    fetched.mkdir()
    (fetched / "meta.json").touch()
    assert again() == [0, 0, 1, 1]
    monkeypatch.setattr(catalogues, "extended", lambda: True)
    assert (again(), again()) == ([1, 1, 1, 1], [1, 1, 1, 1])


def test_a_deleted_result_is_measured_anew(fedscope: Command, registry: Path) -> None:
    assert not fedscope(*ASKED, "--json").json["reused"]
    _result(registry).unlink()
    assert not fedscope(*ASKED, "--json").json["reused"]


def test_the_clients_files_are_looked_at_where_they_are_compared(registry: Path) -> None:
    final, client = registry / "tiny" / "final.pt", registry / "tiny" / "clients" / "0001.pt"
    before = [answer_files.rests_on([final], None, clients=clients) for clients in (False, True)]
    assert None not in before
    client.write_bytes(client.read_bytes())
    after = [answer_files.rests_on([final], None, clients=clients) for clients in (False, True)]
    assert (before[0] == after[0], before[1] == after[1]) == (True, False)


def test_a_data_folder_is_looked_at_as_a_whole(cifar_dir: Path, tmp_path: Path) -> None:
    shutil.copytree(cifar_dir / "cifar10", tmp_path / "cifar10")
    assert answer_files._data("digits", None) == []
    (folder,) = answer_files._data("cifar10", tmp_path)
    assert folder == tmp_path / "cifar10"
    first = stored_answers.stamp(folder)
    assert first == stored_answers.stamp(folder)
    (folder / "more").write_text("")
    second = stored_answers.stamp(folder)
    next(file for file in folder.rglob("*") if file.stat().st_size).touch()
    assert len({first, second, stored_answers.stamp(folder)}) == 3
    for name, data_dir in (("digits", tmp_path), ("cifar10", folder), ("cifar100", tmp_path)):
        with pytest.raises(UserError):
            answer_files._data(name, data_dir)


def test_a_large_folder_and_a_foreign_file_have_no_stamp(
    registry: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "foreign.pt").write_bytes(b"no checkpoint")
    assert answer_files.rests_on([tmp_path / "foreign.pt"], None, clients=False) is None
    monkeypatch.setattr(stored_answers, "MOST", 1)
    assert stored_answers.stamps([registry]) is None
