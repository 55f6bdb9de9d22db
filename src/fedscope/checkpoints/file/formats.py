"""Format versions and seals: how older files are read, and why newer ones are not.

A format is ``fedscope/KIND/NUMBER``. Reading an older file takes it one number up at a time; nothing on disk
is changed. A seal is the SHA-256 of plain data as canonical JSON: it tells a file that was changed, by a
failing disk or by hand, from one that was not. It is no signature: whoever can write
the file can seal it again.
"""

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from fedscope.errors import UserError

RUN_FORMAT = "fedscope/run/2"
CHECKPOINT_FORMAT = "fedscope/checkpoint/2"
ARCHIVE_FORMAT = "fedscope/archive/1"
REMOTE_FORMAT = "fedscope/remote/1"

Data = dict[str, Any]


def seal(data: Mapping[str, Any]) -> str:
    """Return the SHA-256 of ``data`` as JSON with sorted keys."""
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def upgraded(data: object, current: str, what: str) -> Data:
    """Return ``data`` converted to the format ``current``; ``what`` names it in errors."""
    kind = current.rpartition("/")[0]
    found = data.get("format") if isinstance(data, dict) else None
    known = re.fullmatch(rf"{kind}/([1-9][0-9]{{0,3}})", found) if isinstance(found, str) else None
    if not isinstance(data, dict) or not known:
        raise UserError(f"{what} has no format {kind}/…; fedscope did not write it, or it is damaged")
    if int(known[1]) > int(current.rpartition("/")[2]):
        raise UserError(
            f"{what} was written by a newer fedscope: it has format {found!r}, this one reads up to "
            f"{current!r}; upgrade fedscope"
        )
    while data["format"] != current:
        data = _STEPS[data["format"]](data)
    return data


def _run_2(data: Data) -> Data:
    new = {**data, "format": "fedscope/run/2", "sealed_metrics": False}
    return {**new, "sha256": seal(new)}


def _checkpoint_2(data: Data) -> Data:
    info = data.get("info")
    new = {**info, "format": "fedscope/checkpoint/2"} if isinstance(info, dict) else {}
    return {**data, "format": "fedscope/checkpoint/2", "info": new, "info_sha256": seal(new)}


_STEPS: dict[str, Callable[[Data], Data]] = {
    "fedscope/run/1": _run_2,
    "fedscope/checkpoint/1": _checkpoint_2,
}
