"""`--rounds FIRST:LAST:STEP`, or `all`: which rounds of which runs."""

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

from fedscope.checkpoints.registry.registry import Registry
from fedscope.checkpoints.registry.run import Run
from fedscope.errors import UserError
from fedscope.workflows.sources.targets import Targets

MOST_ROUNDS = 500


def parse(text: str) -> list[int]:
    """Return the rounds of "FIRST:LAST:STEP", LAST included; STEP is 1 if left out.

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


def along(targets: Targets, text: str) -> Targets:
    """Return the targets with the rounds of their runs, run by run.

    Raises:
        UserError: see :func:`checkpoints`.
    """
    names = checkpoints(targets.checkpoints, text, targets.registry)
    return replace(targets, checkpoints=tuple(chain.from_iterable(names)))


def checkpoints(runs: Sequence[str], text: str, registry: Path) -> list[tuple[str, ...]]:
    """Return the checkpoints RUN@ROUND of each run, in the order of rounds; without runs, of the newest.

    Args:
        runs: names.
        text: ``FIRST:LAST:STEP``, or ``all`` for every round that a run kept.
        registry: where they are.

    Raises:
        UserError: what is given is a single checkpoint and no run, a run did not keep a round, or ``all`` are
            fewer than two or too many.
    """
    store = Registry(registry)
    rounds = None if text == "all" else parse(text)
    found = []
    for name in list(runs) or [store.newest().name]:
        if "@" in name or "/" in name or name.endswith(".pt"):
            raise UserError(f"--rounds are of runs: give the name of a run in the registry, not {name}")
        kept = _kept(store.run(name))
        missing = [round for round in rounds or () if round not in kept]
        if missing:
            raise UserError(
                f"run {name!r} kept no checkpoint of round {missing[0]}, it has "
                f"{', '.join(map(str, kept))}; choose --rounds among these, or train with --keep-every"
            )
        if rounds is None and not 2 <= len(kept) <= MOST_ROUNDS:
            raise UserError(
                f"run {name!r} kept {len(kept)} rounds, --rounds all takes 2 to {MOST_ROUNDS}; train with "
                "--keep-every, or give --rounds FIRST:LAST:STEP"
            )
        found.append(tuple(f"{name}@{round}" for round in rounds or kept))
    return found


def _kept(run: Run) -> list[int]:
    """Return the rounds of the global models of a run, the final one's included."""
    final = [run.manifest().settings.rounds] if run.final.is_file() else []
    return sorted({*run.rounds(), *final})
