"""Where the files of a run contradict each other: in rounds, scores, times, clients.

Pure functions of what :mod:`fedscope.checkpoints.verification.verify` read: each yields ``(file, problem)``,
or problems of the one file it was given.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path

from fedscope.checkpoints.file import layout
from fedscope.checkpoints.file.kept_steps import KeptSteps
from fedscope.checkpoints.file.schema import CheckpointInfo, Round, RowsSpec, difference
from fedscope.checkpoints.file.settings import Settings
from fedscope.checkpoints.verification.account import METRICS, Account, LoadedCheckpoint

Problem = tuple[str, str]  # file, what is wrong

SKEW = timedelta(days=1)  # that two computers' clocks may differ


def manifest_problems(account: Account, names: Collection[str], now: datetime) -> Iterator[str]:
    """Yield where the clock, the metrics or the list of files contradict the manifest."""
    manifest, settings = account.manifest, account.settings
    created = datetime.fromisoformat(manifest.created)
    lengths = (*manifest.extended, settings.rounds)
    if created > now + SKEW:
        yield f"was created at {manifest.created}, which is in the future; set it right, or the clock"
    elif (created - now).total_seconds() + sum(r.seconds for r in account.rounds) > SKEW.total_seconds():
        yield f"was created at {manifest.created}, and trained for longer than since then"
    if any(longer <= shorter for shorter, longer in pairwise(lengths)):
        yield f"was extended from {' to '.join(map(str, lengths))} rounds, which is no growth"
    if manifest.diverged not in (None, account.done):
        yield f"says that round {manifest.diverged} of {account.done} diverged; it would be the last"
    if manifest.diverged and "final.pt" in names:
        yield "says that the run diverged, and final.pt that it is finished"
    clients = any("clients" in Path(name).parts for name in names)
    if manifest.clients_deleted and clients and not manifest.extended:
        yield "says that the clients' models are deleted, and some are left over; delete them again"
    known = Settings.model_fields.keys() | settings.options.keys()
    unknown = {*(manifest.added.stated if manifest.added else ())} - known
    unknown |= {*(manifest.preset.provisional if manifest.preset else ())} - known
    strange = {one.method for one in manifest.methods} - set(settings.method.split("+"))
    if strange:
        yield f"names the code of {', '.join(sorted(strange))}, and the method is {settings.method}"
    if unknown:
        yield f"speaks of settings that there are not: {', '.join(sorted(unknown))}"


def metrics_problems(account: Account) -> Iterator[str]:
    """Yield what is wrong with a line of the metrics, by itself or by the settings."""
    settings = account.settings
    if account.trained and account.done > settings.rounds:
        yield f"has {account.done} rounds of {settings.rounds}"
    for number, record in enumerate(account.rounds, 1):
        problem = f"is not of round {number}" if record.round != number else None
        problem = problem or (next(_odd_record(record, settings), None) if account.trained else None)
        if problem:
            yield f"line {number} {problem}"
            return


def _odd_record(record: Round, settings: Settings) -> Iterator[str]:
    scores, held_out = record.accuracies, record.validation.accuracy if record.validation else None
    accuracies = (record.accuracy, record.train_accuracy, held_out, *scores.values())
    if not all(0 <= accuracy <= 1 for accuracy in accuracies if accuracy is not None):
        yield "has an accuracy that is not between 0 and 1"
    chosen = scores.get(settings.eval_model)
    if scores and chosen != record.accuracy:
        yield f"has accuracy {record.accuracy}, and {chosen} of {settings.eval_model}"
    clients = record.clients
    if len(set(clients)) < len(clients) or any(client >= settings.clients for client in clients):
        yield f"has clients that are not among the {settings.clients}, or one twice"
    everyone = min(settings.clients, settings.clients_limit or settings.clients)
    if clients and settings.participation == 1 and len(clients) < everyone:
        yield f"has {len(clients)} clients, and all {everyone} took part"
    due = bool(settings.validation) and record.round % settings.evaluate_every == 0
    if (held_out is not None and not settings.validation) or (held_out is None and due):
        yield "has a score on validation that --validation does not ask for, or lacks it"
    yield from _odd_diagnostics(record, settings)
    if record.seconds_in and not _near(sum(record.seconds_in.values()), record.seconds):
        yield f"has {record.seconds} seconds, and its parts add up to {sum(record.seconds_in.values())}"


def _odd_diagnostics(record: Round, settings: Settings) -> Iterator[str]:
    found = record.diagnostics
    if found is None:
        return
    lists = (found.updates.norms, found.local.before, found.local.first_epoch, found.local.last_epoch)
    if any(len(of) != len(record.clients) for of in lists):
        yield f"has diagnostics of other clients than its {len(record.clients)}"
    due = settings.probe_curvature and not record.round % settings.probe_curvature
    if found.curvature and not due:
        yield f"has a curvature that probe_curvature {settings.probe_curvature} does not measure"


def foreign_problem(name: str, info: CheckpointInfo, account: Account) -> str | None:
    """Return why the checkpoint belongs to another run, or is another model than its name says."""
    if section := difference(account.manifest, info):
        return f"is of another run: its {section} are not the manifest's"
    return next(_misplaced(name, info, account), None)


def checkpoint_problem(name: str, info: CheckpointInfo, account: Account) -> str | None:
    """Return in what a whole checkpoint disagrees with its name, its manifest, or the metrics."""
    checks = (_misdated, _misscored, _misheld)
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
    most = account.manifest.data.train_samples
    if None not in (most, info.samples) and client is not None and info.samples > most:  # type: ignore[operator]
        yield f"claims {info.samples} samples, and the data has {most}"


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
        elif info.step and info.step not in _steps_due(info, account):
            yield f"is of local step {info.step}, which keep_steps does not keep of this client"
        elif path.parts[0] == "clients" and info.round != part[-1]:
            yield f"is of round {info.round}, and client {info.client} took part in round {part[-1]}"


def _steps_due(info: CheckpointInfo, account: Account) -> range:
    record, client = account.record(info.round), info.client
    steps = record.local_steps[record.clients.index(client)] if record and record.local_steps else 0  # type: ignore[arg-type]
    return KeptSteps.parse(account.settings.keep_steps).of(info.round, client or 0, steps)


def _misscored(name: str, info: CheckpointInfo, account: Account) -> Iterator[str]:
    record = account.record(info.round)
    if info.round == 0 and info.metrics and account.trained:
        yield f"claims {', '.join(info.metrics)} of a model that was not trained"
    if record is None or not account.trained:
        return
    measured = record.to_json() if info.kind == "global" else {"train_loss": None}
    for score, claimed in info.metrics.items():
        if score not in measured:
            yield f"claims {score} {claimed}, of which metrics.jsonl knows nothing"
        elif info.kind == "global" and measured[score] != claimed:
            yield f"claims {score} {claimed} in round {info.round}, metrics.jsonl has {measured[score]}"


def _misheld(name: str, info: CheckpointInfo, account: Account) -> Iterator[str]:
    spec = account.rows(max(1, info.round))
    if spec is None:  # an older run, which may have been continued since
        return
    held = sum(spec.counts) if info.client is None else sum(spec.counts[info.client : info.client + 1])
    if info.rows != spec.sha256:
        yield "claims other rows than the run"
    elif info.samples != held:
        yield f"claims {info.samples} samples, and the rows are {held}"


def rows_problem(spec: RowsSpec, held: Sequence[Sequence[int]], account: Account) -> str | None:
    """Return what is wrong with rows that match their hash: each client's, and those for validation."""
    size, validation = account.manifest.data.train_samples, set(held[-1])
    distinct = validation.union(*held)
    if len(spec.counts) != account.settings.clients:
        return f"has rows of {len(spec.counts)} clients, and there are {account.settings.clients}"
    if size is not None and len(distinct) > size:
        return f"has {len(distinct)} rows of {size}"
    if bool(validation) != bool(account.settings.validation):
        return f"has {len(validation)} rows for validation, and validation is {account.settings.validation:g}"
    if any(not validation.isdisjoint(rows) for rows in held[:-1]):
        return "has rows for validation that a client is trained on"
    return None


