"""Products on disk: an operator that computes no product twice, not even after ``kill -9``.

Every estimator here is a deterministic function of products, and the products are nearly all of its cost. So
the one thing kept is each product, in a file named by the vector's bits: run again after an interruption, the
algorithm takes the same steps, finds the products it had, and goes on with the same bits. Krylov bases, probe
sums and diagonals need no state of their own.

One file holds n numbers in the operator's dtype, and a few more. A file that cannot be read is computed
anew, so that none need wait for the disk; where no more can be written (disk full, no room left), products
are computed and not kept.
"""

import hashlib
import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import torch
from torch import Tensor

from fedscope.errors import UserError
from fedscope.landscape.loss.trees import octets
from fedscope.landscape.operators.base import Operator, Product, Wrapper
from fedscope.landscape.operators.basis.projections import Onto
from fedscope.landscape.operators.empirical_risk import LossOperator
from fedscope.landscape.surroundings import surroundings
from fedscope.storage import atomic_file, read_bytes

_COLUMNS = 64  # of a basis, that tell it from others
_MOST = 1 << 36  # bytes of a file
_TENSORS = ("vector", "forms", "onto")  # of a product; its other fields are numbers


@dataclass
class JournalSpace:
    """Disk space left to all journals together."""

    left: int = 8 << 30  # bytes


class Journaled(Wrapper):
    """An operator whose products are kept in a folder, which is deleted once the result is written.

    The folder must belong to ``base`` alone, that is, be named by what decides its bits. Links below
    ``below`` are refused.
    """

    def __init__(
        self, base: Operator, folder: Path, *, below: Path | None = None, room: JournalSpace | None = None
    ) -> None:
        super().__init__(base)
        self._folder, self._below = folder, below
        self._room = room or JournalSpace()
        self.computed = self.found = 0

    def _apply(self, rows: Tensor, onto: Tensor | None) -> list[Product]:
        return self._kept(_key(rows, onto), lambda: self._base._apply(rows, onto))

    def _alone(self, rows: Tensor) -> list[Product]:
        return self._kept(f"{_key(rows, None)}-alone", lambda: self._base._alone(rows))

    def _kept(self, key: str, compute: Callable[[], list[Product]]) -> list[Product]:
        path = self._folder / f"{key}.npz"
        products = self._read(path)
        if products is not None:
            self.found += len(products)
            return products
        products = compute()
        self.computed += len(products)
        self._write(path, products)
        return products

    def sample_forms(self, v: Tensor) -> Tensor | None:
        return self._base.sample_forms(v)

    def diagonal_parts(self, probes: Tensor, most: int) -> Tensor | None:
        return self._base.diagonal_parts(probes, most)

    def _read(self, path: Path) -> list[Product] | None:
        columns: dict[str, Any] = {name: part.to(self.device) for name, part in read_arrays(path).items()}
        if "vector" not in columns:
            return None
        self._room.left -= sum(column.nbytes for column in columns.values())
        columns["vector"] = columns["vector"].to(self.dtype)
        columns |= {name: columns[name].tolist() for name in ("error", "form_error")}
        return [
            Product(**{"forms": None, **{name: column[i] for name, column in columns.items()}})
            for i in range(len(columns["vector"]))
        ]

    def _write(self, path: Path, products: list[Product]) -> None:
        columns = {field.name: [getattr(one, field.name) for one in products] for field in fields(Product)}
        arrays = {
            name: torch.stack(column) if name in _TENSORS else torch.tensor(column, dtype=torch.float64)
            for name, column in columns.items()
            if column[0] is not None
        }
        self._room.left -= sum(array.nbytes for array in arrays.values())
        if self._room.left < 0:
            return
        try:
            write_arrays(path, arrays, below=self._below)
        except OSError:
            self._room.left = 0  # the disk is full or read-only: nothing more is kept


def read_arrays(path: Path) -> dict[str, Tensor]:
    """Return what :func:`write_arrays` wrote; nothing where the file is not there, or damaged."""
    try:
        with io.BytesIO(read_bytes(path, _MOST)) as file, np.load(file, allow_pickle=False) as content:
            return {name: torch.from_numpy(content[name]) for name in content.files}
    except (UserError, OSError, ValueError, KeyError, EOFError, BadZipFile, NotImplementedError):
        return {}


def write_arrays(path: Path, arrays: Mapping[str, Tensor], *, below: Path | None) -> None:
    """Write tensors to an .npz file, by name; bfloat16 as float32."""
    plain: dict[str, Any] = {
        name: (array.float() if array.dtype == torch.bfloat16 else array).cpu().numpy()
        for name, array in arrays.items()
    }
    with atomic_file(path, below=below, durable=False) as file:
        np.savez(file, **plain)


def _key(rows: Tensor, onto: Tensor | None) -> str:
    """Return the name of a product: the bits of the vectors, and of some columns of the rows projected onto.

    Those rows are the basis that the algorithm had built by then. A restart changes them but not the vector
    that follows, so that runs which restart otherwise agree in the vector and even in the rows' number.
    """
    digest = hashlib.sha256(f"{tuple(rows.shape)} {0 if onto is None else len(onto)}\0".encode())
    digest.update(octets(rows))
    if onto is not None:
        step = max(1, onto.shape[1] // _COLUMNS) if isinstance(onto, Tensor) else 1
        digest.update(octets(onto.sampled(_COLUMNS) if isinstance(onto, Onto) else onto[:, ::step]))
    return digest.hexdigest()[:32]


def identity(op: LossOperator) -> str:
    """Return what names an operator's bits: kind, weights, samples, outputs, and what computes them."""
    digest = hashlib.sha256(op.fingerprint.encode())
    digest.update(surroundings(op.device).encode())
    return digest.hexdigest()[:32]
