"""Which files a run consists of: the one list for `verify`, `export` and `import`.

A registry may be a folder that other programs write to as well, such as ``checkpoints``: a folder in it is a
run if fedscope's manifest lies in it, or, where that is lost, one of fedscope's checkpoints.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from fedscope.checkpoints.file.fields import NAME
from fedscope.storage import is_folder, open_regular

Kind = Literal["manifest", "metrics", "rows", "checkpoint", "state", "tag"]

_ROUND, _CLIENT = r"round-[0-9]{4,9}", r"clients/[0-9]{4,9}\.pt"
_STEP = r"steps/[0-9]{4,9}/[0-9]{6,9}\.pt"
_KINDS: dict[Kind, str] = {
    "manifest": r"manifest\.json",
    "metrics": r"metrics\.jsonl",
    "rows": rf"({_ROUND}/)?rows\.zz",
    "checkpoint": (
        rf"(initial|final|best|last|sel|all|{_ROUND})\.pt|{_ROUND}/(sel|all|anchor)\.pt|({_ROUND}/)?{_CLIENT}|"
        rf"{_ROUND}/{_STEP}"
    ),
    "state": rf"(state|latest)/{_ROUND}/(clients\.f32|state\.json|server\.pt)",
}
_MARKS = {"manifest.json": b'"fedscope/run/', ".pt": b"fedscope/checkpoint/"}
_HEAD = 1024  # first bytes of a file, which hold its mark
ANALYSIS = ".analysis"  # in a registry: the results of analyses
_RESULT = re.compile(rf"{re.escape(ANALYSIS)}/[0-9a-f]{{32}}\.json")
LOCK = ".lock"  # empty: what `Run.locked` locks
_BESIDES = ("tensorboard", "wandb", LOCK)  # allowed in the folder, and no part of the run


def kind(name: str) -> Kind | None:
    """Return the kind of the file ``name`` of a run (a path below the run with ``/``), or None if it is none.

    Only such names are ever pulled: none is absolute, goes up, or is a device.
    """
    for found, pattern in _KINDS.items():
        if re.fullmatch(pattern, name):
            return found
    folder, _, tag = name.partition("/")
    return "tag" if folder == "tags" and NAME.fullmatch(tag) else None


def is_result(name: str) -> bool:
    return _RESULT.fullmatch(name) is not None


def round_of(name: str) -> int | None:
    """Return the round after which the model in the checkpoint ``name`` was, if the name says so."""
    first = name.split("/")[0].removesuffix(".pt")
    if first == "initial":
        return 0
    if not first.startswith("round-"):
        return None
    return int(first[6:]) - name.endswith("/anchor.pt")  # what its clients started from


def files(folder: Path) -> Iterator[str]:
    """Yield each file and link below ``folder``, by its path with ``/``, in order; links are not followed."""
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        if entry.name in _BESIDES:
            continue
        if entry.is_dir(follow_symlinks=False):
            yield from (f"{entry.name}/{name}" for name in files(Path(entry.path)))
        else:
            yield entry.name


def is_leftover(name: str) -> bool:
    """Say whether a file below a run or registry is what a killed process was writing or deleting."""
    return any(re.fullmatch(r"\..+\.(tmp|deleted|pull|[a-z0-9_]{8})", part) for part in name.split("/"))


def run_of(path: Path) -> Path | None:
    return next((folder for folder in path.absolute().parents if is_run(folder)), None)


def names(root: Path) -> list[str]:
    if not is_folder(root):
        return []
    return sorted(name for name in os.listdir(root) if NAME.fullmatch(name))  # noqa: PTH208 (names alone)


def runs(root: Path) -> Iterator[str]:
    yield from (name for name in names(root) if is_run(root / name))


def is_run(folder: Path) -> bool:
    """Say whether ``folder`` is a run of fedscope's, be it one whose manifest is lost."""
    names = ("manifest.json", "final.pt", "best.pt", "last.pt")
    return any(is_ours(folder / name) for name in names)


def is_ours(path: Path) -> bool:
    """Say whether the first bytes of a manifest or a checkpoint show that fedscope wrote it."""
    mark = _MARKS.get(path.name) or _MARKS.get(path.suffix)
    if mark is None or not path.is_file():
        return False
    try:
        with open_regular(path) as handle:
            return mark in handle.read(_HEAD)
    except OSError:
        return path.name == "manifest.json"