def joint_problems(loaded: list[LoadedCheckpoint], account: Account) -> Iterator[Problem]:
    """Yield in what checkpoints that are whole by themselves disagree with each other."""
    yield from _unequal_copies(loaded)
    usual = Counter(one.shapes for one in loaded).most_common(1)
    yield from (
        (one.name, "holds other tensors than the others") for one in loaded if one.shapes != usual[0][0]
    )
    if account.manifest.diverged:
        last = next((one for one in loaded if one.name == "last.pt"), None)
        record = account.record(account.manifest.diverged)
        if last and last.finite and record and record.train_loss is not None:
            yield "manifest.json", "says that the run diverged, and loss and weights are finite"
    if account.trained and account.manifest.sealed_metrics:  # format 1 averaged otherwise
        yield from _unequal_losses(loaded, account)


def _unequal_copies(loaded: list[LoadedCheckpoint]) -> Iterator[Problem]:
    """Yield the files that hold one model, and differ: the best one may be the last, for instance."""
    first: dict[tuple[object, ...], LoadedCheckpoint] = {}
    trusted = ("final.pt", "last.pt")
    for one in sorted(loaded, key=lambda one: (one.name not in trusted, one.name)):
        info = one.info
        other = first.setdefault((info.kind, info.client, info.round, info.average, info.step), one)
        if (other.sha256, other.info.samples, other.info.metrics) != (one.sha256, info.samples, info.metrics):
            yield one.name, f"is not the model in {other.name}, which is of the same round"


