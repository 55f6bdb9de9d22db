"""Pushing and pulling a run: its files by content, several at a time, and the sealed list of them.

A push sends the files that the place lacks, and the list last. A pull collects what is listed beside the run
to be, compares every hash, checks the run as `verify` does, and then gives it its name:

    ROOT/.RUN.pull/RUN/…           what has arrived; it stays after a kill, and the next pull continues
    ROOT/.RUN.pull/.analysis/…     results of its models
"""

import hashlib
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Event
from typing import BinaryIO

from fedscope.checkpoints.file import layout
from fedscope.checkpoints.file.checkpoint import describe_checkpoint, listed, load_checkpoint
from fedscope.checkpoints.file.fields import checked_name
from fedscope.checkpoints.file.formats import REMOTE_FORMAT
from fedscope.checkpoints.file.schema import Manifest
from fedscope.checkpoints.registry.contents import Contents, File
from fedscope.checkpoints.registry.run_folder import RunFolder
from fedscope.checkpoints.registry.run_registry import RunRegistry
from fedscope.checkpoints.travel.places import Absent, Folder, Remote, Tick, runs_at
from fedscope.checkpoints.verification.verify import check_run
from fedscope.errors import UserError, suggestion
from fedscope.storage import (
    MOST_BYTES,
    atomic_file,
    locked,
    make_folder,
    move,
    open_regular,
    read_bytes,
    remove,
    remove_tree,
    touch,
)

LOOK = 1.0  # seconds between looks at how much has been carried
KB = 1000  # bytes of a unit of progress
Report = Callable[[int, int | None, str], None]  # kB so far, kB in all if known, how many files
Carry = Callable[[Sequence[str], Tick], bool]  # names of files with one content → whether it was missing


@dataclass(frozen=True)
class Journey:
    """The outcome of a push or a pull of one run."""

    run: str
    files: int
    bytes: int
    moved: int  # contents that were not there yet
    moved_bytes: int
    nowhere: tuple[str, ...] = ()  # models that were deleted, and that no commit of `git:` holds


def push_run(run: RunFolder, remote: Remote, report: Report) -> Journey:
    """Send a run and the results of its models; an earlier state of it at the remote is replaced.

    Models that were deleted here, and results that are not here, stay listed where the remote has them.
    """
    if remote.is_readonly:
        raise UserError(f"{remote.url} can only be pulled from; push to a folder, s3:, gs: or hf:")
    with run.locked(shared=True):
        check_run(run, taken=lambda name: layout.kind(name) is not None)  # other files are not sent
        here = _listed(run, remote)
        contents = _successor(remote, here, run.manifest())

        def send(names: Sequence[str], tick: Tick) -> bool:
            file, place = here.files[names[0]], contents.place(names[0])
            missing = file.bytes > 0 and remote.size(place) != file.bytes
            if missing:
                remote.write(place, run.at(names[0]), tick)
            return missing

        moved = _carry_all({} if here.in_place else here.files, remote.workers, send, report)
        remote.write(_list_place(run.name), contents.to_bytes(), lambda _: None)
    return Journey(run.name, len(contents.files), contents.size, len(moved), sum(moved))


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


def read_list(remote: Remote, name: str) -> Contents:
    """Return the list of a run that must be there."""
    try:
        contents = _known_list(remote, name)
    except Absent as error:
        runs = list[str]()
        with suppress(UserError):  # a web server need not list anything
            runs = runs_at(remote)
        raise UserError(
            f"{remote.url} holds no run {name!r}; it has {listed(runs, most=8)}{suggestion(name, runs)}"
            if runs
            else f"{remote.url} holds no pushed run {name!r}; give a URL that `fedscope runs push` was given"
        ) from error
    except ValueError as error:
        raise UserError(
            f"what {remote.url} has as the list of {name!r} is none, or is damaged ({error}); give the URL "
            "that `fedscope runs push` was given, or push the run there anew"
        ) from error
    if contents.run != name:
        raise UserError(f"the list of {name!r} at {remote.url} is of {contents.run!r}; push the run anew")
    return contents


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


def settle(run: RunFolder, name: str, expected: str) -> None:
    """Make a folder of files a run called ``name``, that was ``expected``, once it has no fault."""
    touch(run.folder / layout.LOCK, below=run.folder)
    check_run(run, expected)
    if name != expected:
        run.write_manifest(run.manifest().model_copy(update={"name": name}))


def _list_place(name: str) -> str:
    return f"runs/{checked_name(name)}.json"


def _known_list(remote: Remote, name: str) -> Contents:
    """Return the list of a run that may not be there."""
    content = bytearray()
    with closing(remote.read(_list_place(name))) as parts:
        for part in parts:
            content += part
            if len(content) > MOST_BYTES:
                raise ValueError(f"more than {MOST_BYTES >> 20} MiB")
    return Contents.from_bytes(bytes(content), REMOTE_FORMAT, f"the list of {name!r} at {remote.url}")


