"""Pulling a run: collected beside its place, compared with the list, checked, and then renamed.

ROOT/.RUN.pull/RUN/…           what has arrived; it stays after a kill, and the next pull continues
ROOT/.RUN.pull/.analysis/…     results of its models
"""

import hashlib
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from typing import BinaryIO

from fedscope.checkpoints.file import layout
from fedscope.checkpoints.file.checkpoint import load_checkpoint
from fedscope.checkpoints.file.fields import checked_name
from fedscope.checkpoints.registry.contents import Contents, File
from fedscope.checkpoints.registry.run_folder import RunFolder
from fedscope.checkpoints.registry.run_registry import RunRegistry
from fedscope.checkpoints.travel.places import Absent, Remote, Tick, paced
from fedscope.checkpoints.travel.push import Journey, Report, carry_all, read_list
from fedscope.checkpoints.verification.verify import check_run
from fedscope.errors import UserError
from fedscope.storage import atomic_file, locked, make_folder, move, open_regular, remove, remove_tree, touch


def pull_run(
    registry: RunRegistry, remote: Remote, name: str, report: Report, called: str | None = None
) -> Journey:
    """Fetch the run ``name``, under its own name or as ``called``, and the results of its models.

    A run that is here already gets back the models that were deleted from it, and is not changed otherwise.
    """
    contents, root = read_list(remote, name), registry.root
    run = RunFolder(root / checked_name(called or name))
    here = os.path.lexists(run.folder)
    wanted = _lacking(run, contents, remote) if here else contents.files
    wanted = {n: f for n, f in wanted.items() if not (layout.is_result(n) and os.path.lexists(root / n))}
    with collecting(run) as staged:
        moved = _collected(staged, root, contents, wanted, remote, report)
        if here:
            put_back(run, staged, [name for name in wanted if layout.kind(name)])
        else:
            _complete(staged, contents)
        for result in filter(layout.is_result, wanted):
            make_folder(root / layout.ANALYSIS, below=root)
            move(staged.at(result), root / result, below=root)
        if not here:
            move(staged.folder, run.folder, below=root)
        remove_tree(staged.root, below=root)
    return Journey(run.name, len(contents.files), contents.size, len(moved), sum(moved))


@contextmanager
def collecting(run: RunFolder) -> Iterator[RunFolder]:
    """Yield the folder beside a run in which one process at a time collects what the run lacks."""
    staged = RunFolder(run.folder.with_name(f".{run.name}.pull") / run.name)
    make_folder(staged.folder, below=run.root)
    try:
        with locked(staged.root / layout.LOCK, below=run.root):
            yield staged
    except BlockingIOError as error:
        raise UserError(f"another process pulls {run.name!r} into {run.root}; wait for its end") from error


def put_back(run: RunFolder, staged: RunFolder, names: Sequence[str]) -> None:
    """Move models that were deleted from a run, and collected, to their places, if all are the same."""
    with run.locked() if names else nullcontext():
        known = run.manifest().checkpoints_deleted
        for name in names:
            if load_checkpoint(staged.folder / name).sha256 != known.get(name):
                remove_tree(staged.root, below=run.root)
                raise UserError(
                    f"{name} that was fetched is not the model that {run.name!r} had: its hash is not the "
                    "manifest's; nothing was changed, pull it from elsewhere"
                )
        for name in names:
            make_folder((run.folder / name).parent, below=run.root)
            move(staged.folder / name, run.folder / name, below=run.root)


def _lacking(run: RunFolder, contents: Contents, remote: Remote) -> Mapping[str, File]:
    """Return what a run that is here gets: models deleted from it, and results.

    Its manifest may give another name, and tags may differ.
    """
    same = run.has_manifest and run.manifest().created == contents.created
    deleted = run.manifest().checkpoints_deleted if same else {}
    gone = {n for n in deleted if n in contents.files and not os.path.lexists(run.folder / n)}
    names = [n for n in contents.files if layout.kind(n) not in ("tag", "manifest", None)]
    if not same or not all(_is_whole(run.folder / n, contents.files[n]) for n in names if n not in gone):
        raise UserError(
            f"{run.folder} is taken by another run than {contents.run!r} at {remote.url}, or by another "
            "state of it; pull that under another --name, or delete this one"
        )
    return {n: file for n, file in contents.files.items() if n in gone or layout.is_result(n)}


def _is_whole(path: Path, file: File) -> bool:
    if path.is_symlink() or not path.is_file() or path.stat().st_size != file.bytes:
        return False
    return File.from_path(path) == file


def _collected(
    staged: RunFolder,
    root: Path,
    contents: Contents,
    wanted: Mapping[str, File],
    remote: Remote,
    report: Report,
) -> list[int]:
    held = {name for name, file in wanted.items() if _is_whole(staged.at(name), file)}
    needed = sum(file.bytes for name, file in wanted.items() if name not in held)
    free = shutil.disk_usage(root).free
    if needed > free:
        raise UserError(f"the run needs {needed / 1e6:,.0f} MB and {root} has {free / 1e6:,.0f}; make room")

    def fetch(names: Sequence[str], tick: Tick) -> bool:
        first = next((name for name in names if name in held), names[0])
        if first not in held:
            with atomic_file(staged.at(first), below=root) as target:
                _fetch(remote, contents, first, target, tick)
        for other in {*names} - held - {first}:
            with open_regular(staged.at(first)) as source, atomic_file(staged.at(other), below=root) as copy:
                shutil.copyfileobj(source, copy)
        return first not in held and wanted[first].bytes > 0

    return carry_all(wanted, remote.workers, fetch, report)


def _fetch(remote: Remote, contents: Contents, name: str, target: BinaryIO, tick: Tick) -> None:
    """Write the file to ``target``, not a part more than is listed, and compare its hash."""
    wanted, size, digest, place = contents.files[name], 0, hashlib.sha256(), contents.place(name)
    try:
        with closing(paced(remote, place)) as parts:
            for part in parts if wanted.bytes else ():
                size += len(part)
                tick(size)
                if size > wanted.bytes:
                    break
                digest.update(part)
                target.write(part)
        if (size, digest.hexdigest()) != (wanted.bytes, wanted.sha256):
            raise Absent("it is another than listed")
    except Absent as error:
        if read_list(remote, contents.run) != contents:
            mend = f"{contents.run!r} was pushed anew meanwhile; run the same command again"
            raise UserError(mend) from error
        raise UserError(
            f"{remote.url}/{place} is damaged or missing; delete it there, and push {contents.run!r} again"
        ) from error


def _complete(staged: RunFolder, contents: Contents) -> None:
    """Make what was collected a run under its folder's name, once it has no fault."""
    for other in [other for other in layout.files(staged.folder) if other not in contents.files]:
        remove(staged.folder / other, below=staged.folder)
    touch(staged.folder / layout.LOCK, below=staged.folder)
    check_run(staged, contents.run)
    manifest = staged.manifest()
    if manifest.created != contents.created:
        raise UserError(f"the manifest of {contents.run!r} is of another run; ask who pushed it")
    if staged.name != contents.run:
        staged.write_manifest(manifest.model_copy(update={"name": staged.name}))
