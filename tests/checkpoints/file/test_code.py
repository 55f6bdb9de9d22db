import subprocess
from pathlib import Path

import pytest

from fedscope.checkpoints.file import code


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package in a folder that git knows."""
    folder = tmp_path / "src" / "package"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("a = 1\n")
    monkeypatch.setattr(code, "PACKAGE", folder)
    return folder


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    command = ["git", "-C", str(folder), *identity, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def version() -> dict[str, str]:
    return code.code_version.__wrapped__()


def test_a_commit_and_what_was_changed_since(package: Path) -> None:
    git(package, "init", "-q")
    git(package, "add", ".")
    git(package, "commit", "-q", "-m", "first")
    clean = version()
    assert clean.keys() == {"source", "commit"}
    assert clean["commit"] == git(package, "rev-parse", "HEAD")
    (package / "__init__.py").write_text("a = 2\n")
    changed = version()
    assert changed.keys() == {"source", "commit", "diff"}
    assert changed["source"] != clean["source"]
    (package / "new.py").touch()  # git does not know it, and says so by no diff
    assert version()["diff"] == changed["diff"]
    assert version()["source"] != changed["source"]
    (package / "new.py").unlink()
    git(package, "checkout", "-q", ".")
    assert version() == clean


def test_an_installed_package_has_its_source_alone(package: Path) -> None:
    assert version().keys() == {"source"}
    git(package.parent, "init", "-q")  # somebody's own repository above it, which does not track it
    assert version().keys() == {"source"}


def test_the_source_is_names_and_contents(package: Path) -> None:
    before = version()["source"]
    (package / "__init__.py").rename(package / "other.py")
    assert version()["source"] != before
    (package / "other.py").rename(package / "__init__.py")
    assert version()["source"] == before
