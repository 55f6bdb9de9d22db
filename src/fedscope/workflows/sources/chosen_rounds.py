"""`--rounds FIRST:LAST:STEP`, or `all`: which rounds of which runs; `--local-steps`: which of a client."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Literal

from fedscope.checkpoints.registry.run_folder import RunFolder
from fedscope.checkpoints.registry.run_registry import RunRegistry
from fedscope.errors import UserError
from fedscope.workflows.sources.targets import Targets

MOST_ROUNDS = 500


def _models(run: RunFolder) -> list[int]:
    final = [run.manifest().settings.rounds] if run.final.is_file() else []
    return sorted({*run.rounds(), *final})


@dataclass(frozen=True)
class KeptRounds:
    """What of its rounds a run must have kept."""

    of: Callable[[RunFolder], list[int]]  # the rounds of which a run has it
    what: str
    mend: str  # the options of training that keep more


MODELS = KeptRounds(_models, "checkpoint", "--keep-every")


def parse(text: str, what: Literal["rounds", "local-steps"] = "rounds") -> list[int]:
    """Return the rounds, or steps, of "FIRST:LAST:STEP", LAST included; STEP is 1 if left out."""
    found = re.fullmatch(r"(\d{1,6}):(\d{1,6})(?::(\d{1,6}))?", text)
    if not found:
        raise UserError(f"--{what} takes FIRST:LAST:STEP, such as 5:30:5, not {text!r}")
    first, last, step = int(found[1]), int(found[2]), int(found[3] or 1)
    rounds = list(range(first, last + 1, step)) if step else []
    if not 2 <= len(rounds) <= MOST_ROUNDS or first < 1:
        counted = what.replace("-", " ")
        raise UserError(
            f"--{what} takes FIRST:LAST:STEP of 2 to {MOST_ROUNDS} {counted}, counted from 1; {text} names "
            f"{len(rounds)}"
        )
    return rounds


def along(targets: Targets, text: str, kept: KeptRounds = MODELS) -> Targets:
    """Return the targets with the rounds of their runs, run by run."""
    names = checkpoints(targets.checkpoints, text, targets.registry, kept)
    return replace(targets, checkpoints=tuple(chain.from_iterable(names)))


def checkpoints(
    runs: Sequence[str], text: str, registry: Path, kept: KeptRounds = MODELS
) -> list[tuple[str, ...]]:
    """Return the checkpoints RUN@ROUND of each run, in the order of rounds; without runs, of the newest."""
    store = RunRegistry(registry)
    rounds = None if text == "all" else parse(text)
    found = []
    for name in list(runs) or [store.newest().name]:
        if "@" in name or "/" in name or name.endswith(".pt"):
            raise UserError(f"--rounds are of runs: give the name of a run in the registry, not {name}")
        there = kept.of(store.run(name))
        missing = [round for round in rounds or () if round not in there]
        if missing:
            raise UserError(
                f"run {name!r} kept no {kept.what} of round {missing[0]}, it has "
                f"{', '.join(map(str, there)) or 'none'}; choose --rounds among these, or train with "
                f"{kept.mend}"
            )
        if rounds is None and not 2 <= len(there) <= MOST_ROUNDS:
            raise UserError(
                f"run {name!r} kept a {kept.what} of {len(there)} rounds, --rounds all takes 2 to "
                f"{MOST_ROUNDS}; train with {kept.mend}, or give --rounds FIRST:LAST:STEP"
            )
        found.append(tuple(f"{name}@{round}" for round in rounds or there))
    return found


def along_given(targets: Targets, rounds: str | None, steps: str | None) -> Targets:
    if rounds and steps:
        raise UserError("--rounds are of runs and --local-steps of a client's round: give one of them")
    if rounds:
        return along(targets, rounds)
    return along_steps(targets, steps) if steps else targets


def along_steps(targets: Targets, text: str) -> Targets:
    """Return the targets with the models inside the training of clients, RUN@ROUND:clientK, step by step."""
    if not targets.checkpoints:
        raise UserError("--local-steps are of a client's round: give RUN@ROUND:clientK")
    wanted = None if text == "all" else parse(text, "local-steps")
    store, found = RunRegistry(targets.registry), list[str]()
    for reference in targets.checkpoints:
        there = steps_of(store, reference)
        missing = [step for step in wanted or () if step not in there]
        if missing or len(there) < 2:
            what = f"local step {missing[0]}" if missing else "two local steps"
            raise UserError(
                f"{reference} has no model of {what}, it has {', '.join(map(str, there))}; choose "
                f"--local-steps among these, or keep more of them: `fedscope train {_keep(reference)}`"
            )
        found += [f"{reference}:step{step}" for step in wanted or there]
    return replace(targets, checkpoints=tuple(found))


def steps_of(store: RunRegistry, reference: str) -> list[int]:
    """Return the local steps of RUN@ROUND:clientK after which a model was kept: one or more."""
    client = client_of_round(reference)
    if client is None:
        raise UserError(f"--local-steps are of a client's round: give RUN@ROUND:clientK, not {reference}")
    found = store.run(reference.partition("@")[0]).steps_of(*client)
    if not found:
        raise UserError(
            f"no model inside the local training of {reference} was kept; keep every one of its local steps "
            f"with `fedscope train {_keep(reference)}`"
        )
    return found


def _keep(reference: str) -> str:
    round, client = client_of_round(reference) or (1, 0)
    return f"--keep-steps 1:{client}:{round}"


def client_of_round(reference: str) -> tuple[int, int] | None:
    found = re.fullmatch(r"[^@/]+@(\d{1,9}):client(\d{1,9})", reference)
    return (int(found[1]), int(found[2])) if found else None
