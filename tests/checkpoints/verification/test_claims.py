"""Forged runs, every hash of them right: `verify` names the file and the claim, and `import` takes none."""

import hashlib
import json
import shutil
import zipfile
from pathlib import Path

import pytest

from fedscope.checkpoints.file import layout
from fedscope.checkpoints.file.formats import ARCHIVE_FORMAT, seal
from fedscope.checkpoints.registry.run_registry import RunFolder, RunRegistry
from fedscope.checkpoints.travel.archive import export_run, import_run
from fedscope.checkpoints.verification.verify import verify_run
from fedscope.errors import UserError
from fedscope.federated.server.run_rounds import train
from fedscope.federated.setup.federation import open_run, prepare
from tests.checkpoints.forgeries import FORGED, forged
from tests.checkpoints.forging import SETTINGS, put


@pytest.fixture(scope="session")
def honest(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A run that holds every kind of file: two of three clients in each of two rounds."""
    registry = RunRegistry(tmp_path_factory.mktemp("claims"))
    federation = prepare(SETTINGS, {})
    run = open_run(federation, registry, "forged", resume=False)
    train(federation, run, lambda _: None)
    run.tag("good")
    return run


def archived(run: RunFolder, path: Path) -> None:
    """Write the archive of a run as one who wants it believed."""
    held = {name: (run.folder / name).read_bytes() for name in layout.files(run.folder)}
    files = {n: {"bytes": len(d), "sha256": hashlib.sha256(d).hexdigest()} for n, d in held.items()}
    contents = {"format": ARCHIVE_FORMAT, "run": run.name, "files": files}
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive.json", json.dumps({**contents, "sha256": seal(contents)}))
        for name, data in held.items():
            archive.writestr(name, data)


def test_an_honest_run_has_no_fault_and_travels(honest: RunFolder, tmp_path: Path) -> None:
    assert list(verify_run(honest)) == []
    export_run(honest, tmp_path / "a.zip")
    archived(honest, tmp_path / "b.zip")
    for number, name in enumerate(("a.zip", "b.zip")):
        there = import_run(RunRegistry(tmp_path / str(number)), tmp_path / name)
        assert list(verify_run(there)) == []


@pytest.mark.parametrize("how", FORGED)
def test_a_forged_run_is_named_and_not_taken(honest: RunFolder, tmp_path: Path, how: str) -> None:
    run = forged(honest, tmp_path / "here", how)
    _, file, claim = FORGED[how]
    faults = list(verify_run(run))
    assert any(file in fault.path and claim in fault.problem for fault in faults), faults
    archived(run, tmp_path / "a.zip")
    with pytest.raises(UserError) as refused:
        import_run(RunRegistry(tmp_path / "there"), tmp_path / "a.zip")
    assert str(refused.value) == f"{faults[0].path}: {faults[0].problem}"
    assert list((tmp_path / "there").iterdir()) == []


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


def test_a_forged_run_is_not_exported(honest: RunFolder, tmp_path: Path) -> None:
    run = forged(honest, tmp_path / "here", "kept: missing")
    with pytest.raises(UserError, match="missing"):
        export_run(run, tmp_path / "a.zip")
    assert not (tmp_path / "a.zip").exists()


def test_an_archive_is_compared_with_its_list(honest: RunFolder, tmp_path: Path) -> None:
    """A file that is well by itself, and not the one that was packed."""
    run = RunFolder(Path(shutil.copytree(honest.folder, tmp_path / "here" / honest.name)))
    archived(run, tmp_path / "a.zip")
    records = run.metrics()
    run.write_metrics(record.edited(workers=2) for record in records)
    archived(run, tmp_path / "b.zip")
    with (
        zipfile.ZipFile(tmp_path / "a.zip") as listed,
        zipfile.ZipFile(tmp_path / "b.zip") as holding,
        zipfile.ZipFile(tmp_path / "c.zip", "w") as mixed,
    ):
        mixed.writestr("archive.json", listed.read("archive.json"))
        for name in holding.namelist()[1:]:
            mixed.writestr(name, holding.read(name))
    import_run(RunRegistry(tmp_path / "there"), tmp_path / "b.zip")
    with pytest.raises(UserError, match=r"metrics\.jsonl .*hash"):
        import_run(RunRegistry(tmp_path / "elsewhere"), tmp_path / "c.zip")
    assert list((tmp_path / "elsewhere").iterdir()) == []
