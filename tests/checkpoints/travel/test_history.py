"""`git:`: models that were deleted from a registry in a repository, from the commits that hold them."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from fedscope.checkpoints.file.checkpoint import load_checkpoint, save_checkpoint
from fedscope.checkpoints.registry.deletion import delete_checkpoints
from fedscope.checkpoints.registry.run_registry import RunFolder, RunRegistry
from fedscope.checkpoints.travel.history import history, pull_deleted
from fedscope.checkpoints.travel.push import Journey
from fedscope.checkpoints.verification.verify import elsewhere, verify_run
from fedscope.errors import UserError
from tests.checkpoints.cases import info, small_run, state

REGISTRY = Path("kept here")  # in the repository
BOTH = ["best.pt", "final.pt"]


def git(folder: Path, *arguments: str) -> str:
    named = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main")
    command = ["git", "-C", str(folder), *named, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def committed(folder: Path) -> None:
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "a state")


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository: a run was committed, then its models were deleted, then a page was written."""
    folder = tmp_path_factory.mktemp("origin") / "a repository"
    run = small_run(folder / REGISTRY)
    git(folder, "init", "--quiet")
    git(folder, "config", "uploadpack.allowFilter", "true")
    committed(folder)
    delete_checkpoints(run, BOTH)
    committed(folder)
    (folder / "page.md").write_text("A page.")
    committed(folder)
    return folder


CLONES: dict[str, list[str]] = {
    "whole": [],
    "partial": ["--filter=blob:none"],
    "shallow": ["--depth", "1"],
    "both": ["--depth", "1", "--filter=blob:none"],
}


def cloned(origin: Path, folder: Path, kind: str) -> RunFolder:
    git(folder, "clone", "--quiet", *CLONES[kind], origin.as_uri(), "clone")
    return RunRegistry(folder / "clone" / REGISTRY).run("small")


def pulled(run: RunFolder) -> Journey:
    with history(run.root) as commits:
        return pull_deleted(run, commits, lambda *_: None)


def files(folder: Path) -> dict[str, bytes]:
    found = (path for path in folder.rglob("*") if path.is_file() and ".git" not in path.parts)
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}


@pytest.mark.parametrize("kind", CLONES)
def test_every_kind_of_clone_has_its_models_back(kind: str, origin: Path, tmp_path: Path) -> None:
    run = cloned(origin, tmp_path, kind)
    before = files(run.root)
    assert (elsewhere(run), list(verify_run(run)), run.status(run.manifest())) == (BOTH, [], "finished")
    journey = pulled(run)
    assert (journey.files, journey.moved, journey.nowhere) == (2, 2, ())
    assert journey.moved_bytes == journey.bytes == sum((run.folder / name).stat().st_size for name in BOTH)
    hashes = {name: load_checkpoint(run.folder / name).sha256 for name in BOTH}
    assert hashes == run.manifest().checkpoints_deleted
    assert {name: content for name, content in files(run.root).items() if not name.endswith(".pt")} == before
    assert (elsewhere(run), list(verify_run(run))) == ([], [])
    assert sorted(path.name for path in run.root.iterdir()) == ["small"]
    assert pulled(run).moved == 0
    delete_checkpoints(run, BOTH)
    assert elsewhere(run) == BOTH


def test_a_shallow_clone_stays_as_it_was(origin: Path, tmp_path: Path) -> None:
    run = cloned(origin, tmp_path, "shallow")
    top = run.root.parent
    before = git(top, "rev-list", "--all"), git(top, "config", "--list"), git(top, "count-objects", "-v")
    pulled(run)
    assert (
        git(top, "rev-list", "--all"),
        git(top, "config", "--list"),
        git(top, "count-objects", "-v"),
    ) == before


def test_a_model_that_was_never_committed_is_said(origin: Path, tmp_path: Path) -> None:
    run = cloned(origin, tmp_path, "whole")
    known = {**run.manifest().checkpoints_deleted, "round-0002.pt": "0" * 64}
    run.write_manifest(run.manifest().model_copy(update={"checkpoints_deleted": known}))
    journey = pulled(run)
    assert (journey.files, journey.moved, journey.nowhere) == (2, 2, ("round-0002.pt",))


