"""What the files of a run claim, of themselves and of each other: compared, and counted.

Pure functions of what :mod:`fedscope.checkpoints.verification.verify` read. Each yields problems of the one
file that it was given, or ``(file, problem)``.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from fedscope.checkpoints.file import layout
from fedscope.checkpoints.file.kept_steps import KeptSteps
from fedscope.checkpoints.file.schema import CheckpointInfo, Manifest, Round, RowsSpec, difference
from fedscope.checkpoints.file.settings import Settings
from fedscope.checkpoints.registry.best import best


@dataclass(frozen=True)
class Account:
    """A run's own account of itself: its manifest, and its record of every round."""

    manifest: Manifest
    rounds: tuple[Round, ...]
    ended: bool  # finished or diverged: no file is ahead of the metrics

    @property
    def settings(self) -> Settings:
        return self.manifest.settings

    @property
    def trained(self) -> bool:
        """Whether fedscope trained the run; another program follows rules of its own."""
        return self.manifest.added is None

    @property
    def done(self) -> int:
        return len(self.rounds)

    @property
    def reach(self) -> int:
        """The newest round that a file may be of: most are written before the line of their round."""
        return self.done if self.ended else self.done + 1

    @property
    def whole(self) -> bool:
        """Whether no checkpoint of the run is elsewhere."""
        return not self.manifest.partial

    def record(self, round: int) -> Round | None:
        return self.rounds[round - 1] if 1 <= round <= self.done else None

    def rows(self, round: int) -> RowsSpec | None:
        record = self.record(round)
        return self.manifest.rows or (record.rows if record else None)

    @cached_property
    def last_rounds(self) -> dict[int, int]:
        return {client: record.round for record in self.rounds for client in record.clients}

    @cached_property
    def best(self) -> int:
        """The number of the best round; 0 where none has an accuracy, or a loss that takes its place."""
        top = best(self.rounds)
        decided = top and (self.settings.loss or (top.validation or top).accuracy is not None)
        return top.round if top and decided else 0


@dataclass(frozen=True)
class LoadedCheckpoint:
    """A checkpoint that was read whole."""

    name: str
    info: CheckpointInfo
    sha256: str


