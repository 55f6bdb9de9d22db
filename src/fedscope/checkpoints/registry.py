"""The registry: a folder of runs, and a SQLite index of it that can be deleted at any time.

    ROOT/RUN/manifest.json               what the run is, written when it starts
    ROOT/RUN/metrics.jsonl               one line per round
    ROOT/RUN/{final,best,last}.pt        global models; round-0025.pt under --keep-every; {all,sel}.pt: means
    ROOT/RUN/clients/0003.pt             last uploads; round-0025/clients/0003.pt under --save-clients all
    ROOT/index.sqlite                    what `runs list` shows, brought up to date from the files at each use

A checkpoint is addressed as a file, or as RUN, RUN@25, RUN@best, RUN@final, RUN@all, RUN@client3.
"""

import fcntl
import json
import os
import re
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from fedscope.checkpoints.schema import Manifest, parse
from fedscope.errors import UserError
from fedscope.storage import write_text

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,99}")
COLUMNS = (
    "name", "created", "status", "method", "dataset", "model", "partition",
    "clients", "rounds", "done", "accuracy", "best",
)  # fmt: skip


@dataclass(frozen=True)
class Run:
    """The folder of one run."""

    folder: Path

    @property
    def name(self) -> str:
        """The run's name, which is its folder's."""
        return self.folder.name

    @property
    def final(self) -> Path:
        """The global model after the last round."""
        return self.folder / "final.pt"

    @property
    def best(self) -> Path:
        """The model that counts, of the round in which it had the best accuracy."""
        return self.folder / "best.pt"

    @property
    def last(self) -> Path:
        """The global model after the newest round of an unfinished run."""
        return self.folder / "last.pt"

    def average(self, name: str) -> Path:
        """Another newest global model than the server's: the mean of clients ``sel`` or ``all``."""
        return self.folder / f"{name}.pt"

    def kept(self, round: int) -> Path:
        """The global model after ``round`` rounds, where ``--keep-every`` kept it."""
        return self.folder / f"round-{round:04d}.pt"

    def client(self, client: int, round: int | None = None) -> Path:
        """A client's last upload, or its upload of ``round``."""
        folder = self.folder / f"round-{round:04d}" if round is not None else self.folder
        return folder / "clients" / f"{client:04d}.pt"

    def clients(self, until: int | None = None) -> list[Path]:
        """Each client's last upload, in client order; its last by round ``until`` where all were kept."""
        kept = sorted(self.folder.glob("round-*/clients/*.pt"), key=lambda path: int(path.parts[-3][6:]))
        by_then = {p.name: p for p in kept if until is not None and int(p.parts[-3][6:]) <= until}
        return [by_then[name] for name in sorted(by_then)] or sorted(self.client(0).parent.glob("*.pt"))

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep other processes from writing to the run meanwhile; a process that dies lets go of it.

        Raises:
            UserError: another process trains the run.
        """
        with (self.folder / "manifest.json").open("r+b") as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise UserError(
                    f"another process is training {self.name!r}; wait for its end, or use another --name"
                ) from error
            yield

    def manifest(self) -> Manifest:
        """Read the manifest.

        Raises:
            UserError: it is missing or unreadable.
        """
        path = self.folder / "manifest.json"
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise UserError(f"{path} cannot be read ({error}); the run needs it") from error
        return parse(Manifest, data, str(path))

    def write_manifest(self, manifest: Manifest) -> None:
        """Write the manifest atomically."""
        write_text(self.folder / "manifest.json", manifest.model_dump_json(indent=1) + "\n")

    def metrics(self) -> list[dict[str, object]]:
        """Read one record per round; a half-written last line is left out.

        Raises:
            UserError: a line is no record.
        """
        path = self.folder / "metrics.jsonl"
        lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
        records = []
        for number, line in enumerate(lines, 1):
            try:
                record = json.loads(line)
            except ValueError:
                if number == len(lines) and not line.endswith(b"\n"):
                    break
                record = None
            if not isinstance(record, dict):
                raise UserError(f"{path}, line {number} is no record; restore the file from a copy")
            records.append(record)
        return records

    def write_metrics(self, records: list[dict[str, object]]) -> None:
        """Replace all metrics."""
        write_text(self.folder / "metrics.jsonl", "".join(map(_json_line, records)))

    def append_metrics(self, record: Mapping[str, object]) -> None:
        """Add one round's metrics."""
        with (self.folder / "metrics.jsonl").open("a", encoding="utf-8") as handle:
            handle.write(_json_line(record))
            handle.flush()
            os.fsync(handle.fileno())


