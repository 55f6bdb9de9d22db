"""Pushing a run: the files that a place lacks, several at a time, and last the sealed list of all."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from threading import Event

from fedscope.checkpoints.file import layout
from fedscope.checkpoints.file.checkpoint import describe_checkpoint, listed
from fedscope.checkpoints.file.fields import checked_name
from fedscope.checkpoints.file.schema import Manifest
from fedscope.checkpoints.registry.contents import Contents, File
from fedscope.checkpoints.registry.run_folder import RunFolder
from fedscope.checkpoints.travel.places import Absent, Folder, Remote, Tick, paced, runs_at
from fedscope.checkpoints.verification.verify import check_run
from fedscope.errors import UserError, suggestion
from fedscope.storage import MOST_BYTES, read_bytes

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

        moved = carry_all({} if here.in_place else here.files, remote.workers, send, report)
        remote.write(_list_place(run.name), contents.to_bytes(), lambda _: None)
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


def _list_place(name: str) -> str:
    return f"runs/{checked_name(name)}.json"


def _known_list(remote: Remote, name: str) -> Contents:
    """Return the list of a run that may not be there."""
    content = bytearray()
    with closing(paced(remote, _list_place(name))) as parts:
        for part in parts:
            content += part
            if len(content) > MOST_BYTES:
                raise ValueError(f"more than {MOST_BYTES >> 20} MiB")
    return Contents.from_bytes(bytes(content), f"the list of {name!r} at {remote.url}")


def _listed(run: RunFolder, remote: Remote) -> Contents:
    """Return the list of a run's files; in a registry that is its own remote, files are not moved."""
    in_place = isinstance(remote, Folder) and remote.root.resolve() == run.root.resolve()
    if in_place and layout.is_run(run.root / "runs"):
        raise UserError(f"{run.root} holds a run named 'runs', where the lists would be; push to another URL")
    manifest = run.manifest()
    names = [name for name in layout.files(run.folder) if layout.kind(name)]
    return Contents(
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


def carry_all(files: Mapping[str, File], workers: int, carry: Carry, report: Report) -> list[int]:
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
