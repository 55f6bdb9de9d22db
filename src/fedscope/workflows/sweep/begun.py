"""Trainings that a sweep must not go on with: their run began with other options, or outside the sweep."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from fedscope.errors import UserError
from fedscope.workflows.sweep.jobs import Job, settings

_NOT_GIVEN = "not given"


def check_begun(jobs: Sequence[Job], out: Path) -> None:
    faults = [fault for job in jobs if (fault := _fault(job, out))]
    if faults:
        more = f" (and {len(faults) - 1} more jobs)" if faults[1:] else ""
        raise UserError(f"{faults[0]}{more}")


def _fault(job: Job, out: Path) -> str | None:
    if not job.begun:
        return None
    kept, names = job.kept(out), [run.name for run in job.begun]
    name, each = names[0], " ".join(names)
    mend = f"delete the run (`fedscope runs delete {each}`), or give the group of jobs another name"
    if kept is None:
        return f"{job.name}: the run {name} is there, and this sweep has not begun it; {mend}"
    changes = list(_changes(kept.words, job.words))
    if not changes:
        return None
    return (
        f"{job.name}: the run {name} began with other options: {', '.join(changes)}; restore the file, {mend}"
    )


def _changes(before: Sequence[str], now: Sequence[str]) -> Iterator[str]:
    old, new = settings(before), settings(now)
    for flag in dict.fromkeys((*old, *new)):
        if old.get(flag) != new.get(flag):
            yield f"{flag} {old.get(flag, _NOT_GIVEN)} → {new.get(flag, _NOT_GIVEN)}"
