"""A run goes through one file, and comes out whole or not at all."""

import hashlib
import json
import shutil
import stat
import zipfile
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from fedscope.checkpoints.file.checkpoint import load_checkpoint, save_checkpoint
from fedscope.checkpoints.file.container import members
from fedscope.checkpoints.file.formats import seal
from fedscope.checkpoints.file.schema import CheckpointInfo
from fedscope.checkpoints.registry.run_registry import RunFolder, RunRegistry
from fedscope.checkpoints.travel.archive import export_run, import_run
from fedscope.checkpoints.verification.verify import verify_run
from fedscope.errors import UserError
from fedscope.workflows.export import export_safetensors, export_state_dict
from fedscope.workflows.sources.problem import load
from fedscope.workflows.sources.samples import Source
from tests.checkpoints.cases import info, small_run
from tests.checkpoints.test_damage import with_state


def content(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_an_archive_holds_all_of_a_run(tmp_path: Path) -> None:
    run = with_state(tmp_path / "here")
    (run.folder / ".half.tmp").touch()
    (run.folder / "tensorboard").mkdir()
    (run.folder / "tensorboard" / "events").touch()
    before = content(run.folder)
    export_run(run, tmp_path / "a.zip")
    export_run(run, tmp_path / "b.zip")
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()
    there = import_run(RunRegistry(tmp_path / "there"), tmp_path / "a.zip")
    assert content(there.folder) == {
        name: data for name, data in before.items() if name not in (".half.tmp", "tensorboard/events")
    }
    assert list(verify_run(there)) == []


def test_a_taken_name_is_not_overwritten(tmp_path: Path) -> None:
    run = small_run(tmp_path)
    export_run(run, tmp_path / "a.zip")
    before = content(run.folder)
    with pytest.raises(UserError, match="--name"):
        import_run(RunRegistry(tmp_path), tmp_path / "a.zip")
    assert content(run.folder) == before
    other = import_run(RunRegistry(tmp_path), tmp_path / "a.zip", "other")
    assert (other.name, other.manifest().name) == ("other", "other")
    assert list(verify_run(other)) == []
    with pytest.raises(UserError, match="is no run name"):
        import_run(RunRegistry(tmp_path), tmp_path / "a.zip", "../x")


def test_one_checkpoint_travels_alone(tmp_path: Path) -> None:
    run = small_run(tmp_path)
    export_run(run, tmp_path / "a.zip", run.best)
    alone = import_run(RunRegistry(tmp_path), tmp_path / "a.zip", "alone")
    assert [p.name for p in alone.folder.glob("*.pt")] == ["best.pt"]
    assert alone.manifest().partial
    assert not run.manifest().partial
    assert list(verify_run(alone)) == []


def test_a_damaged_run_is_not_exported(tmp_path: Path) -> None:
    run = small_run(tmp_path)
    run.best.write_bytes(run.best.read_bytes()[:-2000])
    with pytest.raises(UserError, match=r"best\.pt .*damaged"):
        export_run(run, tmp_path / "a.zip")
    assert not (tmp_path / "a.zip").exists()


def rewritten(source: Path, target: Path, files: dict[str, bytes], **options: int) -> None:
    """Write an archive that lists and holds other files, with every hash right."""
    with zipfile.ZipFile(source) as old:
        held = {name: old.read(name) for name in old.namelist()} | files
    contents = json.loads(held.pop("archive.json"))
    contents.pop("sha256")
    contents["files"] = {
        name: {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()} for name, data in held.items()
    }
    with zipfile.ZipFile(target, "w", **options) as new:  # type: ignore[call-overload]
        new.writestr("archive.json", json.dumps({**contents, "sha256": seal(contents)}))
        for name, data in held.items():
            new.writestr(name, data)


@pytest.mark.parametrize(
    "name",
    ["../evil", "/tmp/evil", "..", "a\\..\\evil", "C:evil", "clients/../../evil", "con", "evil.py",
     "./final.pt", "tags/con", "tags/a/b", "tags/..", "state/round-0001/../../x", "tags/../a"],
)  # fmt: skip
def test_no_name_leads_out_of_the_registry(tmp_path: Path, name: str) -> None:
    run = small_run(tmp_path / "here")
    export_run(run, tmp_path / "a.zip")
    rewritten(tmp_path / "a.zip", tmp_path / "same.zip", {})
    import_run(RunRegistry(tmp_path / "same"), tmp_path / "same.zip")  # it is for the name
    shutil.rmtree(tmp_path / "same")
    rewritten(tmp_path / "a.zip", tmp_path / "evil.zip", {name: b"evil"})
    before = set(tmp_path.rglob("*"))
    with pytest.raises(UserError, match=r"no file of a run|not what it holds"):
        import_run(RunRegistry(tmp_path / "there"), tmp_path / "evil.zip")
    assert set(tmp_path.rglob("*")) - before <= {tmp_path / "there"}
    assert not Path("/tmp/evil").exists()


def test_a_run_with_the_name_of_a_path_is_refused(tmp_path: Path) -> None:
    run = small_run(tmp_path / "here")
    export_run(run, tmp_path / "a.zip")
    with zipfile.ZipFile(tmp_path / "a.zip") as old:
        held = {name: old.read(name) for name in old.namelist()}
    contents = json.loads(held["archive.json"])
    contents.pop("sha256")
    contents["run"] = "../../evil"
    held["archive.json"] = json.dumps({**contents, "sha256": seal(contents)}).encode()
    with zipfile.ZipFile(tmp_path / "evil.zip", "w") as new:
        for name, data in held.items():
            new.writestr(name, data)
    with pytest.raises(UserError, match="is no run name"):
        import_run(RunRegistry(tmp_path / "deep" / "there"), tmp_path / "evil.zip")
    assert not (tmp_path / "evil").exists()


def test_bombs_are_not_unpacked(tmp_path: Path) -> None:
    run = small_run(tmp_path / "here")
    export_run(run, tmp_path / "a.zip")
    rewritten(tmp_path / "a.zip", tmp_path / "b.zip", {"tags/x": bytes(10_000_000)}, compression=8)
    assert (tmp_path / "b.zip").stat().st_size < 1_000_000
    with pytest.raises(UserError, match="compressed"):
        import_run(RunRegistry(tmp_path / "there"), tmp_path / "b.zip")
    with zipfile.ZipFile(run.final) as old:
        held = {name: old.read(name) for name in old.namelist()}
    with zipfile.ZipFile(run.final, "w", zipfile.ZIP_DEFLATED) as new:
        for name, data in held.items():
            new.writestr(name, data)
    with pytest.raises(UserError, match="compressed"):
        load_checkpoint(run.final)


def test_a_link_in_an_archive_is_no_link_outside(tmp_path: Path) -> None:
    run = small_run(tmp_path / "here")
    export_run(run, tmp_path / "a.zip")
    with zipfile.ZipFile(tmp_path / "a.zip", "a") as archive:
        link = zipfile.ZipInfo("tags/link")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(link, "/etc/passwd")
    with pytest.raises(UserError, match="not what it holds"):
        import_run(RunRegistry(tmp_path / "there"), tmp_path / "a.zip")
    (run.folder / "best.pt").unlink()
    (run.folder / "best.pt").symlink_to("/etc/passwd")
    assert any("is a link" in fault.problem for fault in verify_run(run))
    with pytest.raises(UserError, match="is a link"):
        export_run(run, tmp_path / "b.zip")


@pytest.mark.parametrize("bad", [b"", b"PK\x03\x04", b"hello", bytes(1000)])
def test_other_files_are_no_archives(tmp_path: Path, bad: bytes) -> None:
    (tmp_path / "x.zip").write_bytes(bad)
    with pytest.raises(UserError, match="no archive of a run"):
        import_run(RunRegistry(tmp_path / "there"), tmp_path / "x.zip")


def test_weights_leave_for_other_programs(tmp_path: Path) -> None:
    run = small_run(tmp_path)
    tied = torch.arange(4.0)
    state = {"a": tied, "b": tied, "c": torch.ones(2, 3, dtype=torch.bfloat16), "n": torch.tensor(5)}
    save_checkpoint(run.final, state, info("small", 3))
    export_state_dict(run.final, tmp_path / "a.pt")
    export_safetensors(run.final, tmp_path / "a.safetensors")
    plain = torch.load(tmp_path / "a.pt", weights_only=True)
    with safe_open(tmp_path / "a.safetensors", "pt") as file:
        about = file.metadata()
        safe = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    assert about["sha256"] == load_checkpoint(run.final).sha256
    assert CheckpointInfo.model_validate_json(about["fedscope"]) == load_checkpoint(run.final).info
    for found in (plain, safe):
        assert found.keys() == state.keys()
        assert all(torch.equal(found[n], t) and found[n].dtype == t.dtype for n, t in state.items())


def test_a_repeated_number_is_not_unfolded(tmp_path: Path) -> None:
    """A tensor of a terabyte may be one number in the file, repeated by its strides."""
    run: RunFolder = small_run(tmp_path)
    content = torch.load(run.final, weights_only=True)
    content["state"] = {"w": torch.ones(1).expand(1 << 38)}
    torch.save(content, run.final)
    with pytest.raises(UserError, match=r"'w' .*dense"):
        load_checkpoint(run.final)


def test_a_tensor_under_many_names_is_not_hashed_for_ever(tmp_path: Path) -> None:
    run, large = small_run(tmp_path), torch.ones(100_000)
    content = torch.load(run.final, weights_only=True)
    for count, refused in ((10, False), (100, True)):
        content["state"] = {f"w{n}": large for n in range(count)}
        torch.save(content, run.final)
        with pytest.raises(UserError, match="again and again" if refused else "content hash"):
            load_checkpoint(run.final)


def test_members_that_overlap_or_repeat_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a", bytes(10_000))
        archive.writestr("b", b"")
        first, second = archive.infolist()
        second.header_offset, second.file_size, second.compress_size = first.header_offset, 10_000, 10_000
    with zipfile.ZipFile(path) as archive, pytest.raises(zipfile.BadZipFile, match="claim more bytes"):
        members(archive, path.stat().st_size)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a", b"1")
        archive.writestr("b", b"2")
        archive.infolist()[1].filename = "a"
    with zipfile.ZipFile(path) as archive, pytest.raises(zipfile.BadZipFile, match="stands twice"):
        members(archive, path.stat().st_size)


def test_a_run_under_another_name_is_analysed_under_it(run: RunFolder, tmp_path: Path) -> None:
    export_run(run, tmp_path / "a.tar")
    there = import_run(RunRegistry(tmp_path / "r"), tmp_path / "a.tar", "mine")
    (problem,) = load([there.final], Source(samples=8))
    assert problem.title.startswith("mine@")
    assert problem.checkpoint["run"] == "mine"
