"""The rows of `fedscope runs list` in one SQLite file, so that a thousand runs need not be read every time.

A row counts only if its seal is right and the run's files have the size and time that it was made from; any
other row is made from the files again. So the index can be deleted, damaged, or written by several processes
at once. Where it cannot be written, or is a link or another program's database, rows are made in memory.
"""

import hashlib
import json
import os
import sqlite3
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

from fedscope.checkpoints.file import layout
from fedscope.checkpoints.registry.best import best
from fedscope.checkpoints.registry.run_folder import RunFolder
from fedscope.errors import UserError
from fedscope.storage import is_writable, remove, touch

COLUMNS = (
    "name", "created", "status", "method", "dataset", "model", "partition",
    "clients", "rounds", "done", "accuracy", "best", "tags",
)  # fmt: skip
INDEX = "index.sqlite"
_FILES = (INDEX, *(f"{INDEX}-{end}" for end in ("journal", "wal", "shm")))  # SQLite's own beside it
WAIT = 30.0  # seconds for another process that writes the index
_TABLE = "CREATE TABLE rows (name PRIMARY KEY, signature, row, seal)"
_NAMED = "SELECT name, signature, row, seal FROM rows WHERE name IN (SELECT value FROM json_each(?))"

Row = dict[str, object]
_Kept = tuple[str, str, str, str]  # a line of the table
Report = Callable[[int, int], None]  # how many folders were looked at, of how many


class NotOursError(sqlite3.DatabaseError):
    """The file holds something else than the index: another program's tables, a view, a trigger."""


def rows(root: Path, most: int | None = None, report: Report | None = None) -> tuple[list[Row], int]:
    """Return ``COLUMNS`` and settings of up to ``most`` runs, newest first, and how many runs there are."""
    if next(layout.runs(root), None) is None:
        return [], 0
    try:
        return _kept(root, most, report)
    except (sqlite3.Error, OSError, UserError):  # damaged, locked for long, or not ours to write
        made = {name: _row(RunFolder(root / name)) for name in layout.runs(root)}
        order = _newest_first({name: str(row["created"]) for name, row in made.items()})
        return [made[name] for name in order[:most]], len(order)


def rebuild(root: Path) -> list[Row]:
    """Make the index anew from the files, without its journal, which SQLite would play back into it."""
    if why := not_ours(root):
        raise UserError(why)
    for name in reversed(_FILES):
        remove(root / name, below=root, missing_ok=True)
    return rows(root)[0]


def not_ours(root: Path) -> str | None:
    """Return why the file in the index's place is not the index, such as that it is a link; None if it is."""
    try:
        with _opened(root, "ro"):
            return None
    except (NotOursError, UserError) as error:
        return str(error)
    except sqlite3.Error:  # none there, or damaged
        return None


def faults(root: Path) -> list[str]:
    """Return what is wrong with the index file; one without a table is new, and filled when next read."""
    if not os.path.lexists(root / INDEX):
        return []
    try:
        with _opened(root, "ro") as index:
            (verdict,) = index.execute("PRAGMA quick_check(1)").fetchone()
            if not index.execute("SELECT 1 FROM sqlite_master").fetchone() and verdict == "ok":
                return []
            kept = index.execute("SELECT name, signature, row, seal FROM rows").fetchall()
    except sqlite3.OperationalError:  # not to be opened, or locked: that is no damage
        return []
    except (sqlite3.Error, UserError) as error:
        return [str(error)]
    found = [] if verdict == "ok" else [str(verdict)]
    return found + [f"the row of {row[0]!a} was changed" for row in kept if _checked(*row) is None]


def _kept(root: Path, most: int | None, report: Report | None) -> tuple[list[Row], int]:
    """Return what :func:`rows` does, from the index where it is right; bring that up to date.

    The index is read before the folders are: a row without a folder is then of a run that is gone, and not of
    one that another process has just made. What the manifest alone says orders the runs.
    """
    if not os.path.lexists(root / INDEX):
        touch(root / INDEX, below=root)
    with _opened(root, "rw") as index:
        index.execute(_TABLE.replace("TABLE", "TABLE IF NOT EXISTS"))
        known = {str(name): str(of) for name, of in index.execute("SELECT name, signature FROM rows")}
        created, made = dict[str, str](), dict[str, _Kept]()
        names = list(layout.names(root))
        for done, name in enumerate(names, start=1):
            before, _, stamps = known.get(name, "").partition(" ")
            stamp = _stamp(root, name, "manifest.json")
            is_known = stamps.startswith(f"{stamp} ")
            if (is_known and stamp != "-") or layout.is_run(root / name):
                if not is_known:
                    made[name] = _made(RunFolder(root / name))
                    if report:
                        report(done, len(names))
                    before = made[name][1].partition(" ")[0]
                created[name] = before
        shown = _newest_first(created)[:most]
        found = _read(index, root, shown, made)
        gone = [(name, known[name]) for name in known if name not in created]
        if made or gone:
            with index:  # a short transaction: files are read before it
                index.executemany("INSERT OR REPLACE INTO rows VALUES (?, ?, ?, ?)", made.values())
                index.executemany("DELETE FROM rows WHERE name = ? AND signature = ?", gone)
    return [
        found[name] for name in _newest_first({name: str(row["created"]) for name, row in found.items()})
    ], len(created)


def _read(
    index: sqlite3.Connection, root: Path, names: Collection[str], made: dict[str, _Kept]
) -> dict[str, Row]:
    """Return the rows of runs; what is not in the index, or is of other files, is added to ``made``."""
    kept = {line[0]: line for line in index.execute(_NAMED, [json.dumps(names)])}
    found = dict[str, Row]()
    for name in names:
        line = made.get(name) or kept.get(name)
        row = None
        if line and line[1].partition(" ")[2] == _stamps(root, name):
            row = _checked(*line)
        if row is None:
            made[name] = _made(RunFolder(root / name))
            row = json.loads(made[name][2])
        found[name] = row
    return found


def _newest_first(created: Mapping[str, str]) -> list[str]:
    return sorted(sorted(created), key=lambda name: created[name], reverse=True)


def _made(run: RunFolder) -> _Kept:
    stamps = _stamps(run.root, run.name)  # before the files are read
    row = _row(run)
    signature, text = f"{row['created']} {stamps}", json.dumps(row)
    return run.name, signature, text, _seal(run.name, signature, text)


@contextmanager
def _opened(root: Path, mode: str) -> Iterator[sqlite3.Connection]:
    """Open the index; bytes that are not UTF-8 become replacement characters, which no seal fits.

    SQLite opens files by their path, and waits for a pipe: so the files are checked just before.
    """
    for name in _FILES:
        is_writable(root / name, below=root)
    uri = f"{(root / INDEX).absolute().as_uri()}?mode={mode}"
    with closing(sqlite3.connect(uri, uri=True, timeout=WAIT)) as index:
        index.execute("PRAGMA trusted_schema = OFF")
        held = index.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
        if held not in ([], [(_TABLE,)]):  # a view or a trigger would be run
            raise NotOursError(f"{root / INDEX} is another program's database, or damaged; move it elsewhere")
        index.text_factory = lambda content: content.decode("utf-8", "replace")
        yield index


def _checked(name: object, signature: object, text: object, sealed: object) -> Row | None:
    if sealed != _seal(name, signature, text):
        return None
    row: Row = json.loads(str(text))
    return row


def _seal(*parts: object) -> str:
    text = "\0".join(map(str, (*COLUMNS, *parts)))
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


def _stamps(root: Path, name: str) -> str:
    return " ".join(
        _stamp(root, name, file) for file in ("manifest.json", "metrics.jsonl", "final.pt", "tags")
    )


def _stamp(root: Path, name: str, file: str) -> str:
    try:
        status = os.stat(f"{root}/{name}/{file}")  # noqa: PTH116 (a text: of 100,000 runs)
    except OSError:
        return "-"
    return f"{status.st_mtime_ns}:{status.st_size}:{status.st_ino}"


def _row(run: RunFolder) -> Row:
    done, accuracy, top = 0, None, None
    try:
        manifest = run.manifest()
        for one in run.each_round():  # one at a time: they may be large
            done += 1
            accuracy = accuracy if one.accuracy is None else one.accuracy
            top = best(filter(None, (top, one)))
    except UserError:
        return {**dict.fromkeys(COLUMNS), "name": run.name, "created": "", "status": "unreadable"}
    s = manifest.stated()
    alpha = f" {s['alpha']:g}" if s["alpha"] is not None and s["partition"] != "iid" else ""
    shown = (
        run.name, manifest.created, run.status(manifest), s["method"],
        manifest.data.name, manifest.model.name, s["partition"] and s["partition"] + alpha, s["clients"],
        s["rounds"], done if done or not manifest.added else None,
        accuracy, top and top.accuracy, list(run.tags()),
    )  # fmt: skip
    return {**s, **dict(zip(COLUMNS, shown, strict=True))}
