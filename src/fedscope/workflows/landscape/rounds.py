"""`--rounds A:B:C`: which rounds of which runs."""

import re
from collections.abc import Sequence
from pathlib import Path

from fedscope.checkpoints.registry.registry import Registry
from fedscope.errors import UserError

MOST_ROUNDS = 500


def parse(text: str) -> list[int]:
    """Return the rounds A, A + C, … up to and including B of "A:B:C"; C is 1 if left out.

    Raises:
        UserError: the text is of another form, or names fewer than two rounds or more than 500.
    """
    found = re.fullmatch(r"(\d{1,6}):(\d{1,6})(?::(\d{1,6}))?", text)
    if not found:
        raise UserError(f"--rounds takes FIRST:LAST:STEP, such as 5:30:5, not {text!r}")
    first, last, step = int(found[1]), int(found[2]), int(found[3] or 1)
    rounds = list(range(first, last + 1, step)) if step else []
    if not 2 <= len(rounds) <= MOST_ROUNDS or first < 1:
        raise UserError(
            f"--rounds takes FIRST:LAST:STEP of 2 to {MOST_ROUNDS} rounds, counted from 1; {text} names "
            f"{len(rounds)}"
        )
    return rounds


def checkpoints(runs: Sequence[str], rounds: Sequence[int], registry: Path) -> list[tuple[str, ...]]:
    """Return the checkpoints RUN@ROUND of each run; without runs, of the newest.

    Raises:
        UserError: what is given is a single checkpoint and no run, or a run did not keep a round.
    """
    store = Registry(registry)
    names = list(runs) or [store.newest().name]
    for name in names:
        if "@" in name or "/" in name or name.endswith(".pt"):
            raise UserError(f"--rounds are of runs: give the name of a run in the registry, not {name}")
        kept = [*store.run(name).rounds(), store.run(name).manifest().settings.rounds]
        missing = [round for round in rounds if round not in kept]
        if missing:
            raise UserError(
                f"run {name!r} kept no checkpoint of round {missing[0]}, it has "
                f"{', '.join(map(str, sorted(set(kept))))}; choose --rounds among these, or train with "
                "--keep-every"
            )
    return [tuple(f"{name}@{round}" for round in rounds) for name in names]