class Registry:
    """The runs below one folder."""

    def __init__(self, root: Path):
        self.root = root

    def create(self, manifest: Manifest) -> Run:
        """Make the folder of a new run and write its manifest.

        Raises:
            UserError: the name is taken or not a plain file name, or the folder cannot be written.
        """
        run = Run(self.root / checked_name(manifest.name))
        try:
            run.folder.mkdir(parents=True)
        except FileExistsError as error:
            raise UserError(
                f"{run.folder} is taken; choose another --name, or continue a run of that name with --resume"
            ) from error
        except OSError as error:
            raise UserError(f"cannot write to the registry {self.root}: {error.strerror}") from error
        run.write_manifest(manifest)
        return run

    def free_name(self, stem: str) -> str:
        """Return ``stem``, or ``stem-2``, ``stem-3``… if it is taken."""
        name, count = stem, 1
        while (self.root / name).exists():
            count += 1
            name = f"{stem}-{count}"
        return name

    def run(self, name: str) -> Run:
        """Return the run ``name``.

        Raises:
            UserError: there is none of that name.
        """
        run = Run(self.root / checked_name(name))
        if not (run.folder / "manifest.json").is_file():
            near = get_close_matches(name, [r.name for r in self.folders()], n=1)
            hint = f"did you mean {near[0]!r}?" if near else "`fedscope runs list` shows all"
            raise UserError(f"no run {name!r} and no such file in the registry {self.root}; {hint}")
        return run

    def folders(self) -> list[Run]:
        """Return every folder that holds a manifest."""
        return [Run(path.parent) for path in sorted(self.root.glob("*/manifest.json"))]

    def newest(self) -> Run:
        """Return the run that was created last.

        Raises:
            UserError: the registry is empty.
        """
        rows = self.rows()
        if not rows:
            raise UserError(f"the registry {self.root} holds no run yet; `fedscope train` makes one")
        return Run(self.root / str(rows[0]["name"]))

    def resolve(self, reference: str | None) -> Path:
        """Return the checkpoint file that ``reference`` names; without one, the newest run's.

        Raises:
            UserError: no such file, run, or checkpoint of that run.
        """
        if reference is None:
            return self._checkpoint(self.newest(), "")
        if Path(reference).is_file():
            return Path(reference)
        if reference.endswith(".pt") or "/" in reference:
            raise UserError(f"no such file: {reference}; `fedscope runs list` shows what the registry holds")
        name, _, which = reference.partition("@")
        return self._checkpoint(self.run(name), which)

    def _checkpoint(self, run: Run, which: str) -> Path:
        client = re.fullmatch(r"client([0-9]{1,9})", which)
        if which in ("", "final"):
            path = run.final if run.final.exists() or which else run.last
        elif which == "best":
            path = run.best
        elif which in ("sel", "all"):
            path = run.average(which)
        elif client:
            path = run.client(int(client[1]))
        elif re.fullmatch(r"[0-9]{1,9}", which):
            path = run.kept(int(which))
            if not path.exists() and run.final.exists() and int(which) == run.manifest().settings.rounds:
                path = run.final
        else:
            raise UserError(
                f"unknown checkpoint {run.name}@{which}; use @best, @final, @all, @25 or @client3"
            )
        if not path.exists():
            files = (run.final, run.best, run.average("all"), run.average("sel"))
            names = [f"@{p.stem}" for p in files if p.exists()]
            names += [f"@{n}" for n in sorted(int(p.stem[6:]) for p in run.folder.glob("round-*.pt"))]
            names += [f"@client{int(p.stem)}" for p in run.clients()[:3]] + ["…"] * (len(run.clients()) > 3)
            raise UserError(f"run {run.name!r} holds no {path.name}; it has {', '.join(names) or 'none yet'}")
        return path

    def rows(self) -> list[dict[str, object]]:
        """Return one row of ``COLUMNS`` per run, newest first, from an index brought up to date."""
        with closing(self._index()) as index:
            known = dict(index.execute("SELECT name, signature FROM runs").fetchall())
            folders = {run.name: run for run in self.folders()}
            for name in known.keys() - folders.keys():
                index.execute("DELETE FROM runs WHERE name = ?", (name,))
            for name, run in folders.items():
                signature = _signature(run)
                if known.get(name) != signature:
                    marks = ", ".join("?" * (len(COLUMNS) + 1))
                    index.execute(f"INSERT OR REPLACE INTO runs VALUES ({marks})", (*_row(run), signature))
            index.commit()
            cursor = index.execute(f"SELECT {', '.join(COLUMNS)} FROM runs ORDER BY created DESC, name")
            return [dict(zip(COLUMNS, row, strict=True)) for row in cursor]

    def _index(self) -> sqlite3.Connection:
        table = f"CREATE TABLE IF NOT EXISTS runs ({', '.join(COLUMNS)}, signature, PRIMARY KEY (name))"
        path = self.root / "index.sqlite"
        for target in (
            path,
            ":memory:",
        ):  # a registry that cannot be written, or holds nothing, is still read
            try:
                if target == path and not self.root.is_dir():
                    continue
                index = sqlite3.connect(target, timeout=30)
                index.execute(table)
                index.execute(f"SELECT {', '.join(COLUMNS)}, signature FROM runs LIMIT 0")
                index.execute("BEGIN IMMEDIATE")
            except sqlite3.DatabaseError:
                continue
            return index
        raise AssertionError("an in-memory database can always be made")


def checked_name(name: str) -> str:
    """Return ``name`` if it is a plain, portable run name.

    Raises:
        UserError: it is not.
    """
    if not NAME.fullmatch(name):
        raise UserError(
            f"{name!r} is no run name; use up to 100 letters, digits and . _ + - after a letter or digit"
        )
    return name


def _json_line(record: Mapping[str, object]) -> str:
    return json.dumps(record, allow_nan=False) + "\n"


def _signature(run: Run) -> str:
    parts = []
    for name in ("manifest.json", "metrics.jsonl", "final.pt"):
        path = run.folder / name
        parts.append(f"{path.stat().st_mtime_ns}:{path.stat().st_size}" if path.exists() else "-")
    return " ".join(parts)


def _row(run: Run) -> tuple[object, ...]:
    try:
        manifest, metrics = run.manifest(), run.metrics()
    except UserError:
        return (run.name, "", "unreadable", *[None] * (len(COLUMNS) - 3))
    s = manifest.stated()
    accuracies = [a for m in metrics if isinstance(a := m.get("accuracy"), float)]
    alpha = f" {s['alpha']:g}" if s["alpha"] is not None and s["partition"] != "iid" else ""
    return (
        run.name, manifest.created, "finished" if run.final.exists() else "unfinished", s["method"],
        manifest.data.name, manifest.model.name, s["partition"] and s["partition"] + alpha, s["clients"],
        s["rounds"], len(metrics), accuracies[-1] if accuracies else None, max(accuracies, default=None),
    )  # fmt: skip
