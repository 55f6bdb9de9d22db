"""A registry with a link in it, as a tidy user makes it: no command touches where it leads."""

import hashlib
import os
import shutil
from pathlib import Path

import pytest

from fedscope.checkpoints.registry.index import INDEX
from fedscope.checkpoints.registry.run_registry import RunRegistry
from fedscope.cli.main import call
from fedscope.storage import cache_dir

DRAWN = ("--samples", "16", "--grid", "3", "--directions", "random")
SMALL = ("--samples", "16", "--top-k", "2", "--probes", "2")
RESUMED = ("train", "--name", "tiny", "--resume", "--rounds", "3")
# what is a link, and the commands that would write, delete, rename or lock there
WRITERS = [
    ("tiny", "train", "--name", "tiny"),
    ("tiny", *RESUMED),
    ("tiny", "runs", "tag", "tiny", "good"),
    ("tiny", "runs", "delete", "tiny", "--yes"),
    ("tiny", "runs", "delete", "tiny", "--clients", "--yes"),
    ("tiny/.lock", "runs", "delete", "tiny", "--yes"),
    ("tiny/.lock", *RESUMED),
    ("tiny/clients", "runs", "delete", "tiny", "--clients", "--yes"),
    ("tiny/clients", *RESUMED),
    ("tiny/final.pt", *RESUMED),
    ("tiny/metrics.jsonl", *RESUMED),
    ("tiny/tensorboard", *RESUMED, "--log", "tensorboard"),
    ("tiny/tags", "runs", "tag", "tiny", "good"),
    ("tiny/tags", "runs", "tag", "tiny", "kept", "--remove"),
    ("tiny/tags/good", "runs", "tag", "tiny", "good"),
    ("added", "runs", "add", "model.pt", "--model", "mlp", "--dataset", "digits", "--name", "added"),
    ("copy", "runs", "pull", "tiny", "place", "--name", "copy"),
    (INDEX, "runs", "rebuild"),
    (f"{INDEX}-journal", "runs", "rebuild"),
    (".analysis", "hessian", "tiny", *SMALL),
    (".analysis", "plot-landscape", "tiny", *DRAWN),
    (".analysis", "report", "tiny", *SMALL, "--grid", "3"),
    (".analysis/products", "hessian", "tiny", *SMALL),
    (".analysis/points", "plot-landscape", "tiny", *DRAWN),
    ("CACHE/catalogues", "methods", "list"),
    ("CACHE/answers", "data", "list"),
]  # fmt: skip


def somebody_s_own(folder: Path) -> None:
    (folder / "old").mkdir(parents=True)
    (folder / "old" / "thesis.tex").write_text("of years")
    (folder / "kept").touch()
    os.utime(folder / "old", (0, 0))


def sentinel(folder: Path) -> dict[str, tuple[int, int, str]]:
    """Return mode, time and content of all that is below a folder, and of itself."""
    found = {}
    for path in [folder, *sorted(folder.rglob("*"))]:
        about = path.lstat()
        content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        found[str(path)] = about.st_mode, about.st_mtime_ns, content
    return found


def linked(path: Path, elsewhere: Path) -> None:
    """Put what lies at ``path`` elsewhere, and a link in its place."""
    path.parent.mkdir(parents=True, exist_ok=True)
    target = elsewhere / path.name
    if path.exists():
        shutil.move(path, target)
    path.symlink_to(target.absolute() if target.exists() else elsewhere.absolute())


@pytest.mark.parametrize(("place", *["command"]), [(case[0], case[1:]) for case in WRITERS], ids=str)
def test_no_command_touches_what_a_link_leads_to(
    copied: RunRegistry,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    place: str,
    command: tuple[str, ...],
) -> None:
    somebody_s_own(tmp_path / "elsewhere")
    copied.run("tiny").tag("kept")
    assert call(["runs", "push", "tiny", "place"]) == 0
    assert call(["runs", "export", "tiny", "--out", "model.pt"]) == 0
    if place.startswith("CACHE"):
        monkeypatch.setenv("FEDSCOPE_CACHE", str(tmp_path / "cache"))
        linked(cache_dir() / place.removeprefix("CACHE/"), tmp_path / "elsewhere")
    else:
        linked(copied.root / place, tmp_path / "elsewhere")
    before = sentinel(tmp_path / "elsewhere")
    capsys.readouterr()
    code = call(command)
    said = capsys.readouterr().err
    assert sentinel(tmp_path / "elsewhere") == before
    assert code == 2
    assert "is a link" in said or "is taken" in said
    assert Path(place).name in said
