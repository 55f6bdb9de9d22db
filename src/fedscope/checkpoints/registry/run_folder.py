"""The folder of one run: where each of its files is, and how its manifest and metrics are written.

The manifest carries the seal of its content and each line of metrics a check of its own, so a changed digit
is found when it is read. A process that is killed leaves whole files, a last line of metrics that is cut
short, and temporary files whose names begin with a dot.
"""

import json
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from fedscope.checkpoints.file import layout
from fedscope.checkpoints.file.fields import NAME, checked_name, parse
from fedscope.checkpoints.file.formats import RUN_FORMAT, of_format, seal
from fedscope.checkpoints.file.schema import Manifest, Round
from fedscope.errors import BusyError, UserError
from fedscope.storage import (
    MOST_BYTES,
    append,
    atomic_file,
    locked,
    move,
    open_regular,
    read_bytes,
    remove,
    touch,
    write_text,
)
from fedscope.storage.limits import parse_json


@dataclass(frozen=True)
class RunFolder:
    """The folder of one run."""

    folder: Path

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def root(self) -> Path:
        """The folder of the registry, below which no link is followed to write."""
        return self.folder.parent

    @property
    def has_manifest(self) -> bool:
        return (self.folder / "manifest.json").exists()

    @property
    def final(self) -> Path:
        return self.folder / "final.pt"

    @property
    def best(self) -> Path:
        """The model that counts, of the round in which it had the best accuracy."""
        return self.folder / "best.pt"

    @property
    def last(self) -> Path:
        """The global model after the newest round of an unfinished run."""
        return self.folder / "last.pt"

    @property
    def is_finished(self) -> bool:
        """Whether the final model is here, or was: then the manifest has its hash."""
        return self.final.exists() or (self.has_manifest and self.manifest().finished)

    @property
    def newest(self) -> Path:
        """The newest global model: the final one of a finished run, whether or not it is here."""
        return self.final if self.is_finished else self.last

    def at(self, name: str) -> Path:
        """A file by its name in a list: one of the run, or a result of its registry."""
        return (self.root if layout.is_result(name) else self.folder) / name

    @property
    def initial(self) -> Path:
        return self.folder / "initial.pt"

    def average(self, name: str, round: int | None = None) -> Path:
        """The mean of clients ``sel`` or ``all``: the newest, or that after ``round``, where it was kept."""
        return self._of_round(round) / f"{name}.pt"

    def anchor(self, round: int) -> Path:
        """The model that the clients of ``round`` started from, where one of their uploads is kept."""
        return self._of_round(round) / "anchor.pt"

    def start(self, round: int) -> Path | None:
        """What the clients of ``round`` started from: its anchor, or the model of the round before.

        None where neither was kept, or the method sends another model than that.
        """
        if self.anchor(round).is_file():
            return self.anchor(round)
        before = self.initial if round == 1 else self.after_round(round - 1)
        return before if before.is_file() and not self.manifest().sends else None

    def after_round(self, round: int) -> Path:
        return self.folder / f"round-{round:04d}.pt"

    def client(self, client: int, round: int | None = None) -> Path:
        return self._of_round(round) / "clients" / f"{client:04d}.pt"

    def step(self, round: int, client: int, step: int) -> Path:
        return self._of_round(round) / "steps" / f"{client:04d}" / f"{step:06d}.pt"

    def server_state(self, round: int) -> Path:
        """The folder of what server and clients remembered after ``round``, where it was kept."""
        return self.folder / "state" / f"round-{round:04d}"

    def rows(self, round: int | None = None) -> Path:
        """Which rows the clients hold; those of ``round`` where every round's clients are new."""
        return self._of_round(round) / "rows.zz"

    def _of_round(self, round: int | None) -> Path:
        return self.folder if round is None else self.folder / f"round-{round:04d}"

    def clients(self, until: int | None = None) -> list[Path]:
        """Each client's last upload, in client order; its last by round ``until`` where all were kept."""
        kept = {(int(p.parts[-3][6:]), p.name): p for p in self._checkpoints("round-*/clients")}
        by_then = {name: kept[round, name] for round, name in sorted(kept) if until and round <= until}
        return [by_then[name] for name in sorted(by_then)] or self._checkpoints("clients")

    def uploads(self, round: int) -> list[Path]:
        return self._checkpoints(f"round-{round:04d}/clients")

    def steps(self) -> list[Path]:
        return self._checkpoints("round-*/steps/*")

    def steps_of(self, round: int, client: int) -> list[int]:
        return [int(path.stem) for path in self._checkpoints(f"round-{round:04d}/steps/{client:04d}")]

    def rounds(self) -> list[int]:
        kept = [path.stem[6:] for path in self._checkpoints(".") if path.name.startswith("round-")]
        return sorted(map(int, kept))

    def of_rounds(self) -> list[Path]:
        """Return the means of clients that were kept of rounds, and what their uploads started from."""
        return self._checkpoints("round-*")

    def _checkpoints(self, folders: str) -> list[Path]:
        found = sorted(self.folder.glob(f"{folders}/*.pt"))
        return [p for p in found if layout.kind(p.relative_to(self.folder).as_posix()) == "checkpoint"]

    @contextmanager
    def locked(self, *, shared: bool = False) -> Iterator[None]:
        """Keep other processes from writing to the run meanwhile; readers share that, and write nothing."""
        self._check_manifest()
        with ExitStack() as stack:
            try:
                stack.enter_context(locked(self.folder / layout.LOCK, below=self.root, shared=shared))
            except (BlockingIOError, FileNotFoundError) as error:
                if not self.has_manifest:
                    raise BusyError(f"the run {self.name!r} has just been deleted") from error
                mend = "wait for its end, or use another --name"
                raise BusyError(f"another process is training {self.name!r}; {mend}") from error
            yield

    def manifest(self) -> Manifest:
        self._check_manifest()
        path = self.folder / "manifest.json"
        try:
            data = parse_json(read_bytes(path))
        except (OSError, ValueError) as error:
            raise UserError(
                f"{path} cannot be read ({error}), and the run needs it: restore it from a copy"
            ) from error
        data = of_format(data, RUN_FORMAT, str(path))
        if data.pop("sha256", None) != seal(data):
            raise UserError(f"{path} is damaged: it does not match its hash; restore it from a copy")
        return parse(Manifest, data, str(path))

    def status(self, manifest: Manifest) -> Literal["finished", "unfinished", "diverged"]:
        """Return whether the run is finished; a diverged one is not, and cannot be continued."""
        if manifest.diverged:
            return "diverged"
        return "finished" if self.is_finished else "unfinished"

    def _check_manifest(self) -> None:
        if not self.has_manifest:
            raise UserError(
                f"{self.folder} has lost its manifest.json; restore that from a copy, or delete the run"
            )

    def write_manifest(self, manifest: Manifest) -> None:
        write_text(self.folder / "manifest.json", self.manifest_text(manifest), below=self.root)

    def extend(self, rounds: int) -> None:
        """Let the run go on to ``rounds``: its last model is again the newest of an unfinished one."""
        manifest = self.manifest()
        if manifest.finished:  # the final model was pulled again: it is no deleted one any more
            left = {n: hash for n, hash in manifest.checkpoints_deleted.items() if n != self.final.name}
            manifest = manifest.model_copy(update={"checkpoints_deleted": left})
            self.write_manifest(manifest)
        if self.final.exists():  # first: a kill in between leaves a run of the old length, to be finished
            move(self.final, self.last, below=self.root)
        settings = manifest.settings.model_copy(update={"rounds": rounds})
        extended = (*manifest.extended, manifest.settings.rounds)
        self.write_manifest(manifest.model_copy(update={"settings": settings, "extended": extended}))

    @staticmethod
    def manifest_text(manifest: Manifest) -> str:
        data = manifest.model_dump(mode="json")
        return json.dumps({**data, "sha256": seal(data)}, indent=1, ensure_ascii=False) + "\n"

    def metrics(self) -> list[Round]:
        """Read the rounds, in order; a last line that a killed process left half-written is left out."""
        return list(self.each_round())

    def each_round(self) -> Iterator[Round]:
        """Yield what :meth:`metrics` returns, a round at a time: those of 10,000 clients fill a memory."""
        path, number = self.folder / "metrics.jsonl", 0
        if not path.exists():
            return
        manifest, finished = self.manifest(), self.is_finished
        with open_regular(path) as file:
            for number, line in enumerate(iter(lambda: file.readline(MOST_BYTES), b""), 1):
                if not (line.endswith(b"\n") or finished or len(line) == MOST_BYTES):
                    break
                yield _round(line, f"{path}, line {number}")
        if finished and not manifest.partial and number < (due := manifest.settings.rounds):
            raise UserError(f"{path} has {number} of {due} rounds; restore it from a copy")

    def write_metrics(self, rounds: Iterable[Round]) -> None:
        with atomic_file(self.folder / "metrics.jsonl", below=self.root) as file:
            file.writelines(_json_line(one).encode() for one in rounds)

    def append_metrics(self, round: Round) -> None:
        append(self.folder / "metrics.jsonl", _json_line(round).encode("utf-8"), below=self.root)

    def tags(self) -> tuple[str, ...]:
        """Return the tags, sorted: each is an empty file, so that two processes can tag at once."""
        return tuple(sorted(p.name for p in (self.folder / "tags").glob("*") if NAME.fullmatch(p.name)))

    def tag(self, name: str) -> None:
        touch(self.folder / "tags" / checked_name(name, "tag"), below=self.root)

    def untag(self, name: str) -> None:
        if name not in self.tags():
            raise UserError(f"{self.name} has no tag {name!r}; it has {', '.join(self.tags()) or 'none'}")
        remove(self.folder / "tags" / name, below=self.root)


def _round(line: bytes, where: str) -> Round:
    try:
        record: Any = parse_json(line)
    except ValueError:
        record = None
    if not isinstance(record, dict):
        raise UserError(f"{where} is no record; restore the file from a copy")
    if record.pop("check", None) != seal(record)[:16]:
        raise UserError(f"{where} does not match its check; restore the file from a copy")
    return parse(Round, record, where)


def _json_line(round: Round) -> str:
    plain = json.loads(json.dumps(round.to_json(), allow_nan=False))  # keys are texts by then
    return json.dumps({**plain, "check": seal(plain)[:16]}) + "\n"
