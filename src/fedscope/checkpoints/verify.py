"""`fedscope runs verify`: every file of the registry read and compared with what it, and the others, say."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from fedscope.checkpoints import index, layout
from fedscope.checkpoints.files import load_checkpoint
from fedscope.checkpoints.registry import Registry
from fedscope.checkpoints.run import Run
from fedscope.checkpoints.schema import CheckpointInfo, Manifest, Round, difference
from fedscope.checkpoints.state import check_state
from fedscope.errors import UserError

Metrics = list[dict[str, object]]
_LEFT_OVER = "left over by a process that was killed; delete it"


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong, and where."""

    path: str
    problem: str


def verify_root(registry: Registry) -> Iterator[Fault]:
    """Yield the faults of the registry's own folder: its index, leftovers, and checkpoints of no run.

    Other programs' files may lie there too, and are none of a registry's.
    """
    for problem in index.faults(registry.root):
        yield Fault(index.INDEX, f"damaged ({problem}); `fedscope runs rebuild` makes it anew")
    for entry in sorted(os.scandir(registry.root), key=lambda entry: entry.name):
        if entry.name == ".analysis" and entry.is_dir(follow_symlinks=False):  # of `hessian`: checked at use
            left = [name for name in layout.files(Path(entry.path)) if layout.is_leftover(name)]
            yield from (Fault(f"{entry.name}/{name}", _LEFT_OVER) for name in left)
        elif layout.is_leftover(entry.name):
            yield Fault(entry.name, _LEFT_OVER)
        elif entry.name.endswith(".pt") and layout.is_ours(Path(entry.path)):
            yield Fault(entry.name, "belongs to no run; move it into its run's folder, or elsewhere")


def verify_run(run: Run, report: Callable[[str], None] = lambda name: None) -> Iterator[Fault]:
    """Yield the faults of one run; ``report`` is told each file before it is read."""
    try:
        manifest, metrics = run.manifest(), run.metrics()
    except (UserError, OSError) as error:
        yield Fault(run.name, _said(error, run))
        return
    if manifest.name != run.name:
        yield Fault(f"{run.name}/manifest.json", f"is of a run named {manifest.name!r}; rename the folder")
    for number, record in enumerate(metrics, 1):
        if record.get("round") != number:
            yield Fault(f"{run.name}/metrics.jsonl", f"line {number} is not of round {number}")
            return
    found = set()
    for name in layout.files(run.folder):
        report(f"{run.name}/{name}")
        found.add(name)
        problem = _problem(run, name, manifest, metrics)
        if problem:
            yield Fault(f"{run.name}/{name}", problem)
    for name in sorted(_expected(run, manifest, metrics) - found):
        yield Fault(f"{run.name}/{name}", "is missing; restore it from a copy")


def _problem(run: Run, name: str, manifest: Manifest, metrics: Metrics) -> str | None:
    """Return what is wrong with one file, if anything is."""
    path, kind = run.folder / name, layout.kind(name)
    if layout.is_leftover(name):
        return None if _busy(run) else _LEFT_OVER
    if kind is None:
        return "belongs to no run of ours; move it elsewhere"
    if path.is_symlink():
        return "is a link, which no copy or archive of the run would hold; put the file here"
    try:
        if kind == "checkpoint":
            return _mismatch(name, load_checkpoint(path).info, manifest, metrics)
        if kind == "state" and name.endswith("state.json"):
            check_state(path.parent)
    except (UserError, OSError) as error:
        return _said(error, run)
    return None


def _mismatch(name: str, info: CheckpointInfo, manifest: Manifest, metrics: Metrics) -> str | None:
    """Return in what a whole checkpoint disagrees with its run or with its own name."""
    section = difference(manifest, info)
    if section:
        return f"is of another run: its {section} are not the manifest's"
    parts = Path(name).parts
    if (info.kind == "client") != ("clients" in parts):
        return f"holds a {info.kind} model"
    if info.client is not None and info.client != int(Path(name).stem):
        return f"holds the model of client {info.client}"
    if parts[0].startswith("round-") and info.round != int(Path(parts[0]).stem[6:]):
        return f"holds the model of round {info.round}"
    if name == "final.pt" and manifest.stated()["rounds"] not in (None, info.round):
        return f"is of round {info.round} of {manifest.settings.rounds}"
    ahead = name not in ("last.pt", "final.pt")  # the others are written before the line of their round
    if not manifest.partial and info.round > len(metrics) + ahead:
        return f"is of round {info.round}, of which metrics.jsonl knows nothing"
    measured = metrics[info.round - 1].get("accuracy") if 1 <= info.round <= len(metrics) else None
    claimed = info.metrics.get("accuracy")
    if info.kind == "global" and None not in (measured, claimed) and measured != claimed:
        return f"claims accuracy {claimed} in round {info.round}, metrics.jsonl has {measured}"
    return None


def _expected(run: Run, manifest: Manifest, metrics: Metrics) -> set[str]:
    """Return the files that there must be, going by the metrics; the newest model comes after its line."""
    settings, done = manifest.settings, len(metrics)
    if manifest.partial:
        return set()
    if not metrics:
        return {"metrics.jsonl"} if run.final.exists() else set()
    names = {run.kept(r).name for r in _every(settings.keep_every, done)}
    if done > 1 and not (run.final.exists() or run.last.exists()):
        names.add("final.pt" if done == settings.rounds and not manifest.diverged else "last.pt")
    if any(isinstance(m.get("accuracy"), float) for m in metrics):
        names.add("best.pt")
    uploads = settings.save_clients != "none" and not manifest.clients_deleted
    for round, record in enumerate(metrics, 1) if uploads else []:
        for client in Round.model_validate(record).clients:
            paths = [run.client(client)]
            paths += [run.client(client, round)] if settings.save_clients == "all" else []
            names |= {path.relative_to(run.folder).as_posix() for path in paths}
    return names


def _every(step: int, done: int) -> range:
    return range(step, done + 1, step) if step else range(0)


def _busy(run: Run) -> bool:
    """Say whether a process is training the run now."""
    try:
        with run.held(shared=True):
            return False
    except (UserError, OSError):
        return True


def _said(error: Exception, run: Run) -> str:
    """Return the error without the folder that the line begins with."""
    return str(error).replace(f"{run.folder}/", "").replace(f"{run.folder} ", "")