def test_a_model_of_an_earlier_run_of_the_name_is_not_taken(origin: Path, tmp_path: Path) -> None:
    run = cloned(origin, tmp_path, "whole")
    run.write_manifest(run.manifest().model_copy(update={"created": "2026-02-02T00:00:00+00:00"}))
    journey = pulled(run)
    assert (journey.moved, journey.nowhere, elsewhere(run)) == (0, tuple(BOTH), BOTH)
    with history(run.root) as commits, pytest.raises(UserError, match=r"no commit .* holds best\.pt, final"):
        pull_deleted(run, commits, lambda *_: None, needed=True)


def no_git(run: RunFolder, _origin: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setenv("PATH", str(run.root))


def no_repository(run: RunFolder, _origin: Path, patch: pytest.MonkeyPatch) -> None:
    shutil.rmtree(run.root.parent / ".git")
    patch.setenv("GIT_CEILING_DIRECTORIES", str(run.root.parents[1]))


def no_origin(run: RunFolder, _origin: Path, _patch: pytest.MonkeyPatch) -> None:
    git(run.root, "remote", "remove", "origin")


def no_network(run: RunFolder, origin: Path, _patch: pytest.MonkeyPatch) -> None:
    git(run.root, "remote", "set-url", "origin", f"{origin.as_uri()}-away")


def refused(run: RunFolder, origin: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setenv("GIT_ALLOW_PROTOCOL", "https")


def another(run: RunFolder, _origin: Path, _patch: pytest.MonkeyPatch) -> None:
    known = {**run.manifest().checkpoints_deleted, "final.pt": "0" * 64}
    run.write_manifest(run.manifest().model_copy(update={"checkpoints_deleted": known}))


def damaged(run: RunFolder, _origin: Path, _patch: pytest.MonkeyPatch) -> None:
    (run.folder / "final.pt").write_bytes(b"no model")
    committed(run.root.parent)
    (run.folder / "final.pt").unlink()


Broken = Callable[[RunFolder, Path, pytest.MonkeyPatch], None]
BAD: list[tuple[str, Broken, str]] = [
    ("whole", no_git, "not found; install it"),
    ("whole", no_repository, "no repository"),
    ("shallow", no_origin, "no remote 'origin'"),
    ("shallow", no_network, "cannot fetch the history of this shallow clone"),
    ("shallow", refused, "cannot fetch the history of this shallow clone"),
    ("partial", no_network, r"cannot read .*small/"),
    ("partial", no_origin, r"cannot read .*small/"),
    ("whole", another, "its hash is not the manifest's; nothing was changed"),
    ("shallow", another, "its hash is not the manifest's; nothing was changed"),
    ("whole", damaged, r"final\.pt"),
]


@pytest.mark.parametrize(("kind", "broken", "says"), BAD)
def test_what_cannot_be_had_is_one_line_and_nothing_is_written(
    kind: str, broken: Broken, says: str, origin: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = cloned(origin, tmp_path, kind)
    broken(run, origin, monkeypatch)
    before = files(run.root)
    with pytest.raises(UserError, match=says) as told:
        pulled(run)
    assert "\n" not in str(told.value)
    assert files(run.root) == before
    assert sorted(path.name for path in run.root.iterdir()) == ["small"]


def test_a_run_that_is_trained_is_left_alone(origin: Path, tmp_path: Path) -> None:
    run = cloned(origin, tmp_path, "whole")
    with run.locked(), pytest.raises(UserError, match="another process"):
        pulled(run)
    assert elsewhere(run) == BOTH


def test_another_model_in_its_place_is_a_fault(origin: Path, tmp_path: Path) -> None:
    run = cloned(origin, tmp_path, "whole")
    about = info("small", 3).model_copy(update={"metrics": {"accuracy": 0.75}})
    save_checkpoint(run.final, state(9.0), about)
    assert [fault.path for fault in verify_run(run)] == ["small/final.pt"]


def test_the_environment_of_a_hook_is_not_taken(
    origin: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = cloned(origin, tmp_path, "whole")
    monkeypatch.setenv("GIT_DIR", os.devnull)
    assert pulled(run).moved == 2
