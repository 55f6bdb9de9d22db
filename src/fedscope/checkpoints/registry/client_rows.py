"""Which rows of the training set each client of a run holds: `rows.zz`, written once and read ever after.

A file is zlib of little-endian uint32: client after client, each client's rows in the order that decides its
batches, then the rows held out for validation. How many each has, and a SHA-256 over these numbers and the
rows, stand in the manifest (of one round, where every round's clients are new, in that round's metrics) and
the hash in every checkpoint: so rows that a later numpy draws otherwise are not taken for those trained on.
"""

import hashlib
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fedscope.checkpoints.file.schema import RowsSpec
from fedscope.checkpoints.registry.run_folder import RunFolder
from fedscope.errors import UserError
from fedscope.storage import read_bytes

if TYPE_CHECKING:
    from torch import Tensor

Rows = NDArray[np.int64]
_STORED = np.dtype("<u4")
_SLACK = 1 << 16  # bytes by which zlib may enlarge what it cannot compress


@dataclass(frozen=True)
class ClientRows:
    """Each client's training rows (n_k,), and the rows held out of all of them for validation."""

    clients: Sequence[Rows]
    validation: Rows

    @classmethod
    def from_tensors(cls, clients: Iterable["Tensor"], validation: "Tensor") -> "ClientRows":
        return cls([rows.cpu().numpy() for rows in clients], validation.cpu().numpy())

    @property
    def content(self) -> bytes:
        return np.concatenate([*self.clients, self.validation]).astype(_STORED).tobytes()

    @property
    def spec(self) -> RowsSpec:
        counts, validation, content = tuple(map(len, self.clients)), len(self.validation), self.content
        return RowsSpec(sha256=_hash(counts, validation, content), counts=counts, validation=validation)


def packed(rows: ClientRows) -> bytes:
    return zlib.compress(rows.content)


def read_rows(path: Path, spec: RowsSpec, size: int | None = None) -> ClientRows:
    """Read `rows.zz` and compare it with ``spec``; ``size`` is that of the training set, if known."""
    expected = _STORED.itemsize * (sum(spec.counts) + spec.validation)
    content = _inflated(read_bytes(path, expected + _SLACK), expected)
    if content is None or _hash(spec.counts, spec.validation, content) != spec.sha256:
        raise UserError(f"{path} is damaged: its rows do not match their hash; restore it from a copy")
    rows = np.frombuffer(content, _STORED).astype(np.int64)
    if size is not None and rows.max(initial=-1) >= size:
        raise UserError(
            f"{path} has row {rows.max()} of a training set of {size}; restore it from a copy, or point "
            "--data-dir at the run's data"
        )
    *clients, validation = np.split(rows, np.cumsum(spec.counts))
    return ClientRows(clients, validation)


def rows_spec(run: RunFolder, round: int = 1) -> RowsSpec | None:
    """Return the record of a run's rows in ``round``, counted from 1; None of an added run."""
    spec = run.manifest().rows
    if spec is None and round <= len(rounds := run.metrics()):
        spec = rounds[round - 1].rows
    return spec


def rows_trained_on(
    run: RunFolder | None,
    sha256: str,
    draw: Callable[[], ClientRows],
    *,
    round: int,
    size: int,
    versions: Mapping[str, str],
) -> ClientRows:
    """Return the rows with the hash ``sha256``: stored by the run, else drawn again by ``draw``.

    ``sha256`` is "" where none was stored, so that any draw is taken. ``round`` counts from 1; it matters
    where every round's clients are new. ``versions`` are those that the run was trained with.
    """
    if run and sha256 and run.has_manifest and (spec := rows_spec(run, round)) and spec.sha256 == sha256:
        path = run.rows(None if run.manifest().rows else round)
        if path.exists():
            return read_rows(path, spec, size)
    found = draw()
    if sha256 not in ("", found.spec.sha256):
        raise UserError(
            f"which rows the clients hold is not stored here, and numpy {version('numpy')} draws others than "
            f"numpy {versions.get('numpy')} did in training; name the checkpoint as RUN in its registry, or "
            "use that numpy"
        )
    return found


def _inflated(content: bytes, size: int) -> bytes | None:
    """Return the unpacked bytes; None if they are not ``size``. At most one byte more is ever unpacked."""
    inflate = zlib.decompressobj()
    try:
        found = inflate.decompress(content, size + 1)
    except zlib.error:
        return None
    return found if inflate.eof and len(found) == size and not inflate.unused_data else None


def _hash(counts: Sequence[int], validation: int, content: bytes) -> str:
    digest = hashlib.sha256(" ".join(map(str, (*counts, validation))).encode())
    digest.update(content)
    return digest.hexdigest()
