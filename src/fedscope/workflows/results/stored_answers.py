"""Answers of commands, stored so that the same question is answered without PyTorch while nothing changes.

    FOLDER/answers/NAME.json     in the user's cache or a registry

NAME is a hash of the question and of the programs that compute the answer.
An answer rests on files: a file by its bytes, a folder by what the file system says of every file in it.
"""

import hashlib
import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fedscope import extras
from fedscope.checkpoints.file.formats import seal
from fedscope.errors import UserError
from fedscope.storage import cache_dir, is_writable, open_regular, read_text, write_text
from fedscope.workflows import catalogues

Stamps = dict[str, str]  # of files and folders, by path
Piece = Sequence[Any]  # of what a command prints, as plain data
MOST = 20_000  # files of a folder that are looked at
PACKAGES = ("torch", "numpy", "scipy", "scikit-learn", "pillow")


@dataclass(frozen=True)
class Answer:
    """What a command prints, as plain data."""

    content: Any  # with ``--json``
    shown: Sequence[Piece] = ()  # without
    remarks: Sequence[Piece] = ()  # beside either


def name_of(question: object) -> str:
    """Return a hash of a question, of the folder that it is put in, and of the installed programs."""
    program = (catalogues.source(), sys.version, sys.prefix, extras.versions(PACKAGES))
    text = json.dumps([question, Path.cwd(), cache_dir(), program], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def stored(path: Path) -> Answer | None:
    """Return the answer in a file, if it is undamaged and the files that it rests on are unchanged."""
    try:
        file = json.loads(read_text(path))
        found: dict[str, Any] = file["answer"]
        sealed = file["sha256"] == seal(found)
        rests = found.pop("rests")
        holds = sealed and stamps(map(Path, rests)) == rests
        return Answer(**found) if holds else None
    except (UserError, OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def store(path: Path | None, rests: Stamps | None, answer: Answer) -> None:
    if path is None or rests is None:
        return
    root = cache_dir() if path.is_relative_to(cache_dir()) else path.parents[2]  # ROOT/.analysis/answers/NAME
    if not is_writable(path, below=root):
        return
    plain = json.loads(json.dumps({"rests": rests, **asdict(answer)}))
    with suppress(OSError):
        write_text(path, json.dumps({"sha256": seal(plain), "answer": plain}), below=root)


def stamps(paths: Iterable[Path]) -> Stamps | None:
    found: Stamps = {}
    for path in map(Path.absolute, paths):
        try:
            was = stamp(path)
        except OSError:
            was = None
        if was is None:
            return None
        found[str(path)] = was
    return found


def stamp(path: Path) -> str | None:
    """Return what tells that a file's bytes, or any file below a folder, changed; None for a large folder."""
    if path.is_file():
        with open_regular(path) as handle:
            return hashlib.file_digest(handle, "sha256").hexdigest()
    files = []
    for file in _below(path):
        about = file.stat()
        files.append((str(file), about.st_size, about.st_mtime_ns, about.st_ctime_ns, about.st_ino))
        if len(files) > MOST:
            return None
    return hashlib.sha256(json.dumps(sorted(files)).encode()).hexdigest()


def _below(folder: Path) -> Iterator[Path]:
    for where, _, names in os.walk(folder, followlinks=True):
        yield from (Path(where, name) for name in names)
