"""Pulling a run: collected beside its place, compared with the list, checked, and then renamed.

ROOT/.RUN.pull/RUN/…           what has arrived; it stays after a kill, and the next pull continues with it
ROOT/.RUN.pull/.analysis/…     results of its models
"""

import hashlib
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from fedscope.checkpoints.file import layout
from fedscope.checkpoints.file.checkpoint import load_checkpoint
from fedscope.checkpoints.file.fields import checked_name
from fedscope.checkpoints.registry.contents import Contents, File
from fedscope.checkpoints.registry.run_folder import RunFolder
from fedscope.checkpoints.registry.run_registry import RunRegistry
from fedscope.checkpoints.travel.lists import Journey, Report, carry_all, journey, paced, read_list
from fedscope.checkpoints.travel.remote import Absent, Remote, Tick
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
    if here and not wanted:
        with suppress(FileNotFoundError):  # it was killed after the renaming
            remove_tree(staging(run).root, below=root)
        return journey(run.name, contents, [])
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
    return journey(run.name, contents, moved)


def staging(run: RunFolder) -> RunFolder:
    return RunFolder(run.folder.with_name(f".{run.name}.pull") / run.name)


@contextmanager
def collecting(run: RunFolder) -> Iterator[RunFolder]:
    staged = staging(run)
    make_folder(staged.folder, below=run.root)
    try:
        with locked(staged.root / layout.LOCK, below=run.root):
            yield staged
    except BlockingIOError as error:
        raise UserError(f"another process pulls {run.name!r} into {run.root}; wait for its end") from error


def put_back(run: RunFolder, staged: RunFolder, names: Sequence[str]) -> None:
    with run.locked():
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


def _collected(
    staged: RunFolder,
    root: Path,
    contents: Contents,
    wanted: Mapping[str, File],
    remote: Remote,
    report: Report,
) -> list[int]:
    held = {name for name, file in wanted.items() if _is_whole(staged.at(name), file)}
    _check_room(root, sum(file.bytes for name, file in wanted.items() if name not in held))

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


def _is_whole(path: Path, file: File) -> bool:
    if path.is_symlink() or not path.is_file() or path.stat().st_size != file.bytes:
        return False
    return File.from_path(path) == file


def _check_room(root: Path, needed: int) -> None:
    while not root.exists():
        root = root.parent
    free = shutil.disk_usage(root).free
    if needed > free:
        raise UserError(f"the run needs {needed / 1e6:,.0f} MB and {root} has {free / 1e6:,.0f}; make room")


def _fetch(remote: Remote, contents: Contents, name: str, target: BinaryIO, tick: Tick) -> None:
    wanted, size, digest = contents.files[name], 0, hashlib.sha256()
    try:
        for chunk in paced(remote, contents.place(name)) if wanted.bytes else ():
            tick(len(chunk))
            size += len(chunk)
            if size > wanted.bytes:
                break
            digest.update(chunk)
            target.write(chunk)
        if (size, digest.hexdigest()) != (wanted.bytes, wanted.sha256):
            raise Absent("it is another than listed")
    except Absent as error:
        raise _lost(remote, contents, name) from error


def _lost(remote: Remote, contents: Contents, name: str) -> UserError:
    if read_list(remote, contents.run) != contents:
        return UserError(f"{contents.run!r} was pushed anew meanwhile; run the same command again")
    place = f"{remote.url}/{contents.place(name)}"
    return UserError(f"{place} is damaged or missing; delete it there, and push {contents.run!r} again")


def _complete(run: RunFolder, contents: Contents) -> None:
    """Make what was collected a run under its folder's name, and check it as `runs verify` does."""
    for other in [other for other in layout.files(run.folder) if other not in contents.files]:
        remove(run.folder / other, below=run.folder)
    touch(run.folder / layout.LOCK, below=run.folder)
    manifest = run.manifest()
    if (manifest.name, manifest.created) != (contents.run, contents.created):
        raise UserError(f"the manifest of {contents.run!r} is of another run; ask who pushed it")
    if manifest.name != run.name:
        run.write_manifest(manifest.model_copy(update={"name": run.name}))
    check_run(run)
