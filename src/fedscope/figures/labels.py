"""What a checkpoint is called in tables, titles and legends: never the same for different weights."""

from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

Record = Mapping[str, Any]


def label(checkpoint: Record) -> str:
    """Return ``RUN@ROUND``, ``RUN@clientK (round R)``, ``RUN@all (round R)``; or a state_dict's file name."""
    run, round, client, average = (checkpoint.get(part) for part in ("run", "round", "client", "average"))
    if run is None:
        return PurePath(checkpoint["path"]).name
    which = f"client{client}" if client is not None else average if average not in (None, "cld") else None
    return f"{run}@{round}" if which is None else f"{run}@{which} (round {round})"


def shared_name(names: Sequence[str]) -> str:
    """Return what several surfaces' axes are called: without what is said in brackets where that differs."""
    found = list(dict.fromkeys(names))
    return found[0] if len(found) == 1 else " / ".join(dict.fromkeys(name.split(" (")[0] for name in found))


def titles(records: Sequence[Record]) -> list[str]:
    """Return the records' methods where each has its own, else their checkpoints' labels."""
    methods = [record["problem"].get("method") for record in records]
    if None not in methods and len(set(methods)) == len(methods):
        return methods
    return [label(record["checkpoint"]) for record in records]