def _listed(run: RunFolder, remote: Remote) -> Contents:
    """Return the list of a run's files; in a registry that is its own remote, files are not moved."""
    in_place = isinstance(remote, Folder) and remote.root.resolve() == run.root.resolve()
    if in_place and layout.is_run(run.root / "runs"):
        raise UserError(f"{run.root} holds a run named 'runs', where the lists would be; push to another URL")
    manifest = run.manifest()
    names = [name for name in layout.files(run.folder) if layout.kind(name)]
    return Contents(
        format=REMOTE_FORMAT,
        run=run.name,
        files={name: File.from_path(run.at(name)) for name in [*names, *_results(run, manifest, names)]},
        created=manifest.created,
        rounds=sum(1 for _ in run.each_round()),
        in_place=in_place,
    )


def _results(run: RunFolder, manifest: Manifest, names: Sequence[str]) -> Iterator[str]:
    """Yield the registry's results that name a model of the run by its hash, be it one that was deleted."""
    models = [run.at(name) for name in names if layout.kind(name) == "checkpoint"]
    hashes = {*manifest.checkpoints_deleted.values(), *(describe_checkpoint(path)[1] for path in models)}
    for path in sorted((run.root / layout.ANALYSIS).glob("*.json")):
        name = f"{layout.ANALYSIS}/{path.name}"
        with suppress(UserError, OSError):  # such as a link, or one that was removed meanwhile
            if layout.is_result(name):
                found = re.findall(rb"[0-9a-f]{64}", read_bytes(path))
                if not hashes.isdisjoint(one.decode("ascii") for one in found):
                    yield name


def _successor(remote: Remote, contents: Contents, manifest: Manifest) -> Contents:
    """Return the list that replaces the remote's, with what that has of models and results gone here."""
    try:
        there = _known_list(remote, contents.run)
    except (Absent, ValueError):  # none, or a damaged one: it is written anew
        return contents
    if there.created != contents.created:
        raise UserError(
            f"{remote.url} holds another run named {contents.run!r}, begun {there.created}; use another URL"
        )
    if there.rounds > contents.rounds:
        raise UserError(
            f"{contents.run!r} has come to round {there.rounds} at {remote.url}, here to {contents.rounds}; "
            "pull that one"
        )
    lacking = {name: file for name, file in there.files.items() if name not in contents.files}
    gone = {n: f for n, f in lacking.items() if n in manifest.checkpoints_deleted or layout.is_result(n)}
    lost = sorted(name for name in lacking.keys() - gone.keys() if layout.kind(name) != "tag")
    if manifest.partial and lost:
        raise UserError(
            f"{contents.run!r} is partial here, without {lost[0]}, which {remote.url} has; pull that one, "
            "or use another URL"
        )
    if contents.in_place:  # the files are here or nowhere
        return contents
    return contents.model_copy(update={"files": {**contents.files, **gone}})


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

    return _carry_all(wanted, remote.workers, fetch, report)


def _fetch(remote: Remote, contents: Contents, name: str, target: BinaryIO, tick: Tick) -> None:
    """Write the file to ``target``, not a part more than is listed, and compare its hash."""
    wanted, size, digest, place = contents.files[name], 0, hashlib.sha256(), contents.place(name)
    try:
        with closing(remote.read(place)) as parts:
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
    """Make what was collected a run under its folder's name."""
    for other in [other for other in layout.files(staged.folder) if other not in contents.files]:
        remove(staged.folder / other, below=staged.folder)
    manifest = staged.manifest()
    if (manifest.name, manifest.created) != (contents.run, contents.created):
        raise UserError(f"the manifest of {contents.run!r} is of another run; ask who pushed it")
    settle(staged, staged.name, contents.run)


def _carry_all(files: Mapping[str, File], workers: int, carry: Carry, report: Report) -> list[int]:
    """Transfer each content once, several at a time; return the sizes of those that were missing.

    What has been carried is reported every second, also of files on the way. After an error or Ctrl-C,
    transfers in progress stop at their next part.
    """
    groups: dict[File, list[str]] = {}
    for name, file in files.items():
        groups.setdefault(file, []).append(name)
    stopped, moved, done = Event(), list[int](), 0
    carried = dict.fromkeys(groups, 0)

    def tick(file: File, size: int) -> None:
        if stopped.is_set():
            raise InterruptedError
        carried[file] = size

    with ThreadPoolExecutor(workers) as pool:
        left = {pool.submit(carry, names, partial(tick, file)): file for file, names in groups.items()}
        try:
            while left:
                for future in wait(left, LOOK, FIRST_COMPLETED).done:
                    file = left.pop(future)
                    moved += [file.bytes] * future.result()
                    carried[file] = file.bytes
                    done += len(groups[file])
                total = sum(file.bytes for file in groups)
                report(sum(carried.values()) // KB, total // KB, f"{done} of {len(files)} files")
        except BaseException:
            stopped.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return moved
