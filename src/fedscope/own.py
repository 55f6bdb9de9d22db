"""Code of the user's own: its file, found without running it, and whether it may run without being named.

A checkpoint names the network and the data that it was trained with as MODULE:FACTORY, with the SHA-256 of
the module's file. Whoever wrote the checkpoint chose that name. So the code is run only if its file is in
the working directory, or an installed package registered that name, and the file has not changed; otherwise
the user has to name it.
"""

import hashlib
import itertools
import sys
from collections.abc import Callable
from functools import cache
from importlib import invalidate_caches
from importlib.machinery import PathFinder
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType

from fedscope import pretrained
from fedscope.errors import UserError

MODELS, DATASETS = "fedscope.models", "fedscope.datasets"  # entry points of other packages
METHODS = "fedscope.methods"
LOGGERS = "fedscope.loggers"
SESSION = "fedscope_session"  # the module of what a Python session gave as objects, which no file holds
SHOWN = 8  # of a hash


def is_own(name: str) -> bool:
    """Say whether ``name`` is MODULE:FACTORY, and not of a catalogue."""
    return ":" in name


def has_code(name: str) -> bool:
    return is_own(name) and not pretrained.is_network(name)


def reference_to(factory: Callable[..., object]) -> str:
    """Return MODULE:NAME of a function or class; one that no file holds is put into the session's module.

    Functions of the running script or notebook are among these: importing their file would run it again.
    """
    module, name = getattr(factory, "__module__", "__main__"), getattr(factory, "__qualname__", "")
    if module != "__main__" and name and getattr(sys.modules.get(module), name, None) is factory:
        return f"{module}:{name}"
    session = sys.modules.setdefault(SESSION, ModuleType(SESSION))
    stem = "".join(letter if letter.isalnum() else "_" for letter in name.rpartition(".")[2]) or "given"
    numbered = (f"{stem}_{number}" for number in itertools.count(2))
    names = itertools.chain([stem], numbered)
    found = next(free for free in names if getattr(session, free, factory) is factory)
    setattr(session, found, factory)
    return f"{SESSION}:{found}"


def is_of_session(reference: str) -> bool:
    return reference.partition(":")[0] == SESSION


@cache
def registered(group: str) -> dict[str, str]:
    """Return what other installed packages add to ``group`` by entry points: name → MODULE:FACTORY."""
    return {point.name: point.value for point in sorted(entry_points(group=group), key=lambda p: p.name)}


def resolved(name: str, group: str) -> str:
    return registered(group).get(name, name)


def located(reference: str) -> Path | None:
    """Return the file of the module in ``MODULE:NAME``, without importing it or its package."""
    module = reference.partition(":")[0]
    loaded = getattr(sys.modules.get(module), "__file__", None)
    return Path(loaded) if loaded else _found(module, [str(Path.cwd()), *sys.path])


def _found(module: str, path: list[str]) -> Path | None:
    invalidate_caches()
    found = None
    for depth in range(1, module.count(".") + 2):
        found = PathFinder.find_spec(".".join(module.split(".")[:depth]), path)
        if found is None:
            return None
        path = list(found.submodule_search_locations or [])
    return Path(found.origin) if found and found.origin and Path(found.origin).is_file() else None


def _is_here(reference: str) -> bool:
    file = _found(reference.partition(":")[0], [str(Path.cwd())])
    return file is not None and file == located(reference)


def _is_there(reference: str) -> bool:
    module, _, name = reference.partition(":")
    return hasattr(sys.modules.get(module), name)


def digest(*references: str) -> str:
    """Return the SHA-256 of the files of these references, in their order; "" where one has none."""
    if any(map(pretrained.is_content, references)):
        return pretrained.combined(
            pretrained.digest(one) if pretrained.is_content(one) else digest(one) for one in references
        )
    files = list(dict.fromkeys(map(located, references)))
    hashes = [hashlib.sha256(file.read_bytes()) for file in files if file is not None]
    if len(hashes) < len(files):
        return ""
    if len(hashes) == 1:
        return hashes[0].hexdigest()
    return hashlib.sha256("".join(one.hexdigest() for one in hashes).encode()).hexdigest()


def package_digest(reference: str) -> str:
    file = located(reference.partition(":")[0].partition(".")[0]) or located(reference)
    if file is None:
        return ""
    if file.name != "__init__.py":
        return hashlib.sha256(file.read_bytes()).hexdigest()
    top = file.parent
    files = {file.relative_to(top).as_posix(): file for file in top.rglob("*.py")}
    digest = hashlib.sha256()
    for name, file in sorted(files.items()):
        digest.update(f"{name} {hashlib.sha256(file.read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()


def vouched(references: tuple[str, ...], recorded: str, flag: str, group: str, *, named: bool) -> str:
    """Return a note if the code has changed since its :func:`digest` was ``recorded``, else "".

    Code that the user has ``named`` may be run in any case; ``group`` are the entry points that register such
    code, and ``flag`` is the option that names it.
    """
    if any(map(pretrained.is_content, references)):
        return pretrained.unchanged(references, recorded, flag, named=named)
    gone = [one for one in references if is_of_session(one) and not _is_there(one)]
    if gone and not named:
        raise UserError(
            f"the run was trained with {gone[0].partition(':')[2]}, an object of a Python session that has "
            f"ended; give it again: model= and data=, or {flag} MODULE:FACTORY"
        )
    references = tuple(one for one in references if not is_of_session(one))
    if not references:
        return ""
    what, mend = " and ".join(references), f"{flag} {references[0]}"
    files = {reference: located(reference) for reference in references}
    lost = [reference.partition(":")[0] for reference, file in files.items() if file is None]
    if lost:
        raise UserError(
            f"the module {lost[0]}, which the run was trained with, is not to be found from {Path.cwd()}; go "
            "to the project's folder, or give --model and --data"
        )
    now, before = digest(*references)[:SHOWN], recorded[:SHOWN] or "unknown"
    changed = f"the source of {what} has changed since training ({before} then, {now} now)"
    if named:
        return "" if now == before else changed
    known = registered(group).values()
    strange = [reference for reference in references if not (reference in known or _is_here(reference))]
    if strange:
        raise UserError(
            f"{strange[0]} is code outside of this folder, {files[strange[0]]}; name it to run it: {mend}"
        )
    if now != before:
        raise UserError(f"{changed}; if it still builds the same, name it: {mend}")
    return ""
