"""The runs that come with the source: what git has of them, and their lists, by which they can be pulled."""

import subprocess
from pathlib import Path

import pytest

from fedscope.checkpoints.file import layout
from fedscope.checkpoints.file.checkpoint import load_checkpoint
from fedscope.checkpoints.registry.contents import File
from fedscope.checkpoints.registry.run_registry import RunRegistry
from fedscope.checkpoints.travel.places import remote, runs_at
from fedscope.checkpoints.travel.pull import pull_run
from fedscope.checkpoints.travel.push import read_list
from fedscope.checkpoints.verification.verify import verify_run

PROJECT = Path(__file__).parents[1]
PAPERS = PROJECT / "checkpoints" / "papers"
MOST = 29_000_000  # bytes of all committed checkpoints
MOST_OF_REFERENCES = 1_202_000  # bytes of the two runs that examples are of


def git(*arguments: str) -> list[str]:
    if not (PROJECT / ".git").exists():
        pytest.skip("this is no checkout of the repository")
    done = subprocess.run(["git", "-C", str(PROJECT), *arguments], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_git_ignores_nothing_that_is_committed() -> None:
    assert git("ls-files", "--cached", "--ignored", "--exclude-standard") == []


def test_what_only_a_rebuild_needs_is_not_committed() -> None:
    committed = git("ls-files", "checkpoints")
    assert sum((PROJECT / name).stat().st_size for name in committed) <= MOST
    assert not [name for name in committed if "/state/" in name or "/latest/" in name]
    for name in ("state/round-0001/clients.f32", "latest/round-0001/state.json", ".lock"):
        assert git("check-ignore", f"checkpoints/papers/a/{name}")


def test_the_reference_runs_are_small_and_hold_what_examples_ask_of_them() -> None:
    registry = RunRegistry(PROJECT / "checkpoints")
    runs = [registry.run(name) for name in ("reference-fedavg", "reference-fedavg+man")]
    sizes = [(run.folder / name).stat().st_size for run in runs for name in layout.files(run.folder)]
    assert sum(sizes) <= MOST_OF_REFERENCES
    for run in runs:
        assert list(verify_run(run)) == []
        assert (run.rows().is_file(), len(run.clients())) == (True, 4)  # H_N needs no rows drawn again


def test_a_published_run_is_finished_with_its_weights_and_without() -> None:
    for run in RunRegistry(PAPERS).folders():
        manifest = run.manifest()
        assert run.status(manifest) == "finished"
        for name in ("best.pt", "final.pt"):
            known = manifest.checkpoints_deleted.get(name)
            assert known is None or not run.at(name).exists() or load_checkpoint(run.at(name)).sha256 == known


def test_the_lists_are_of_what_is_here(tmp_path: Path) -> None:
    place, results = remote(str(PAPERS)), set[str]()
    assert runs_at(place) == [run.name for run in RunRegistry(PAPERS).folders()]
    for name in runs_at(place):
        run, listed = RunRegistry(PAPERS).run(name), read_list(place, name).files
        assert {file: File.from_path(run.at(file)) for file in listed} == listed
        here = {file for file in listed if not layout.is_result(file)}
        assert set(layout.files(run.folder)) == here
        results |= listed.keys() - here
    assert results == {f"{layout.ANALYSIS}/{path.name}" for path in (PAPERS / layout.ANALYSIS).glob("*.json")}
    name = min(runs_at(place), key=lambda name: read_list(place, name).size)
    assert pull_run(RunRegistry(tmp_path), place, name, lambda *_: None).moved > 0
