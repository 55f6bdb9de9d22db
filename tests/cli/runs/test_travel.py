"""`fedscope runs push` and `pull` as a user calls them."""

import shutil
from pathlib import Path

import pytest

from fedscope.checkpoints.registry.run_registry import RunRegistry
from fedscope.checkpoints.travel.places import remote
from fedscope.checkpoints.travel.push import push_run
from tests.checkpoints.cases import small_run
from tests.cli.conftest import Command


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The registry `here` of two runs, and the folder `place` to which they were pushed, to be copied."""
    folder = tmp_path_factory.mktemp("once")
    for name in ("a", "b"):
        push_run(small_run(folder / "here", name), remote(str(folder / "place")), lambda *_: None)
    return folder


@pytest.fixture
def command(fedscope: Command, once: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    shutil.copytree(once, tmp_path, dirs_exist_ok=True)
    monkeypatch.setenv("FEDSCOPE_REGISTRY", "here")
    return fedscope


def test_there_and_back(command: Command, tmp_path: Path) -> None:
    shutil.rmtree("place")
    done = command("runs", "push", "a", "place")
    assert (done.code, done.out) == (0, "a: 6 files, 0.0 MB; 0.0 MB sent\n")
    assert done.err.startswith("push a, kB: 13 in ")
    assert done.err.endswith(": 6 of 6 files\n")
    (again,) = command("runs", "push", "a", "a", f"file://{tmp_path}/place", "--json").json
    assert (again["run"], again["files"], again["moved"]) == ("a", 6, 0)
    assert (
        command("runs", "push", "--all", "place").out.splitlines()[0] == "a: 6 files, 0.0 MB; all was there"
    )
    done = command("runs", "pull", "--all", "place", "--registry", "there")
    assert (done.code, done.out.count("fetched")) == (0, 2)
    assert command("runs", "pull", "b", "place", "--registry", "there", "--name", "c").code == 0
    assert command("runs", "verify", "--registry", "there").out == "18 files, no fault\n"
    names = [row["name"] for row in command("runs", "list", "--registry", "there", "--json").json]
    assert sorted(names) == ["a", "b", "c"]
    assert [path.name for path in Path("there").iterdir() if path.name.startswith(".")] == []


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("push", "place"), "--all"),
        (("push", "a", "--all", "place"), "--all"),
        (("push", "c", "place"), "there is no run 'c'"),
        (
            ("push", "--all", "place", "--registry", "none"),
            "none is no folder; name a registry's folder by --registry",
        ),
        (("push", "a", "s3://KEY:SECRET@bucket"), "leave them out"),
        (("push", "a", "here/a/final.pt"), "no folder"),
        (("pull", "a", "nowhere"), "holds no pushed run"),
        (("push", "a", "https://localhost:1/runs"), "can only be pulled from; push to a folder"),
        (("pull", "a", "git:"), "finds no repository"),
        (("pull", "a", "git:", "--name", "b"), "--name has no effect"),
        (("pull", "git:"), "--all"),
        (("pull", "c", "git:"), "no run 'c'"),
        (("push", "a", "git:"), "runs cannot travel by git:"),
        (("pull", "--all", "nowhere"), "shows no pushed run"),
        (("pull", "a", "here"), "holds no pushed run"),
        (("pull", "c", "place", "--registry", "there"), "it has a, b"),
        (("pull", "B", "place", "--registry", "there"), "it has a, b; did you mean 'b'?"),
        (("pull", "a", "b", "place", "--registry", "there", "--name", "c"), "one by one"),
        (("pull", "a", "place", "--registry", "there", "--name", "../c"), "is no run name"),
        (("pull", "../a", "place", "--registry", "there"), "is no run name"),
    ],
)
def test_what_cannot_travel_is_one_line(command: Command, arguments: tuple[str, ...], says: str) -> None:
    done = command("runs", *arguments)
    assert (done.code, done.out) == (2, "")
    assert says in done.err
    assert "SECRET" not in done.err
    assert done.err.splitlines()[-1].startswith("Error: ")
    assert RunRegistry(Path("there")).folders() == []
