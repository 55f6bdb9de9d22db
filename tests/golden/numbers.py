"""Records as lines of numbers, and what differs between two such lists."""

import hashlib
import json
import math
from collections.abc import Iterator
from typing import Any

Lines = dict[str, Any]  # path in a record → number, truth value, text or null
VOLATILE = {  # of an hour, a machine, a folder, of the code, or of what was kept before
    "command", "created", "device", "file", "folder", "kept", "matvecs", "operator_sha256", "path",
    "peak_memory_bytes", "python", "registry", "saved", "seconds", "seconds_in", "size", "threads", "updated",
    "versions", "written",
}  # fmt: skip
ERRORS = ("band", "bias", "bound", "dof", "error", "interval", "residual", "std", "stderr", "uncertain")
TOLERANCE = 1e-12  # of an error, relative; values have to be equal
LONG = 8  # numbers of a list that stand by themselves
MANY = 12  # records of a list


def lines(record: Any, place: str) -> Lines:
    """Return a record's numbers by their paths; ``place`` is the folder that texts may name."""
    return dict(_lines(record, "", place))


def _lines(record: Any, path: str, place: str) -> Iterator[tuple[str, Any]]:
    if isinstance(record, dict):
        kept = {"non_finite"} if record.get("reused") else set()  # counted in all that the kept result had
        for key, value in record.items():
            if key not in VOLATILE | kept:
                yield from _lines(value, f"{path}.{key}" if path else key, place)
    elif isinstance(record, list):
        numbers = _numbers(record)
        if numbers is not None and len(numbers) > LONG:
            yield from _summary(numbers, path)
            return
        if len(record) > MANY:
            yield f"{path}.count", len(record)
            yield f"{path}.digest", _digest(dict(_lines({"all": record[MANY:]}, "", place)))
        for number, value in enumerate(record[:MANY]):
            yield from _lines(value, f"{path}[{number}]", place)
    else:
        yield path, record.replace(place, "PLACE") if isinstance(record, str) else record


def _numbers(record: list[Any]) -> list[float | None] | None:
    """Return all numbers of a list, or of a matrix; None where it holds anything else."""
    found: list[float | None] = []
    for value in record:
        if isinstance(value, list):
            inner = _numbers(value)
            if inner is None:
                return None
            found += inner
        elif value is None or (isinstance(value, int | float) and not isinstance(value, bool)):
            found.append(value)
        else:
            return None
    return found


def _summary(numbers: list[float | None], path: str) -> Iterator[tuple[str, Any]]:
    known = [number for number in numbers if number is not None]
    yield f"{path}.count", len(numbers)
    yield f"{path}.sum", math.fsum(known)
    if known:
        yield f"{path}.least", min(known)
        yield f"{path}.most", max(known)
    if not is_error(path):
        yield f"{path}.digest", _digest(numbers)


def _digest(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def is_error(path: str) -> bool:
    """Whether a path is of an error, an interval or what else is known to rounding only."""
    return any(word in part for part in path.split(".") for word in ERRORS)


def differences(golden: Lines, found: Lines) -> list[str]:
    """Return a line for each number that is not what it was."""
    every = dict.fromkeys([*golden, *found])
    return [
        f"{path}: {golden.get(path, 'nothing')} is now {found.get(path, 'nothing')}"
        for path in every
        if not _is_same(path, golden.get(path, every), found.get(path, every))
    ]


def _is_same(path: str, golden: Any, found: Any) -> bool:
    if golden == found and type(golden) is type(found):
        return True
    both = isinstance(golden, float) and isinstance(found, float)
    return both and is_error(path) and math.isclose(golden, found, rel_tol=TOLERANCE, abs_tol=0.0)
