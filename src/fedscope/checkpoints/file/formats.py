"""Format versions and seals.

A format is ``fedscope/KIND/NUMBER``. A seal is the SHA-256 of plain data as canonical JSON: it tells a file
that was changed, by a failing disk or by hand, from one that was not. It is no signature: whoever can write
the file can seal it again.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from fedscope.errors import UserError

RUN_FORMAT = "fedscope/run/2"
CHECKPOINT_FORMAT = "fedscope/checkpoint/2"
REMOTE_FORMAT = "fedscope/remote/1"

Data = dict[str, Any]


def seal(data: Mapping[str, Any]) -> str:
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def of_format(data: object, current: str, what: str) -> Data:
    kind, _, number = current.rpartition("/")
    found = data.get("format") if isinstance(data, dict) else None
    known = re.fullmatch(rf"{kind}/([1-9][0-9]{{0,3}})", found) if isinstance(found, str) else None
    if not isinstance(data, dict) or not known or int(known[1]) < int(number):
        raise UserError(f"{what} has no format {current}; fedscope did not write it, or it is damaged")
    if found != current:
        raise UserError(
            f"{what} was written by a newer fedscope: it has format {found!r}, this one reads {current!r}; "
            "upgrade fedscope"
        )
    return data
