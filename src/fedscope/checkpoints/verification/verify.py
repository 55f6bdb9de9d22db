"""`fedscope runs verify`, and the check before an import: every file of a run read and compared.

One function checks a run, :func:`verify_run`, wherever its folder lies and whatever name it is to get: every
byte against its hash, and every claim of a file against the others
(:mod:`fedscope.checkpoints.verification.claims`).
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from fedscope.checkpoints.file import layout
from fedscope.checkpoints.file.checkpoint import load_checkpoint
from fedscope.checkpoints.file.state_folder import check_state
from fedscope.checkpoints.registry import index
from fedscope.checkpoints.registry.client_rows import read_rows
from fedscope.checkpoints.registry.run_folder import RunFolder
from fedscope.checkpoints.registry.run_registry import RunRegistry
from fedscope.checkpoints.verification import claims
from fedscope.checkpoints.verification.claims import Account, LoadedCheckpoint
from fedscope.errors import BusyError, UserError

_LEFT_OVER = "left over by a process that was killed; delete it"


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong, and where."""

    path: str
    problem: str


def verify_root(registry: RunRegistry) -> Iterator[Fault]:
    """Yield the faults of a registry's own folder, where other programs' files are not checked."""
    why = index.not_ours(registry.root)
    if why:
        yield Fault(index.INDEX, why)
    for problem in [] if why else index.faults(registry.root):
        yield Fault(index.INDEX, f"damaged ({problem}); `fedscope runs rebuild` makes it anew")
    for entry in sorted(os.scandir(registry.root), key=lambda entry: entry.name):
        if entry.name == layout.ANALYSIS and entry.is_dir(follow_symlinks=False):  # results: checked at use
            left = [name for name in layout.files(Path(entry.path)) if layout.is_leftover(name)]
            yield from (Fault(f"{entry.name}/{name}", _LEFT_OVER) for name in left)
        elif layout.is_leftover(entry.name):
            yield Fault(entry.name, _LEFT_OVER)
        elif entry.name.endswith(".pt") and layout.is_ours(Path(entry.path)):
            yield Fault(entry.name, "belongs to no run; move it into its run's folder, or elsewhere")


def verify_run(
    run: RunFolder, report: Callable[[str], None] = lambda name: None, *, name: str | None = None
) -> Iterator[Fault]:
    """Yield the faults of one run, at most one per file; ``report`` is told each file before it is read."""
    name = name or run.name
    try:
        manifest, metrics = run.manifest(), run.metrics()
    except (UserError, OSError) as error:
        yield Fault(name, _said(error, run))
        return
    account = Account(manifest, tuple(metrics), run.is_finished or manifest.diverged is not None)
    files = list(layout.files(run.folder))
    loaded: list[LoadedCheckpoint] = []
    found: dict[str, str] = {}
    for file, problem in claims.run_problems(account, name, files):
        found.setdefault(file, problem)
    for file in files:
        report(f"{name}/{file}")
        wrong = found.get(file) or _problem(run, file, account, loaded)
        if wrong:
            found[file] = wrong
            yield Fault(f"{name}/{file}", wrong)
    for file, problem in claims.joint_problems(loaded):
        if file not in found:
            found[file] = problem
            yield Fault(f"{name}/{file}", problem)
    for file in sorted(claims.expected(account, files) - set(files)):
        yield Fault(f"{name}/{file}", "is missing; restore it from a copy")


def elsewhere(run: RunFolder) -> list[str]:
    try:
        deleted = run.manifest().checkpoints_deleted
    except (UserError, OSError):  # a fault of its own
        return []
    return [name for name in sorted(deleted) if not os.path.lexists(run.folder / name)]


def check_run(
    run: RunFolder, name: str | None = None, taken: Callable[[str], bool] = lambda name: True
) -> None:
    """Refuse a run with a fault, in a file that is ``taken``; ``name`` is the run's if not the folder's."""
    for fault in verify_run(run, name=name):
        if taken(fault.path.partition("/")[2] or "manifest.json"):
            raise UserError(f"{fault.path}: {fault.problem}")


def _problem(run: RunFolder, name: str, account: Account, loaded: list[LoadedCheckpoint]) -> str | None:
    """Return what is wrong with one file, if anything; a checkpoint that is whole is added to ``loaded``."""
    path, kind = run.folder / name, layout.kind(name)
    if layout.is_leftover(name):
        return None if is_busy(run) else _LEFT_OVER
    if kind is None:
        return "belongs to no run of ours; move it elsewhere"
    if path.is_symlink():
        return "is a link, which does not travel; put the file here"
    try:
        if kind == "checkpoint":
            return _checkpoint_problem(path, name, account, loaded)
        if kind == "rows":
            return _rows_problem(path, name, account)
        if kind == "state" and path.name == "state.json":
            check_state(path.parent)
        if kind == "tag" and path.stat().st_size:
            return "is no tag, which is an empty file; delete it"
    except (UserError, OSError) as error:
        return _said(error, run)
    return None


def _checkpoint_problem(
    path: Path, name: str, account: Account, loaded: list[LoadedCheckpoint]
) -> str | None:
    found = load_checkpoint(path)
    problem = claims.checkpoint_problem(name, found.info, account)
    known = account.manifest.checkpoints_deleted.get(name, found.sha256)
    if known != found.sha256 and not account.manifest.extended:  # else it may be a later round's
        problem = problem or "is another model than was deleted, by its hash; pull that again"
    if problem is None:
        loaded.append(LoadedCheckpoint(name, found.info, found.sha256))
    return problem


def _rows_problem(path: Path, name: str, account: Account) -> str | None:
    spec = account.manifest.rows
    if name != "rows.zz":  # of a round with clients of its own
        round = int(path.parent.name[6:])
        record = account.record(round)
        if record is None and spec is None and round == account.reach:
            return None
        spec = record.rows if record else None
    if spec is None:
        return "holds rows of which the run says nothing"
    whole = account.settings.train_samples is None  # else the rows are of a part, drawn from all
    read_rows(path, spec, account.manifest.data.train_samples if whole else None)
    return None


def is_busy(run: RunFolder) -> bool:
    if not run.has_manifest:
        return False
    try:
        with run.locked(shared=True):
            return False
    except BusyError:
        return True
    except (UserError, OSError):  # such as that it is a link
        return False


def _said(error: Exception, run: RunFolder) -> str:
    return str(error).replace(f"{run.folder}/", "").replace(f"{run.folder} ", "")
