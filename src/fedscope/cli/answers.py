"""Answers of `fedscope hessian`, given again without PyTorch where nothing that they rest on has changed.

    FOLDER/answers/NAME.json     beside the results; NAME is a hash of the options and of what computes

An answer rests on files: the checkpoints and the results by their bytes, a data set's folder and, with
``--clients``, the run's by what the file system says of every file in it. Whatever may change unseen is
looked up the long way: code of the user's own or of another package, a GPU, several processes.
"""

import hashlib
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import click

from fedscope.checkpoints.formats import seal
from fedscope.checkpoints.registry import Registry
from fedscope.cli import catalogues, console
from fedscope.errors import UserError
from fedscope.own import is_own
from fedscope.storage import cache_dir, is_writable, write_text

Rests = dict[str, str]  # paths, each with the stamp that it had
MOST = 20_000  # files of a folder that are looked at
PACKAGES = ("torch", "numpy", "scipy", "scikit-learn", "pillow")
VARIABLES = ("FEDSCOPE_", "OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "DNNL_", "ONEDNN_", "TORCH",
             "PYTORCH", "ATEN_", "LD_", "PYTHONPATH", "RANK", "WORLD_SIZE")  # fmt: skip
GPUS = ("/dev/nvidia0", "/dev/nvidiactl", "/dev/nvmap", "/dev/dxg", "/dev/kfd")
LONG = ("figure", "recompute", "model", "data", "loss", "entry", "global_model")  # options looked up so


class Place(NamedTuple):
    """Where an answer is kept, and the checkpoints that it is about."""

    file: Path
    checkpoints: tuple[Path, ...]


def place(given: Mapping[str, Any]) -> Place | None:
    """Return where the answer to these options is; None where it is to be looked up the long way.

    Raises:
        UserError: there is no such checkpoint.
    """
    plain = (given["reading"], given["engine"]) == ("paper", "fedscope") and not any(map(given.get, LONG))
    on_cpu = given["device"] == "cpu" or (given["device"] == "auto" and not any(map(os.path.exists, GPUS)))
    if not (plain and on_cpu) or has_torch() or catalogues.extended():
        return None
    store, context = Registry(given["registry"]), click.get_current_context()
    options = {name: value for name, value in given.items() if name != "json_target"}
    paths = tuple(store.resolve(reference) for reference in given["checkpoints"] or (None,))
    asked = {
        "options": {name: (value, context.get_parameter_source(name)) for name, value in options.items()},
        "checkpoints": paths,
        "folders": (Path.cwd(), cache_dir()),
        "program": (catalogues.source(), sys.version, sys.prefix, [version(name) for name in PACKAGES]),
        "cores": (os.cpu_count(), len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0),
        "variables": {name: text for name, text in os.environ.items() if name.startswith(VARIABLES)},
    }
    text = json.dumps(asked, sort_keys=True, default=str)
    name = hashlib.sha256(text.encode()).hexdigest()[:32]
    return Place(store.analysis / "answers" / f"{name}.json", paths)


def has_torch() -> bool:
    """Say whether PyTorch is imported: using it costs nothing, and its threads may have been set."""
    return "torch" in sys.modules


def give(path: Path, json_target: str | None) -> bool:
    """Print the answer that is kept at ``path``; return whether there is one that still holds."""
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        answer = kept["answer"]
        if kept["sha256"] != seal(answer):
            return False
        if stamps(map(Path, answer["rests"])) != answer["rests"]:
            return False
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return False
    console.show(answer["remarks"])
    if not console.in_json(json_target, console.one_or_all(answer["records"])):
        console.show(answer["shown"])
    return True


def keep(path: Path, rests: Rests, **answer: Sequence[object]) -> None:
    """Keep an answer: its ``remarks``, its ``records`` and what is ``shown`` of them."""
    content = json.loads(json.dumps({"rests": rests, **answer}))
    if is_writable(path):
        with suppress(OSError):
            write_text(path, json.dumps({"sha256": seal(content), "answer": content}))


def rests_on(checkpoints: Iterable[Path], data_dir: Path | None, *, clients: bool) -> Rests | None:
    """Return the stamps of what is read to measure; None where that may change unseen. It needs PyTorch."""
    from fedscope.checkpoints.files import describe_checkpoint

    paths = set()
    for file in checkpoints:
        try:
            info = describe_checkpoint(file)[0]
            if is_own(info.model.name) or is_own(info.data.name):
                return None
            paths |= {file, *_data(info.data.name, data_dir)}
        except (UserError, OSError):  # of another program, say
            return None
        if clients:
            paths.add(file.parents[1] if file.parent.name == "clients" else file.parent)
    return stamps(paths)


def stamps(paths: Iterable[Path]) -> Rests | None:
    """Return the stamp of each path; None where one has none."""
    found: Rests = {}
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
        return hashlib.sha256(path.read_bytes()).hexdigest()
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


def _data(name: str, data_dir: Path | None) -> list[Path]:
    """Return the folder of a data set, or nothing for one that comes with its package.

    Raises:
        UserError: its files are not all in a folder of its own.
    """
    from fedscope.data import catalogue, loading, sources

    entry, root = catalogue.record(name), sources.root(data_dir)
    if entry.built_in and data_dir is None:
        return []
    home = root / entry.folder if root else loading.cache_folder(entry, None)
    read = sources.local(entry, root, fetch=False).files if root and not entry.built_in else ()
    if entry.built_in or not home.is_dir() or not all(file.is_relative_to(home) for file in read):
        raise UserError(f"the files of {name} are not in a folder of its own")
    return [home]
