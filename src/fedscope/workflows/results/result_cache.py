"""The files of an analysis in the registry: products while it runs, its result when it is done.

    FOLDER/products/IDENTITY/…npz   products of one operator, until the results made of them are written
    FOLDER/points/IDENTITY.rows     points of one slice (fedscope.landscape.surfaces.point_cache)
    FOLDER/vectors/KEY/pairs.npz    eigenvectors that slices lie along, for the next command
    FOLDER/KEY.json                 a result of any command, the recipes' included
    FOLDER/answers/NAME.json        what a command printed of its results (:mod:`…results.answer_files`)

All are named by content alone: the weights, the samples, the outputs of network and loss on them (so that a
changed network is another one, whatever its name), the request, and the analysis' own source; the recipes'
results by the weights and the request. A result of another name is found by its record
(:mod:`fedscope.workflows.results.lookup`). So no result is stale, and deleting the folder costs time only.
Paths in a result are relative to the registry, which may be moved.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from torch import Tensor

from fedscope.errors import UserError
from fedscope.landscape.operators.base import Operator
from fedscope.landscape.operators.empirical_risk import LossOperator
from fedscope.landscape.operators.product_cache import (
    Journaled,
    JournalSpace,
    identity,
    read_arrays,
    write_arrays,
)
from fedscope.records.saved_records import Kept, stored_record
from fedscope.storage import expire, is_writable, read_text, remove_tree, write_text
from fedscope.validation import Plain

Arrays = Mapping[str, Tensor]
_DAYS = 30


class ResultCache:
    """Keeps products and results in a folder, or nothing without one; an unwritable folder is only read."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        if folder is not None:
            is_writable(folder / "any", below=folder.parent)
        self.file: Path | None = None  # of the result that was found or written last
        self._room = JournalSpace()
        self._used: set[Path] = set()  # not the journals: they would keep every operator's graphs alive

    def operator(self, base: LossOperator) -> Operator:
        """Return an operator whose products are found after an interruption."""
        if self._folder is None:
            return base
        folder = self._folder / "products" / identity(base)
        if not is_writable(folder / "any", below=self._folder.parent):
            return base
        if not self._used:  # products of runs that were never continued
            expire(folder.parent, _DAYS, below=self._folder.parent)
        self._used.add(folder)
        return Journaled(base, folder, below=self._folder.parent, room=self._room)

    def arrays(
        self, op: LossOperator, request: dict[str, Any], make: Callable[[], Arrays], *, again: bool
    ) -> Arrays:
        """Return an operator's eigenvectors of some weeks ago, or make and keep them."""
        path = self._folder and self._folder / "vectors" / key(op, request) / "pairs.npz"
        found = read_arrays(path) if path and not again else {}
        if found:
            return found
        made = make()
        if path and self._folder and is_writable(path, below=self._folder.parent):
            expire(path.parents[1], _DAYS, below=self._folder.parent)
            with suppress(OSError):
                write_arrays(path, made, below=self._folder.parent)
                self.delete_products()
        return made

    def result(self, key: str) -> Kept | None:
        path = self._folder and self._folder / f"{key}.json"
        found = _read(path) if path else None
        self.file = path if found else None
        return found

    def results(self, sha256: str) -> list[Kept]:
        return results(self._folder, sha256) if self._folder else []

    def finish(self, key: str, record: Plain) -> None:
        """Write a result, then delete the products it rests on; where the disk is full, they stay."""
        self.file = None
        if self._folder is None or not is_writable(self._folder / f"{key}.json", below=self._folder.parent):
            return
        plain = json.loads(json.dumps(record.to_json(), allow_nan=False))  # keys become texts
        plain = _portable(plain, self._folder.parent)
        content = {"sha256": digest(plain), "record": plain}
        try:
            text = json.dumps(content, ensure_ascii=False)
            write_text(self._folder / f"{key}.json", text, below=self._folder.parent)
        except OSError:
            return
        self.file = self._folder / f"{key}.json"
        self.delete_products()

    def delete_products(self) -> None:
        for folder in self._used:
            with suppress(OSError):
                remove_tree(folder, below=folder.parents[2])
        self._used.clear()
        self._room = JournalSpace()  # of the next result


def results(folder: Path, sha256: str | None = None) -> list[Kept]:
    """Return every result that can be read and names the hash ``sha256``, in the order of being kept."""
    files = sorted(folder.glob("*.json"), key=lambda path: (_kept(path), path.name))
    return [record for path in files if (record := _read(path, sha256)) is not None]


def _kept(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:  # it was removed meanwhile
        return 0


def _read(path: Path, sha256: str | None = None) -> Kept | None:
    """Return the result in a file; None where it is damaged, or nowhere names the hash ``sha256``."""
    try:
        text = read_text(path)
        if sha256 is not None and sha256 not in text:
            return None
        found = json.loads(text)
    except (UserError, OSError, ValueError, RecursionError):
        return None
    record = found.get("record") if isinstance(found, dict) else None
    if not isinstance(record, dict) or found.get("sha256") != digest(record):
        return None
    return stored_record(record)


def digest(record: Mapping[str, Any]) -> str:
    """Return what tells that a digit of a result's JSON was changed, by a failing disk say."""
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()


def _portable(value: Any, registry: Path) -> Any:
    if isinstance(value, list):
        return [_portable(item, registry) for item in value]
    if not isinstance(value, dict):
        return value
    moved = {name: _portable(item, registry) for name, item in value.items()}
    path = moved.get("path")
    if isinstance(path, str) and Path(path).is_relative_to(registry):
        moved["path"] = Path(path).relative_to(registry).as_posix()
    return moved


def key(op: LossOperator, request: dict[str, Any]) -> str:
    text = json.dumps(request, sort_keys=True, default=str)
    return hashlib.sha256(f"{identity(op)} {text}".encode()).hexdigest()[:32]
