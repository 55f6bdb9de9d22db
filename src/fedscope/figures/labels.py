"""What a checkpoint is called in tables, titles and legends: never the same for different weights."""

from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

Record = Mapping[str, Any]


def label(checkpoint: Record) -> str:
    """Return ``RUN@ROUND`` or ``RUN@clientK (round R)``; for a plain state_dict its file name."""
    run, round, client = (checkpoint.get(part) for part in ("run", "round", "client"))
    if run is None:
        return PurePath(checkpoint["path"]).name
    return f"{run}@{round}" if client is None else f"{run}@client{client} (round {round})"


def titles(records: Sequence[Record]) -> list[str]:
    """Return the records' methods where each has its own, else their checkpoints' labels."""
    methods = [record["problem"].get("method") for record in records]
    if None not in methods and len(set(methods)) == len(methods):
        return methods
    return [label(record["checkpoint"]) for record in records]
