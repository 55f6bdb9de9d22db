"""Space for rows of numbers, in memory or in a file.

Memory for long rows is reserved: what is not written to takes none. A file is mapped into memory and has no
name, so that it is gone with the process, however that ends. What is read of it piece by piece is handed back
to the system every ``HELD`` bytes. The products of batches are projected on rows of up to ``WHOLE`` numbers
as on one matrix, in a file as in memory, so that the digits are the same: then its pages are counted as
resident, though the system may take them back at any time.
"""

import mmap
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import torch
from torch import Tensor

from fedscope.errors import UserError
from fedscope.storage import make_folder

HELD = 64 << 20  # bytes of a file that stay in the process' memory at a time
PIECE = 1 << 18  # numbers read at a time on a CPU: they stay in a core's cache
WHOLE = 1 << 22  # coordinates of vectors that are multiplied at once; longer ones piece by piece
_NO_RESERVE = 0x4000  # MAP_NORESERVE of Linux: else all of it would have to be free at once
_ON_DEVICE = 1 << 24  # numbers read at a time on an accelerator: less would not pay for the calls

Pieces = Iterator[tuple[slice, Tensor]]
"""(columns; the rows' numbers there)."""


class RowSpace:
    """Room for rows of n numbers, in memory or, where a folder is given, in a file of it.

    Attributes:
        numbers: (rows, n).
        filled: rows that are written.
    """

    def __init__(
        self, rows: int, n: int, dtype: torch.dtype, device: torch.device, folder: Path | None = None
    ) -> None:
        self.folder, self.filled, self._read = folder, 0, 0
        self._mapped: mmap.mmap | None = None
        self._beside: RowSpace | None = None
        size = max(1, rows * n * dtype.itemsize)
        if reserves(n, device, folder):
            reserved = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE)
            with suppress(OSError):  # of a kernel that has no huge pages
                reserved.madvise(mmap.MADV_HUGEPAGE)  # whose first touch is a fifth as slow
            self.numbers = torch.frombuffer(reserved, dtype=dtype, count=rows * n).view(rows, n)
            return
        if folder is None:
            self.numbers = torch.empty(rows, n, dtype=dtype, device=device)
            return
        if device.type != "cpu":
            raise UserError(f"a basis in a file needs the CPU, not {device}; keep it in memory")
        self._mapped = _mapped(size, folder)
        self.numbers = torch.frombuffer(self._mapped, dtype=dtype, count=rows * n).view(rows, n)

    def like(self, rows: int) -> "RowSpace":
        return RowSpace(rows, self.numbers.shape[1], self.numbers.dtype, self.numbers.device, self.folder)

    def beside(self, rows: int) -> "RowSpace":
        """Return the same room at every call, for vectors that wait to be seen together."""
        if self._beside is None or len(self._beside.numbers) != rows:
            self._beside = self.like(rows)
        return self._beside

    def __getitem__(self, part: tuple[slice, slice]) -> Tensor:
        """Return a view of numbers, to be read or written before the next."""
        if self._read >= HELD:
            self.release()
        piece = self.numbers[part]
        self._read += piece.nbytes
        return piece

    def pieces(self, rows: slice, width: int | None = None) -> Pieces:
        most, n = PIECE if self.numbers.device.type == "cpu" else _ON_DEVICE, self.numbers.shape[1]
        step = width or max(1, most // max(1, rows.stop - rows.start))
        for first in range(0, n, step):
            columns = slice(first, min(first + step, n))
            yield columns, self[rows, columns]

    def write(self, row: int, vector: Tensor, norm: float = 1.0) -> None:
        for columns, piece in self.pieces(slice(row, row + 1), WHOLE):
            piece.copy_(vector[columns] / norm)

    def append(self, vector: Tensor, norm: float = 1.0) -> None:
        self.write(self.filled, vector, norm)
        self.filled += 1

    def take(self, other: "RowSpace", rows: slice) -> None:
        for own, row in enumerate(range(rows.start, rows.stop)):
            for columns, piece in other.pieces(slice(row, row + 1), WHOLE):
                self[own : own + 1, columns].copy_(piece)
        self.filled = rows.stop - rows.start

    def grow(self, rows: int) -> None:
        """Make room for ``rows``, if there is none left."""
        if self.filled == len(self.numbers):
            larger = self.like(rows)
            larger.take(self, slice(0, self.filled))
            self.numbers, self._mapped = larger.numbers, larger._mapped

    def release(self) -> None:
        """Hand the pages of a file back to the system."""
        self._read = 0
        if self._mapped is not None:
            self._mapped.madvise(mmap.MADV_DONTNEED)  # of a shared mapping: nothing is lost


def reserves(n: int, device: torch.device, folder: Path | None) -> bool:
    """Say whether room for rows of n numbers takes memory only where it is written to."""
    return folder is None and n > WHOLE and device.type == "cpu" and sys.platform == "linux"


def _mapped(size: int, place: Path) -> mmap.mmap:
    try:
        make_folder(place, below=None)
        with tempfile.TemporaryFile(dir=place) as file:
            os.posix_fallocate(file.fileno(), 0, size)  # a full disk is an error here, not a signal later
            return mmap.mmap(file.fileno(), size)
    except OSError as error:
        raise UserError(
            f"{place} has no room for a basis of {size / 2**30:.1f} GiB ({error.strerror}): free some, name "
            "another folder, or keep the basis in memory"
        ) from error
