"""Other formats are refused, newer ones by name; and what bounds plain data."""

import json
import shutil
from pathlib import Path

import pytest
import torch

from fedscope.checkpoints.file.checkpoint import load_checkpoint
from fedscope.checkpoints.file.fields import NAME
from fedscope.checkpoints.file.formats import of_format, seal
from fedscope.checkpoints.registry.run_registry import RunFolder
from fedscope.checkpoints.verification.verify import verify_run
from fedscope.errors import UserError
from fedscope.storage import limits, read_bytes
from fedscope.storage.limits import parse_json
from tests.checkpoints.cases import small_run

REFERENCE = Path(__file__).parents[3] / "checkpoints" / "reference-fedavg"


def test_the_committed_reference_is_read(tmp_path: Path) -> None:
    run = RunFolder(Path(shutil.copytree(REFERENCE, tmp_path / REFERENCE.name)))
    assert list(verify_run(run)) == []
    assert len(run.metrics()) == run.manifest().settings.rounds == 20


@pytest.mark.parametrize("number", ["3", "17"])
def test_a_newer_run_is_refused_by_name(tmp_path: Path, number: str) -> None:
    run = small_run(tmp_path)
    path = run.folder / "manifest.json"
    data = {**json.loads(path.read_text()), "format": f"fedscope/run/{number}", "what is new": 1}
    path.write_text(json.dumps(data))
    with pytest.raises(UserError, match=rf"newer fedscope.*'fedscope/run/{number}'.*upgrade"):
        run.manifest()
    assert [fault.path for fault in verify_run(run)] == ["small"]


@pytest.mark.parametrize(
    "found", ["fedscope/run/0", "fedscope/run/1", "fedscope/run/x", "other/1", 1, None, "fedscope/remote/1"]
)
def test_what_has_no_format_is_none_of_ours(found: object) -> None:
    with pytest.raises(UserError, match=r"^x has no format fedscope/run/"):
        of_format({"format": found}, "fedscope/run/2", "x")


def test_a_changed_description_is_found(tmp_path: Path) -> None:
    run = small_run(tmp_path)
    content = torch.load(run.final, weights_only=True)
    content["info"]["round"] = 2
    torch.save(content, run.final)
    with pytest.raises(UserError, match=r"description .*hash"):
        load_checkpoint(run.final)


def test_the_seal_is_of_the_content_alone() -> None:
    assert seal({"a": 1, "b": [1.5, "ζ"]}) == seal({"b": [1.5, "ζ"], "a": 1})
    assert seal({"a": 1}) != seal({"a": 1.5}) != seal({"a": "1"})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a":' * 100_000 + "1" + "}" * 100_000, "too deeply"),
        ("[" * 30 + "]" * 30, "too deeply"),
        ("NaN", "NaN is no JSON number"),
        ("1e999", "not finite"),
        (str(2**64), "too large"),
        ('"\\ud800"', "surrogates not allowed"),
    ],
)
def test_what_is_no_plain_data_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_json(text.encode())


def test_too_much_plain_data_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MOST_ENTRIES", 100)
    shared: list[object] = []
    for _ in range(10):  # a thousand entries made of ten
        shared = [shared, shared]
    with pytest.raises(ValueError, match="too many"):
        limits.check_plain(shared)
    limits.check_plain([0] * 98)


def test_large_files_and_pipes_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(bytes(101))
    with pytest.raises(UserError, match="more than"):
        read_bytes(tmp_path / "large", 100)
    with pytest.raises(UserError, match="no regular file"):
        read_bytes(Path("/dev/zero"))


@pytest.mark.parametrize("name", ["con", "NUL.txt", "Com1", "lpt9.pt", "aux", "../a", "a/b", "a\\b", "", "."])
def test_names_of_devices_and_paths_are_none(name: str) -> None:
    assert not NAME.fullmatch(name)


@pytest.mark.parametrize("name", ["console", "company", "a", "fedavg+man", "lpt", "com10x", "0.5_x-1"])
def test_plain_names_are_taken(name: str) -> None:
    assert NAME.fullmatch(name)
