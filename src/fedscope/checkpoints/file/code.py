"""Which code computed: the package's own sources, and the commit and changes they were checked out with."""

import hashlib
import subprocess
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).parents[2]
_PLAIN = ("--binary", "--no-ext-diff", "--no-textconv", "--no-color")


@cache
def code_version() -> dict[str, str]:
    """Return what names the code: ``source``, and of a git checkout ``commit`` and ``diff``.

    ``source`` is the SHA-256 of all Python files of the package with their names, so it covers files that git
    does not know. ``diff`` is the SHA-256 of ``git diff HEAD`` in the package, absent where nothing differs.
    """
    version = {"source": _sources()}
    if _git("ls-files", "--error-unmatch", "__init__.py") is None:
        return version  # installed, or below a repository that is not ours
    commit, diff = _git("rev-parse", "HEAD"), _git("diff", *_PLAIN, "HEAD", "--", ".")
    if commit is not None:
        version["commit"] = commit.decode("ascii").strip()
    if diff:
        version["diff"] = hashlib.sha256(diff).hexdigest()
    return version


def _sources() -> str:
    digest = hashlib.sha256()
    for path in sorted(PACKAGE.rglob("*.py")):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(PACKAGE).as_posix()}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()


def _git(*arguments: str) -> bytes | None:
    command = ["git", "-C", str(PACKAGE), "-c", "core.fsmonitor=false", *arguments]
    try:
        done = subprocess.run(command, capture_output=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout
