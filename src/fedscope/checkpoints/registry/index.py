"""The rows of `fedscope runs list` in one SQLite file, so that a thousand runs need not be read every time.

A row counts only if its seal is right and the run's files have the size and time that it was made from; any
other row is made from the files again. So the index can be deleted, damaged, or written by several processes
at once. Where it cannot be written, or is a link or another program's database, rows are made in memory.
"""

import json
import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from fedscope.checkpoints.file.formats import seal
from fedscope.checkpoints.registry.best import best
from fedscope.checkpoints.registry.run import Run
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

Row = dict[str, object]


class NotOursError(sqlite3.DatabaseError):
    """The file holds something else than the index: another program's tables, a view, a trigger."""


def rows(root: Path, runs: Iterable[Run]) -> list[Row]:
    """Return one row of ``COLUMNS`` and of the settings per run, newest first."""
    runs = list(runs)
    found: dict[str, Row] | None = None
    if runs:
        try:
            found = _kept(root, runs)
        except (sqlite3.Error, OSError, UserError):  # damaged, locked for long, or not ours to write
            found = None
    if found is None:
        found = {run.name: _row(run) for run in runs}
    newest = sorted(found.values(), key=lambda row: str(row["name"]))
    return sorted(newest, key=lambda row: str(row["created"]), reverse=True)


def rebuild(root: Path, runs: Iterable[Run]) -> list[Row]:
    """Make the index anew from the files; return its rows.

    The old one is removed with its journal, which SQLite would otherwise play back into the new one.

    Raises:
        UserError: what lies there is not the index.
    """
    if why := not_ours(root):
        raise UserError(why)
    for name in reversed(_FILES):
        remove(root / name, below=root, missing_ok=True)
    return rows(root, runs)


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
    except (sqlite3.Error, UserError) as error:
        return [str(error)]
    found = [] if verdict == "ok" else [str(verdict)]
    return found + [f"the row of {row[0]!a} was changed" for row in kept if _checked(*row) is None]


def _kept(root: Path, runs: list[Run]) -> dict[str, Row]:
    """Return the rows by name, from the index where they are right; bring it up to date."""
    if not os.path.lexists(root / INDEX):
        touch(root / INDEX, below=root)
    with _opened(root, "rw") as index:
        index.execute(_TABLE.replace("TABLE", "TABLE IF NOT EXISTS"))
        known = {row[0]: row for row in index.execute("SELECT name, signature, row, seal FROM rows")}
        found, new = {}, []
        for run in runs:
            signature = _signature(run)
            kept = known.get(run.name)
            row = _checked(*kept) if kept and kept[1] == signature else None
            if row is None:
                row = _row(run)
                text = json.dumps(row)
                new.append((run.name, signature, text, _seal(run.name, signature, text)))
            found[run.name] = row
        gone = [(name,) for name in known if name not in found]
        if new or gone:
            with index:  # a short transaction: files are read before it
                index.executemany("INSERT OR REPLACE INTO rows VALUES (?, ?, ?, ?)", new)
                index.executemany("DELETE FROM rows WHERE name = ?", gone)
        return found


@contextmanager
def _opened(root: Path, mode: str) -> Iterator[sqlite3.Connection]:
    """Open the index; bytes that are not UTF-8 become replacement characters, which no seal fits.

    SQLite opens files by their path, and waits for a pipe: so the files are checked just before.

    Raises:
        UserError: one of its files is a link, a pipe or the like.
        NotOursError: it is another program's.
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


def _seal(name: object, signature: object, text: object) -> str:
    return seal({"columns": COLUMNS, "name": str(name), "signature": str(signature), "row": str(text)})


def _signature(run: Run) -> str:
    parts = []
    for name in ("manifest.json", "metrics.jsonl", "final.pt", "tags"):
        try:
            status = (run.folder / name).stat()
            parts.append(f"{status.st_mtime_ns}:{status.st_size}:{status.st_ino}")
        except OSError:
            parts.append("-")
    return " ".join(parts)


def _row(run: Run) -> Row:
    try:
        manifest, metrics = run.manifest(), run.metrics()
    except UserError:
        return {**dict.fromkeys(COLUMNS), "name": run.name, "created": "", "status": "unreadable"}
    s = manifest.stated()
    accuracies = [one.accuracy for one in metrics if one.accuracy is not None]
    top = best(metrics)
    alpha = f" {s['alpha']:g}" if s["alpha"] is not None and s["partition"] != "iid" else ""
    shown = (
        run.name, manifest.created, run.status(manifest), s["method"],
        manifest.data.name, manifest.model.name, s["partition"] and s["partition"] + alpha, s["clients"],
        s["rounds"], len(metrics) if metrics or not manifest.added else None,
        accuracies[-1] if accuracies else None, top and top.accuracy, list(run.tags()),
    )  # fmt: skip
    return {**s, **dict(zip(COLUMNS, shown, strict=True))}