def _unequal_losses(loaded: list[LoadedCheckpoint], account: Account) -> Iterator[Problem]:
    uploads: dict[int, dict[int, CheckpointInfo]] = defaultdict(dict)
    for one in loaded:
        if one.info.client is not None and one.info.step is None:
            uploads[one.info.round][one.info.client] = one.info
    for round, found in sorted(uploads.items()):
        record = account.record(round)
        samples = [info.samples or 0 for info in found.values()]
        if record is None or found.keys() != set(record.clients) or not all(samples):
            continue
        losses = [info.metrics.get("train_loss") for info in found.values()]
        if record.train_loss is not None and None not in losses:
            mean = sum(n * (loss or 0) for n, loss in zip(samples, losses, strict=True)) / sum(samples)
            if not _near(mean, record.train_loss):
                says = f"line {round} has train_loss {record.train_loss}"
                yield METRICS, f"{says}, and its clients' models have {mean} on average"


def state_problem(clients: tuple[int, ...], newest: int, account: Account) -> str | None:
    """Return what is wrong with the clients of a state; ``newest`` is the newest round that has one."""
    if len(set(clients)) < len(clients) or not set(clients) <= set(range(account.settings.clients)):
        return f"has clients that are not among the {account.settings.clients}, or one twice"
    if account.whole and not account.done <= newest <= account.reach:
        return f"the newest state is of round {newest}, and round {account.done} is done"
    return None


def lost_clients(held: Mapping[int, Collection[int]], account: Account) -> str | None:
    """Return which client took part in a newer round than it is ``held`` of; that has clients by round."""
    newest = {client: round for round in sorted(held) for client in held[round]}
    for client, last in account.last_rounds.items() if account.whole and newest else ():
        if newest.get(client, 0) < last:
            return f"lacks what client {client} remembers of round {last}; restore its folder from a copy"
    return None


def _near(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=1e-6, abs_tol=1e-9)