def run_problems(account: Account, name: str, files: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield what contradicts itself in manifest and metrics of the run ``name``."""
    manifest, done = account.manifest, account.done
    if manifest.name != name:
        yield "manifest.json", f"is of a run named {manifest.name!r}; rename the folder"
    if manifest.diverged not in (None, done):
        said = f"says that round {manifest.diverged} of {done} diverged; it would be the last"
        yield "manifest.json", said
    if manifest.diverged and "final.pt" in files:
        yield "manifest.json", "says that the run diverged, and final.pt that it is finished"
    clients = any("clients" in Path(file).parts for file in files)
    if manifest.clients_deleted and clients and not manifest.extended:
        said = "says that the clients' models are deleted, and some are left over; delete them again"
        yield "manifest.json", said
    if account.trained and done > account.settings.rounds:
        yield "metrics.jsonl", f"has {done} rounds of {account.settings.rounds}"
    for number, record in enumerate(account.rounds, 1):
        if record.round != number:
            yield "metrics.jsonl", f"line {number} is not of round {number}"


def foreign_problem(name: str, info: CheckpointInfo, account: Account) -> str | None:
    """Return why a checkpoint is of another run, or another one of this than its name says."""
    if section := difference(account.manifest, info):
        return f"is of another run: its {section} are not the manifest's"
    for field, value in _named(name, account).items():
        if (said := getattr(info, field)) != value:
            return f"holds {field} {said!r}, and by its name {field} {value!r}"
    if account.trained and info.client is not None and info.client >= account.settings.clients:
        return f"is of client {info.client}, and there are {account.settings.clients}"
    return None


def checkpoint_problem(name: str, info: CheckpointInfo, account: Account) -> str | None:
    return foreign_problem(name, info, account) or next(_misdated(name, info, account), None)


def _named(name: str, account: Account) -> dict[str, object]:
    """Return what a checkpoint has to say of itself, by its name."""
    path, client, step = Path(name), None, None
    if path.parent.name == "clients":
        client = int(path.stem)
    elif "steps" in path.parts:
        client, step = int(path.parent.name), int(path.stem)
    average = path.stem if path.stem in ("sel", "all") else "cld"
    if name == "best.pt":
        average = account.settings.eval_model
    if path.stem == "anchor" and account.manifest.sends:  # not the model that the server keeps
        average = "sent"
    named: dict[str, object] = {
        "kind": "global" if client is None else "client", "client": client, "step": step, "average": average,
    }  # fmt: skip
    round = layout.round_of(name)
    return named if round is None else {**named, "round": round}


def _misdated(name: str, info: CheckpointInfo, account: Account) -> Iterator[str]:
    settings, done = account.settings, account.done
    if name == "final.pt" and account.manifest.states("rounds") and settings.rounds != info.round:
        yield f"is of round {info.round} of {settings.rounds}"
    if account.trained:
        if info.round > info.settings.rounds:
            yield f"is of round {info.round} of {info.settings.rounds}"
        if account.whole and info.round > (done if name in ("last.pt", "final.pt") else account.reach):
            yield f"is of round {info.round}, of which metrics.jsonl knows nothing"
        newest = name in ("sel.pt", "all.pt", "last.pt") and account.whole
        if newest and info.round < done - (name == "last.pt"):
            yield f"is of round {info.round}, and round {done} is done"
        if name == "best.pt" and info.round <= done and info.round != account.best:
            yield f"is of round {info.round}, and round {account.best} was the best"
        if info.client is not None and info.round <= done:
            part = [record.round for record in account.rounds if info.client in record.clients]
            if info.round not in part:
                yield f"is of round {info.round}, in which client {info.client} took no part"
            elif name.startswith("clients/") and info.round != part[-1]:
                yield f"is of round {info.round}, and client {info.client} took part in round {part[-1]}"
    spec = account.rows(max(1, info.round))
    if spec is None:  # of an added run
        return
    held = sum(spec.counts) if info.client is None else sum(spec.counts[info.client : info.client + 1])
    if info.rows != spec.sha256:
        yield "claims other rows than the run"
    elif info.samples != held:
        yield f"claims {info.samples} samples, and the rows are {held}"


def joint_problems(loaded: list[LoadedCheckpoint]) -> Iterator[tuple[str, str]]:
    """Yield the files that hold one model, and differ: the best one may be the last, for instance."""
    first: dict[tuple[object, ...], LoadedCheckpoint] = {}
    trusted = ("final.pt", "last.pt")
    for one in sorted(loaded, key=lambda one: (one.name not in trusted, one.name)):
        info = one.info
        other = first.setdefault((info.kind, info.client, info.round, info.average, info.step), one)
        if (other.sha256, other.info.samples, other.info.metrics) != (one.sha256, info.samples, info.metrics):
            yield one.name, f"is not the model in {other.name}, which is of the same round"


def expected(account: Account, names: Collection[str]) -> set[str]:
    """Return the files that must be there by manifest and metrics; a model is written after its line."""
    settings, manifest, done, rounds = account.settings, account.manifest, account.done, account.rounds
    states = {name.rpartition("/")[0] for name in names if layout.kind(name) == "state"}
    needed = {f"{state}/{file}" for state in states for file in ("state.json", "clients.f32")}
    if not account.whole:
        return needed
    if not done:
        return needed | ({"metrics.jsonl"} if "final.pt" in names else set())
    kept = range(settings.keep_every, done + 1, settings.keep_every) if settings.keep_every else ()
    needed |= {f"round-{r:04d}.pt" for r in kept}
    if done > 1 and not {"final.pt", "last.pt"} & set(names):
        needed.add("final.pt" if done == settings.rounds and not manifest.diverged else "last.pt")
    if account.best:
        needed.add("best.pt")
    averages = settings.eval_model != "cld"
    if averages and account.trained:
        needed.add(f"{settings.eval_model}.pt")
    if account.trained and not account.ended:  # to go on
        folders = ["state"] * manifest.remembers + ["latest"] * averages
        needed |= {f"{folder}/round-{done:04d}/state.json" for folder in folders}
    uploads = settings.save_clients != "none" and not manifest.clients_deleted
    every = settings.save_clients == "all"
    if uploads:
        needed |= {f"clients/{client:04d}.pt" for client in account.last_rounds}
    if uploads and every:
        needed |= {f"round-{r.round:04d}/clients/{k:04d}.pt" for r in rounds for k in r.clients}
    fresh = any(record.rows for record in rounds)
    if manifest.rows or fresh:  # those of an added run may be unknown
        needed |= {"initial.pt"} | (set() if fresh else {"rows.zz"})
        needed |= {f"round-{r:04d}/{mean}.pt" for r in kept for mean in ("all", "sel") if averages}
        dated = {record.round for record in rounds} if every else {*account.last_rounds.values()}
        beside = ["anchor.pt", *(["rows.zz"] if fresh else [])]
        needed |= {f"round-{r:04d}/{file}" for r in dated for file in beside if uploads}
    if not (manifest.clients_deleted or manifest.steps_deleted):
        steps = KeptSteps.parse(settings.keep_steps)
        needed |= {
            f"round-{record.round:04d}/steps/{client:04d}/{step:06d}.pt"
            for record in rounds
            for client, made in zip(record.clients, record.local_steps, strict=False)
            for step in steps.of(record.round, client, made)
        }
    return needed - manifest.checkpoints_deleted.keys()
