"""Pulling a run: collected beside its place, compared with the list, checked, and then renamed.

ROOT/.RUN.pull/RUN/…     what has arrived; it stays after a kill, and the next pull continues with it
"""

import hashlib
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from fedscope.checkpoints.file import layout
from fedscope.checkpoints.registry.contents import Contents, File
from fedscope.checkpoints.registry.registry import Registry
from fedscope.checkpoints.registry.run import Run, checked_name
from fedscope.checkpoints.travel.lists import Journey, Report, carry_all, journey, paced, read_list
from fedscope.checkpoints.travel.remote import Absent, Remote, Tick
from fedscope.checkpoints.verification.verify import verify_run
from fedscope.errors import UserError
from fedscope.storage import atomic_file, locked, make_folder, move, open_regular, remove, remove_tree, touch


def pull_run(
    registry: Registry, remote: Remote, name: str, report: Report, called: str | None = None
) -> Journey:
    """Fetch the run ``name``, under its own name or as ``called``; a run that is here already is not changed.

    Raises:
        UserError: there is no such run at the remote, another one of its name is here, a file is damaged,
            missing or changed meanwhile, the run has a fault, or the disk has too little room.
    """
    contents, root = read_list(remote, name), registry.root
    run = Run(root / checked_name(called or name))
    staging = run.folder.with_name(f".{run.name}.pull")
    if os.path.lexists(run.folder):
        _check_same(run, contents, remote)
        with suppress(FileNotFoundError):  # it was killed after the renaming
            remove_tree(staging, below=root)
        return journey(run.name, contents, [])
    folder = staging / run.name
    with _collecting(folder, root):
        held = {n for n in contents.files if _is_whole(folder / n, contents, n)}
        _check_room(root, sum(f.bytes for n, f in contents.files.items() if n not in held))

        def fetch(names: Sequence[str], tick: Tick) -> bool:
            first = next((n for n in names if n in held), names[0])
            if first not in held:
                with atomic_file(folder / first, below=root) as target:
                    _fetch(remote, contents, first, target, tick)
            for other in {*names} - held - {first}:
                with open_regular(folder / first) as source, atomic_file(folder / other, below=root) as copy:
                    shutil.copyfileobj(source, copy)
            return first not in held and contents.files[first].bytes > 0

        moved = carry_all(contents, remote.workers, fetch, report)
        _complete(Run(folder), contents)
        move(folder, run.folder, below=root)
        remove_tree(staging, below=root)
    return journey(run.name, contents, moved)


def _check_same(run: Run, contents: Contents, remote: Remote) -> None:
    """Refuse a name that another run has here; the manifest may give another name, and tags may differ."""
    names = [n for n in contents.files if layout.kind(n) not in ("tag", "manifest")]
    same = run.has_manifest and run.manifest().created == contents.created
    if not same or not all(_is_whole(run.folder / n, contents, n) for n in names):
        raise UserError(
            f"{run.folder} is taken by another run than {contents.run!r} at {remote.url}, or by another "
            "state of it; pull that under another --name, or delete this one"
        )


@contextmanager
def _collecting(folder: Path, root: Path) -> Iterator[None]:
    """Make the folder in which a run's files are collected, and keep other processes from it meanwhile."""
    make_folder(folder, below=root)
    try:
        with locked(folder.with_name(layout.LOCK), below=root):
            yield
    except BlockingIOError as error:
        raise UserError(f"another process pulls {folder.name!r} into {root}; wait for its end") from error


def _is_whole(path: Path, contents: Contents, name: str) -> bool:
    if path.is_symlink() or not path.is_file() or path.stat().st_size != contents.files[name].bytes:
        return False
    return File.from_path(path) == contents.files[name]


def _check_room(root: Path, needed: int) -> None:
    while not root.exists():
        root = root.parent
    free = shutil.disk_usage(root).free
    if needed > free:
        raise UserError(f"the run needs {needed / 1e6:,.0f} MB and {root} has {free / 1e6:,.0f}; make room")


def _fetch(remote: Remote, contents: Contents, name: str, target: BinaryIO, tick: Tick) -> None:
    """Download one file, never more than its listed size, and compare its hash."""
    wanted, size, digest = contents.files[name], 0, hashlib.sha256()
    try:
        for chunk in paced(remote, contents.place(name)) if wanted.bytes else ():
            tick()
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
    """Return why a listed file is missing: the run was pushed again meanwhile, or the remote lost it."""
    if read_list(remote, contents.run) != contents:
        return UserError(f"{contents.run!r} was pushed anew meanwhile; run the same command again")
    place = f"{remote.url}/{contents.place(name)}"
    return UserError(f"{place} is damaged or missing; delete it there, and push {contents.run!r} again")


def _complete(run: Run, contents: Contents) -> None:
    """Make what was collected a run under its folder's name, and check it as `runs verify` does."""
    for other in [other for other in layout.files(run.folder) if other not in contents.files]:
        remove(run.folder / other, below=run.folder)
    touch(run.folder / layout.LOCK, below=run.folder)
    manifest = run.manifest()
    if (manifest.name, manifest.created) != (contents.run, contents.created):
        raise UserError(f"the manifest of {contents.run!r} is of another run; ask who pushed it")
    if manifest.name != run.name:
        run.write_manifest(manifest.model_copy(update={"name": run.name}))
    for fault in verify_run(run):
        raise UserError(f"{fault.path} {fault.problem}; ask who pushed the run for a sound one")
