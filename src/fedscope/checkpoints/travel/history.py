"""`git:`, the history of the repository that a registry lies in: models that were deleted come back from it.

A model comes from the last commit that wrote it, if the run of its name was this one then. A whole or a
partial clone has that commit; of a shallow one the commits and folders of its remote ``origin`` are fetched
into a temporary folder, and of files the models that are asked for alone.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen
from subprocess import run as call
from tempfile import TemporaryDirectory

from fedscope.checkpoints.registry.run_folder import RunFolder
from fedscope.checkpoints.travel.pull import collecting, put_back
from fedscope.checkpoints.travel.push import KB, Journey, Report
from fedscope.errors import UserError
from fedscope.storage import atomic_file, remove_tree
from fedscope.storage.limits import parse_json

URL = "git:"
_OTHER = "or name a folder or a store that the runs were pushed to"
_CHUNK = 1 << 20
_WRITTEN = ("log", "-1", "--full-history", "--no-renames", "--diff-filter=AM", "--format=%H")
_PLACED = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE")  # of the repository in whose hook this runs


class History:
    """The commits of the repository that a registry lies in; ``spare`` takes what a shallow clone lacks."""

    def __init__(self, root: Path, spare: Path):
        self._spare = spare
        top, prefix = (_git(root, "rev-parse", f"--show-{what}") for what in ("toplevel", "prefix"))
        if top is None or prefix is None:
            raise UserError(f"git: finds no repository that {root} lies in; pull in a clone, {_OTHER}")
        self._top, self._prefix = Path(top), prefix

    def find(self, run: RunFolder, name: str) -> tuple[Path, str] | None:
        """Return the repository and the object of a file of a run; None: no commit of this run holds it."""
        folder, where = f"{self._prefix}{run.name}", self._top
        commit = _git(where, *_WRITTEN, "HEAD", "--", f"{folder}/{name}")
        if not commit and _git(where, "rev-parse", "--is-shallow-repository") == "true":
            where = self._whole
            commit = _git(where, *_WRITTEN, "--all", "--", f"{folder}/{name}")
        try:
            then = parse_json(b"".join(_content(where, f"{commit}:{folder}/manifest.json"))) if commit else {}
            same = then["created"] == run.manifest().created
        except (ValueError, TypeError, KeyError):
            return None
        return (where, f"{commit}:{folder}/{name}") if same else None

    @cached_property
    def _whole(self) -> Path:
        address = _git(self._top, "remote", "get-url", "origin")
        if address is None:
            raise UserError(
                "git: needs the history of this shallow clone, which has no remote 'origin'; add it"
            )
        folder = self._spare / "whole.git"
        asked = ("clone", "--quiet", "--bare", "--no-tags", "--filter=blob:none")
        if _git(self._top, *asked, "--", address, str(folder)) is None:
            raise UserError(
                "git: cannot fetch the history of this shallow clone from its remote 'origin'; check address "
                f"and network (`git fetch origin` says what is wrong), {_OTHER}"
            )
        return folder


@contextmanager
def history(root: Path) -> Iterator[History]:
    with TemporaryDirectory(prefix="fedscope-") as spare:
        yield History(root, Path(spare))


def pull_deleted(run: RunFolder, commits: History, report: Report, *, needed: bool = False) -> Journey:
    """Bring back the models that were deleted from a run, as far as a commit holds them."""
    names = sorted(run.manifest().checkpoints_deleted)
    lacking = [name for name in names if not os.path.lexists(run.folder / name)]
    found = {name: at for name in lacking if (at := commits.find(run, name))}
    if needed and lacking and not found:
        raise UserError(f"no commit of {run.root} holds {', '.join(lacking)} of {run.name!r}; {_OTHER[3:]}")
    moved = list[int]()
    if found:
        with collecting(run) as staged:
            try:
                for done, (name, (repository, blob)) in enumerate(found.items()):
                    with atomic_file(staged.folder / name, below=run.root) as target:
                        for chunk in _content(repository, blob):
                            target.write(chunk)
                            carried = sum(moved) + target.tell()
                            report(carried // KB, None, f"{done} of {len(found)} models")
                        moved.append(target.tell())
                put_back(run, staged, list(found))
            finally:
                with suppress(FileNotFoundError):
                    remove_tree(staged.root, below=run.root)
    there = [run.folder / name for name in names if name not in lacking or name in found]
    size = sum(path.stat().st_size for path in there)
    nowhere = tuple(name for name in lacking if name not in found)
    return Journey(run.name, len(there), size, len(moved), sum(moved), nowhere)


def _content(repository: Path, blob: str) -> Iterator[bytes]:
    """Yield an object, which a partial clone fetches first."""
    command = ["git", "-C", str(repository), "cat-file", "blob", blob]
    with Popen(command, stdin=DEVNULL, stdout=PIPE, stderr=DEVNULL, env=_environment()) as process:
        assert process.stdout is not None
        while chunk := process.stdout.read(_CHUNK):
            yield chunk
    if process.returncode:
        raise UserError(
            f"git: cannot read {blob[:8]}{blob[40:]}, nor fetch it from the remote; check the network "
            f"(`git fetch origin` says what is wrong), {_OTHER}"
        )


def _git(folder: Path, *arguments: str) -> str | None:
    command = ["git", "-C", str(folder), *arguments]
    try:
        done = call(command, stdin=DEVNULL, capture_output=True, check=False, env=_environment())
    except FileNotFoundError as error:
        raise UserError(f"git: needs the program git, which is not found; install it, {_OTHER}") from error
    return os.fsdecode(done.stdout).removesuffix("\n") if done.returncode == 0 else None


def _environment() -> dict[str, str]:
    own = {name: value for name, value in os.environ.items() if name not in _PLACED}
    return {**own, "GIT_LITERAL_PATHSPECS": "1", "GIT_TERMINAL_PROMPT": "0"}
