"""The addresses of a run's checkpoints: WHICH in RUN@WHICH.

final, best, initial        the global model after the last round, at its best, before the first round (0)
25                          the global model after 25 rounds
all, sel, 25:all, 25:sel    a mean of clients, the newest or that after 25 rounds
client3                     a client's last upload
7:client3                   a client's upload of round 7, under --save-clients all
7:client3:step40            the same client's model after 40 local steps, under --keep-steps
7:anchor                    what the clients of round 7 started from, where one of their uploads is kept
"""

import re
from collections.abc import Iterator
from pathlib import Path

from fedscope.checkpoints.registry.run_folder import RunFolder

PULL = "`fedscope runs pull {} git:` brings it from the repository's history, a URL from where it was pushed"
_CLIENT = r"client([0-9]{1,9})"
_STEP = r"step([0-9]{1,9})"
_ROUND = rf"([0-9]{{1,9}})(?::(all|sel|anchor|{_CLIENT}(?::{_STEP})?))?"


def path_of(run: RunFolder, which: str) -> Path | None:
    """Return the file that RUN@``which`` names, there or not; ``""`` is the newest, None: it names none."""
    if which == "":
        return run.newest
    if which in ("final", "best", "initial", "all", "sel"):
        return run.folder / f"{which}.pt"
    if client := re.fullmatch(_CLIENT, which):
        return run.client(int(client[1]))
    found = re.fullmatch(_ROUND, which)
    return found and _after(run, int(found[1]), found[2])


def _after(run: RunFolder, round: int, mean: str | None) -> Path:
    if mean and (client := re.fullmatch(rf"{_CLIENT}(?::{_STEP})?", mean)):
        number, step = int(client[1]), client[2]
        return run.client(number, round) if step is None else run.step(round, number, int(step))
    if mean == "anchor":
        return run.anchor(round)
    if round == 0 and not mean:
        return run.initial
    path = run.average(mean, round) if mean else run.after_round(round)
    if path.exists() or not run.is_finished or round != run.manifest().settings.rounds:
        return path
    return run.average(mean) if mean else run.final


def address_of(path: Path) -> str | None:
    """Return the address of a checkpoint by its path; None of the newest model of an unfinished run."""
    name, folder = path.stem, path.parent.name
    if folder == "clients":
        above = path.parents[1].name
        return f"{int(above[6:])}:client{int(name)}" if above.startswith("round-") else f"client{int(name)}"
    if folder.startswith("round-"):
        return f"{int(folder[6:])}:{name}"
    if path.parent.parent.name == "steps":
        return f"{int(path.parents[2].name[6:])}:client{int(folder)}:step{int(name)}"
    if name.startswith("round-"):
        return str(int(name[6:]))
    return None if name == "last" else name


def addresses(run: RunFolder) -> Iterator[str]:
    newest = (run.final, run.best, run.average("all"), run.average("sel"), run.initial)
    yield from (path.stem for path in newest if path.exists())
    yield from map(str, run.rounds())
    for path in run.of_rounds():
        yield f"{int(path.parent.name[6:])}:{path.stem}"
    yield from (str(address_of(path)) for path in run.steps())
    yield from (f"client{int(path.stem)}" for path in run.clients())


def missing(run: RunFolder, which: str, path: Path) -> str:
    name = path.relative_to(run.folder).as_posix()
    if run.has_manifest and name in run.manifest().checkpoints_deleted:
        return f"{name} of run {run.name!r} is not here, its hash and results are; {PULL.format(run.name)}"
    if of_round := re.fullmatch(_ROUND, which):
        if of_round[2] == "anchor":
            return _no_anchor(run, which)
        if of_round[3] and not of_round[4]:
            return _no_upload(run, int(of_round[1]), int(of_round[3]))
    names = [f"@{name}" for name in addresses(run) if not name.endswith(":anchor")]
    clients = len(run.clients())
    names = names[: len(names) - clients + 3] + ["…"] * (clients > 3)
    asked = f"no @{which} ({path.relative_to(run.folder)})" if which else "neither final.pt nor last.pt"
    has = f"it has {', '.join(names)}" if names else "its first round is not finished"
    return f"run {run.name!r} holds {asked}; {has}"


def _no_anchor(run: RunFolder, which: str) -> str:
    there = [f"@{name}" for name in addresses(run) if name.endswith(":anchor")]
    return (
        f"run {run.name!r} holds no @{which}; it has {', '.join(there) or 'no anchor'}: an anchor is kept as "
        "long as an upload of its round is, every one under `fedscope train --save-clients all`"
    )


def _no_upload(run: RunFolder, round: int, client: int) -> str:
    which, steps = f"@{round}:client{client}", run.steps_of(round, client)
    there = [f"@{address_of(path)}" for path in run.uploads(round)]
    last = f"; @client{client} is the last of this client" if run.client(client).is_file() else ""
    inside = f"; of its local steps it has {which}:step{steps[0]} to step{steps[-1]}" if steps else ""
    return (
        f"run {run.name!r} holds no {which}; it has {', '.join(there) or 'no upload'} of round "
        f"{round}{inside}: those of every round are kept under `fedscope train --save-clients all`{last}"
    )
