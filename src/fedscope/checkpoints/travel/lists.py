"""The lists of runs at a remote, and the transfer of their files, several at a time."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import dataclass
from threading import Event
from time import monotonic

from fedscope.checkpoints.file.checkpoint import listed
from fedscope.checkpoints.file.fields import checked_name
from fedscope.checkpoints.file.formats import REMOTE_FORMAT
from fedscope.checkpoints.registry.contents import Contents, File
from fedscope.checkpoints.travel.remote import Absent, Remote, Tick
from fedscope.errors import UserError, suggestion
from fedscope.storage import MOST_BYTES

PATIENCE = 60  # seconds that a slow place is waited for
LEAST = 100  # bytes a second, on average
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


def paced(remote: Remote, place: str) -> Iterator[bytes]:
    """Yield the content of the file at ``place`` in parts, unless they come too slowly ever to end."""
    begun, size = monotonic(), 0
    with closing(remote.read(place)) as parts:
        for part in parts:
            yield part
            size, spent = size + len(part), monotonic() - begun
            if spent > PATIENCE and size < LEAST * spent:
                raise UserError(
                    f"{remote.url} sends {size / spent:.0f} bytes a second; run the same command again "
                    "later: it goes on with the files that lack"
                )


def list_place(name: str) -> str:
    return f"runs/{checked_name(name)}.json"


def known_list(remote: Remote, name: str) -> Contents:
    """Return the list of a run that may not be there."""
    content = bytearray()
    for chunk in paced(remote, list_place(name)):
        content += chunk
        if len(content) > MOST_BYTES:
            raise ValueError(f"more than {MOST_BYTES >> 20} MiB")
    return Contents.from_bytes(bytes(content), REMOTE_FORMAT, f"the list of {name!r} at {remote.url}")


def read_list(remote: Remote, name: str) -> Contents:
    """Return the list of a run that must be there."""
    try:
        contents = known_list(remote, name)
    except Absent as error:
        raise UserError(_missing(remote, name)) from error
    except ValueError as error:
        raise UserError(
            f"what {remote.url} has as the list of {name!r} is none, or is damaged ({error}); give the URL "
            "that `fedscope runs push` was given, or push the run there anew"
        ) from error
    if contents.run != name:
        raise UserError(f"the list of {name!r} at {remote.url} is of {contents.run!r}; push the run anew")
    return contents


def _missing(remote: Remote, name: str) -> str:
    try:
        runs = remote.runs()
    except UserError:  # a web server need not list anything
        runs = []
    if runs:
        return f"{remote.url} holds no run {name!r}; it has {listed(runs, most=8)}{suggestion(name, runs)}"
    return f"{remote.url} holds no pushed run {name!r}; give a URL that `fedscope runs push` was given"


def carry_all(files: Mapping[str, File], workers: int, carry: Carry, report: Report) -> list[int]:
    """Transfer each content once, several at a time; return the sizes of those that were missing.

    What has been carried is reported every second, also of files on the way. After an error or Ctrl-C,
    transfers in progress stop at their next part.
    """
    groups: dict[File, list[str]] = {}
    for name, file in files.items():
        groups.setdefault(file, []).append(name)
    stopped, moved, done, carried = Event(), list[int](), 0, list[int]()
    total = sum(file.bytes for file in groups)

    def tick(size: int) -> None:
        if stopped.is_set():
            raise InterruptedError
        carried.append(size)

    with ThreadPoolExecutor(workers) as pool:
        left = {pool.submit(carry, names, tick): names for names in groups.values()}
        try:
            while left:
                for future in wait(left, LOOK, FIRST_COMPLETED).done:
                    names = left.pop(future)
                    (moved if future.result() else carried).append(files[names[0]].bytes)
                    done += len(names)
                report(sum(carried) // KB, total // KB, f"{done} of {len(files)} files")
        except BaseException:
            stopped.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return moved


def journey(run: str, contents: Contents, moved: Sequence[int]) -> Journey:
    return Journey(run, len(contents.files), contents.size, len(moved), sum(moved))
