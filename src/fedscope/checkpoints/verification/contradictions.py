"""Where the files of a run contradict each other: in rounds, scores, rows, clients.

Pure functions of what :mod:`fedscope.checkpoints.verification.verify` read: each yields ``(file, problem)``,
or problems of the one file it was given.
"""

from collections.abc import Collection, Iterator
from pathlib import Path

from fedscope.checkpoints.file import layout
from fedscope.checkpoints.file.schema import CheckpointInfo, difference
from fedscope.checkpoints.verification.account import Account, LoadedCheckpoint

Problem = tuple[str, str]  # file, what is wrong


def manifest_problems(account: Account, names: Collection[str]) -> Iterator[str]:
    manifest = account.manifest
    if manifest.diverged not in (None, account.done):
        yield f"says that round {manifest.diverged} of {account.done} diverged; it would be the last"
    if manifest.diverged and "final.pt" in names:
        yield "says that the run diverged, and final.pt that it is finished"
    clients = any("clients" in Path(name).parts for name in names)
    if manifest.clients_deleted and clients and not manifest.extended:
        yield "says that the clients' models are deleted, and some are left over; delete them again"


def metrics_problems(account: Account) -> Iterator[str]:
    if account.trained and account.done > account.settings.rounds:
        yield f"has {account.done} rounds of {account.settings.rounds}"
    wrong = next((n for n, record in enumerate(account.rounds, 1) if record.round != n), None)
    if wrong:
        yield f"line {wrong} is not of round {wrong}"


def foreign_problem(name: str, info: CheckpointInfo, account: Account) -> str | None:
    if section := difference(account.manifest, info):
        return f"is of another run: its {section} are not the manifest's"
    return next(_misplaced(name, info, account), None)


def checkpoint_problem(name: str, info: CheckpointInfo, account: Account) -> str | None:
    checks = (_misdated, _misheld)
    found = (problem for check in checks for problem in check(name, info, account))
    return foreign_problem(name, info, account) or next(found, None)


def _misplaced(name: str, info: CheckpointInfo, account: Account) -> Iterator[str]:
    path, settings = Path(name), account.settings
    client, step = int(path.stem) if path.parent.name == "clients" else None, None
    if "steps" in path.parts:
        client, step = int(path.parent.name), int(path.stem)
    if (info.kind == "client") != (client is not None):
        yield f"holds a {info.kind} model"
    if info.client != client:
        yield f"holds the model of client {info.client}"
    if info.step != step:
        yield f"holds the model after {'a whole round' if info.step is None else f'local step {info.step}'}"
    average = path.stem if path.stem in ("sel", "all") else "cld"
    anchor = path.name == "anchor.pt"
    if anchor and account.manifest.sends and info.average != "sent":
        yield "holds the model that the server kept, and the method sends another"
    sent = anchor and info.average == "sent"
    if not sent and info.average != (settings.eval_model if name == "best.pt" else average):
        yield f"holds the average {info.average!r}"
    if not account.trained:
        return
    if client is not None and client >= settings.clients:
        yield f"is of client {client}, and there are {settings.clients}"


def _misdated(name: str, info: CheckpointInfo, account: Account) -> Iterator[str]:
    path, settings, done = Path(name), account.settings, account.done
    if layout.round_of(name) not in (None, info.round):
        yield f"holds the model of round {info.round}"
    if name == "final.pt" and account.manifest.states("rounds") and settings.rounds != info.round:
        yield f"is of round {info.round} of {settings.rounds}"
    if not account.trained:
        return
    if info.round > info.settings.rounds:
        yield f"is of round {info.round} of {info.settings.rounds}"
    if account.whole and info.round > (done if name in ("last.pt", "final.pt") else account.reach):
        yield f"is of round {info.round}, of which metrics.jsonl knows nothing"
    if name in ("sel.pt", "all.pt", "last.pt") and account.whole and info.round < done - (name == "last.pt"):
        yield f"is of round {info.round}, and round {done} is done"
    if name == "best.pt" and info.round <= done and info.round != (top := account.best):
        yield f"is of round {info.round}, and round {top} was the best"
    if info.client is not None and info.round <= done:
        part = [r.round for r in account.rounds if info.client in r.clients]
        if info.round not in part:
            yield f"is of round {info.round}, in which client {info.client} took no part"
        elif path.parts[0] == "clients" and info.round != part[-1]:
            yield f"is of round {info.round}, and client {info.client} took part in round {part[-1]}"


def _misheld(name: str, info: CheckpointInfo, account: Account) -> Iterator[str]:
    spec = account.rows(max(1, info.round))
    if spec is None:  # of an added run
        return
    held = sum(spec.counts) if info.client is None else sum(spec.counts[info.client : info.client + 1])
    if info.rows != spec.sha256:
        yield "claims other rows than the run"
    elif info.samples != held:
        yield f"claims {info.samples} samples, and the rows are {held}"


def joint_problems(loaded: list[LoadedCheckpoint]) -> Iterator[Problem]:
    """Yield the files that hold one model, and differ: the best one may be the last, for instance."""
    first: dict[tuple[object, ...], LoadedCheckpoint] = {}
    trusted = ("final.pt", "last.pt")
    for one in sorted(loaded, key=lambda one: (one.name not in trusted, one.name)):
        info = one.info
        other = first.setdefault((info.kind, info.client, info.round, info.average, info.step), one)
        if (other.sha256, other.info.samples, other.info.metrics) != (one.sha256, info.samples, info.metrics):
            yield one.name, f"is not the model in {other.name}, which is of the same round"
