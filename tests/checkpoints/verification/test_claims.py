"""Forged runs, every hash of them right: `verify` names the file and the claim, and `pull` takes none."""

import json
import shutil
from pathlib import Path

import pytest

from fedscope.checkpoints.file import layout
from fedscope.checkpoints.registry.contents import Contents, File
from fedscope.checkpoints.registry.deletion import delete_checkpoints
from fedscope.checkpoints.registry.run_registry import RunFolder, RunRegistry
from fedscope.checkpoints.travel.places import remote
from fedscope.checkpoints.travel.pull import pull_run
from fedscope.checkpoints.travel.push import push_run, read_list
from fedscope.checkpoints.verification.verify import verify_run
from fedscope.errors import UserError
from fedscope.federated.server.run_rounds import train
from fedscope.federated.setup.federation import open_run, prepare
from tests.checkpoints.forgeries import FORGED, forged
from tests.checkpoints.forging import SETTINGS, put
from tests.checkpoints.travel.test_travel import tree


@pytest.fixture(scope="session")
def honest(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A run that holds every kind of file: two of three clients in each of two rounds."""
    registry = RunRegistry(tmp_path_factory.mktemp("claims"))
    federation = prepare(SETTINGS, {})
    run = open_run(federation, registry, "forged", resume=False)
    train(federation, run, lambda _: None)
    run.tag("good")
    return run


def taken(run: RunFolder, folder: Path) -> RunFolder:
    """Pull a run from where one pushed it who wants it believed."""
    place = remote(str(folder / "place"))
    names = list(layout.files(run.folder))
    contents = Contents(
        run=run.name,
        files={name: File.from_path(run.folder / name) for name in names},
        created=json.loads((run.folder / "manifest.json").read_text())["created"],
    )
    for name in names:
        place.write(contents.place(name), run.folder / name, lambda _: None)
    place.write(f"runs/{run.name}.json", contents.to_bytes(), lambda _: None)
    pull_run(RunRegistry(folder / "there"), place, run.name, lambda *_: None)
    return RunFolder(folder / "there" / run.name)


def test_an_honest_run_has_no_fault_and_travels(honest: RunFolder, tmp_path: Path) -> None:
    assert list(verify_run(honest)) == []
    push_run(honest, remote(str(tmp_path / "a")), lambda *_: None)
    pull_run(RunRegistry(tmp_path), remote(str(tmp_path / "a")), honest.name, lambda *_: None)
    for there in (RunFolder(tmp_path / honest.name), taken(honest, tmp_path)):
        assert tree(there.folder) == tree(honest.folder)
        assert list(verify_run(there)) == []


@pytest.mark.parametrize("how", FORGED)
def test_a_forged_run_is_named_and_not_taken(honest: RunFolder, tmp_path: Path, how: str) -> None:
    run = forged(honest, tmp_path / "here", how)
    _, file, claim = FORGED[how]
    faults = list(verify_run(run))
    assert any(file in fault.path and claim in fault.problem for fault in faults), faults
    with pytest.raises(UserError) as refused:
        taken(run, tmp_path)
    assert str(refused.value) == f"{faults[0].path}: {faults[0].problem}"
    assert RunRegistry(tmp_path / "there").folders() == []


def test_models_that_were_deleted_are_not_missed_even_where_none_need_be(
    honest: RunFolder, tmp_path: Path
) -> None:
    run = RunFolder(Path(shutil.copytree(honest.folder, tmp_path / honest.name)))
    delete_checkpoints(run, [path.name for path in run.folder.glob("*.pt")])
    assert not list(run.folder.glob("*.pt"))
    assert list(verify_run(run)) == []
    manifest = run.manifest()
    gone = {**manifest.checkpoints_deleted, "round-0001.pt": manifest.checkpoints_deleted["round-0002.pt"]}
    run.write_manifest(manifest.model_copy(update={"checkpoints_deleted": gone}))
    assert [fault.problem for fault in verify_run(run) if "missing" in fault.problem] == []


def test_a_state_half_written_is_left_over_and_misses_nothing(honest: RunFolder, tmp_path: Path) -> None:
    run = RunFolder(Path(shutil.copytree(honest.folder, tmp_path / honest.name)))
    put(run.folder / "state" / ".round-0003.0a1b2c3d" / "clients.f32", b"")
    (fault,) = verify_run(run)
    assert "left over" in fault.problem


def test_an_interrupted_round_leaves_files_ahead_of_the_metrics_unless_the_run_ended(
    honest: RunFolder, tmp_path: Path
) -> None:
    federation = prepare(SETTINGS, {})
    run = open_run(federation, RunRegistry(tmp_path), "forged", resume=False)
    train(federation, run, lambda _: None, until=1)
    shutil.copytree(honest.folder / "round-0002", run.folder / "round-0002")
    assert list(verify_run(run)) == []
    run.write_manifest(run.manifest().model_copy(update={"diverged": 1}))
    ahead = [fault.path for fault in verify_run(run) if "knows nothing" in fault.problem]
    assert f"{run.name}/round-0002/all.pt" in ahead


def test_a_forged_run_is_not_pushed(honest: RunFolder, tmp_path: Path) -> None:
    run = forged(honest, tmp_path / "here", "kept: missing")
    with pytest.raises(UserError, match="missing"):
        push_run(run, remote(str(tmp_path / "place")), lambda *_: None)
    assert not (tmp_path / "place").exists()


def test_what_is_pulled_is_compared_with_its_list(honest: RunFolder, tmp_path: Path) -> None:
    """A file that is well by itself, and not the one that was pushed."""
    run = RunFolder(Path(shutil.copytree(honest.folder, tmp_path / "here" / honest.name)))
    run.write_metrics(record.edited(workers=2) for record in run.metrics())
    taken(run, tmp_path / "well")
    place = remote(str(tmp_path / "place"))
    push_run(honest, place, lambda *_: None)
    other = read_list(place, honest.name).place("metrics.jsonl")
    (tmp_path / "place" / other).write_bytes((run.folder / "metrics.jsonl").read_bytes())
    with pytest.raises(UserError, match=f"{other} is damaged or missing"):
        pull_run(RunRegistry(tmp_path / "there"), place, honest.name, lambda *_: None)
    assert RunRegistry(tmp_path / "there").folders() == []
