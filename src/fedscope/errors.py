"""What users see: one exception, one warning, other programs' words in short, a hint at a mistyped name."""

import errno
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

MENDS = {  # of errors of the system that no program causes
    "make room": (errno.ENOSPC, errno.EDQUOT, errno.EFBIG),
    "give access, or name another place": (errno.EACCES, errno.EPERM, errno.EROFS),
    "name another place": (errno.ENOTDIR, errno.ELOOP, errno.EXDEV, errno.ENOTSUP, errno.ENOSYS),
    "choose a shorter name": (errno.ENAMETOOLONG,),
    "let more files be open (`ulimit -n`)": (errno.EMFILE, errno.ENFILE),
    "mend the disk or its mount, and run the same command again": (
        errno.EIO, errno.ESTALE, errno.ENODEV, errno.ENXIO, errno.ETIMEDOUT, errno.ENOTCONN, errno.EHOSTDOWN,
    ),
    "wait until nothing else uses it": (errno.EBUSY, errno.ETXTBSY, errno.ENOLCK, errno.EAGAIN),
}  # fmt: skip


class UserError(Exception):
    """Something the user can mend: the message says in one line what is wrong and how to mend it.

    The command line prints it without a traceback and exits with code 2.
    """


class BusyError(UserError):
    """Another process trains a run, or has just deleted it."""


class DerivativeWarning(UserWarning):
    """A network's gradient is not that of its loss: what is measured then. Records and tables say it too."""


def mend(error: BaseException) -> str | None:
    """Return how to mend an error of the system, such as a full disk; None: it is none, or our fault."""
    if not isinstance(error, OSError) or error.errno is None:
        return None
    found = next((text for text, codes in MENDS.items() if error.errno in codes), None)
    return found or (error.filename and "look at that place, and run the same command again")


def shortened(text: object, most: int = 300) -> str:
    from textwrap import shorten  # imported only for a fault

    return shorten(str(text), most, placeholder=" …")


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return ``"; did you mean 'x'?"`` with the known name nearest to ``name``, or ``""`` if none is near."""
    from difflib import get_close_matches  # imported only for a fault

    by_lower = {one.lower(): one for one in known}
    begun = [one for one in by_lower if name and one.startswith(name.lower())]
    near = begun or get_close_matches(name.lower(), by_lower, n=1)
    return f"; did you mean {by_lower[near[0]]!r}?" if near else ""


def no_file(path: Path, kind: str = "file") -> UserError:
    alike = list[Path]()
    with suppress(OSError):
        alike += (one for one in path.parent.iterdir() if one.suffix == path.suffix)
    near = [one.name for one in alike if suggestion(path.stem, [one.stem])]
    there = f"; {path.parent.absolute()} holds none of that name, give its path"
    return UserError(f"no such {kind}: {path}{suggestion(path.name, near) or there}")


def check_keywords(
    function: Callable[..., object], given: Mapping[str, object], known: type, **named: object
) -> None:
    """Refuse further keywords of a function that the TypedDict ``known`` lacks: Python passes any."""
    from inspect import signature  # imported at the first call

    further = known.__annotations__
    for name in given:
        if name not in further:
            hint = suggestion(name, [*signature(function).parameters, *further])
            raise UserError(
                f"{function.__qualname__} takes no {name!r}{hint or '; help() shows what it takes'}"
            )
    check_choices(known, **given)
    check_choices(function, **named)


def check_choices(annotated: object, **values: object) -> None:
    """Refuse a text that is none of the literals of its name's annotation; ``str`` takes any text."""
    from typing import get_type_hints  # imported at the first call

    hints = get_type_hints(annotated) if values else {}
    for name, value in values.items():
        choices = _literals(hints[name])
        if isinstance(value, str) and choices and value not in choices:
            hint = suggestion(value, choices)
            raise UserError(f"{name} is {value!r}; choose one of {', '.join(choices)}{hint}")


def _literals(annotation: object) -> list[str]:
    from typing import Literal, get_args, get_origin

    if annotation is str:
        return []
    if get_origin(annotation) is Literal:
        return [one for one in get_args(annotation) if isinstance(one, str)]
    parts = get_args(annotation)
    return [] if str in parts else [text for part in parts for text in _literals(part)]
