"""Where the numbers of a basis are kept: in memory or in a file.

A file is mapped into memory and has no name, so that it is gone with the process, however that ends. What is
read of it piece by piece is handed back to the system every ``HELD`` bytes. The products of batches are
projected on rows of up to ``kept.WHOLE`` numbers as on one matrix, in a file as in memory, so that the digits
are the same: then its pages are counted as resident, though the system may take them back at any time.
"""

import mmap
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from fedscope.errors import UserError
from fedscope.storage import make_folder

Place = Literal["memory", "file"]
HELD = 64 << 20  # bytes of a file that stay in the process' memory at a time


@dataclass(frozen=True)
class BasisStorage:
    """How the rows of a Krylov basis are kept.

    Args:
        place: ``memory``, or ``file`` for a file that is mapped into memory (on a CPU only).
        folder: of the file; None: the system's for temporary files. Not a folder in memory (tmpfs).
        capacity: rows that room is made for at once; None: more whenever there is none left.
    """

    place: Place = "memory"
    folder: Path | None = None
    capacity: int | None = None

    def __str__(self) -> str:
        return f"basis in {self.place}"

    @property
    def directory(self) -> Path:
        """The folder of the file."""
        return self.folder or Path(tempfile.gettempdir())


class RowSpace:
    """Room for rows of n numbers."""

    def __init__(
        self, rows: int, n: int, storage: BasisStorage, dtype: torch.dtype, device: torch.device
    ) -> None:
        self._mapped: mmap.mmap | None = None
        self._read = 0
        if storage.place == "memory":
            self.numbers = torch.empty(rows, n, dtype=dtype, device=device)
            return
        if device.type != "cpu":
            raise UserError(f"a basis in a file needs the CPU, not {device}; keep it in memory")
        self._mapped = _mapped(max(1, rows * n * dtype.itemsize), storage.directory)
        self.numbers = torch.frombuffer(self._mapped, dtype=dtype, count=rows * n).view(rows, n)

    def read(self, rows: slice, columns: slice) -> Tensor:
        piece = self.numbers[rows, columns]
        self._seen(piece)
        return piece

    def write(self, rows: slice, columns: slice, numbers: Tensor) -> None:
        piece = self.numbers[rows, columns]
        piece.copy_(numbers)
        self._seen(piece)

    def take(self, other: "RowSpace", rows: slice) -> None:
        for row, taken in enumerate(range(rows.start, rows.stop)):
            self.numbers[row] = other.numbers[taken]
            self._seen(self.numbers[row])
            other._seen(other.numbers[taken])

    def _seen(self, piece: Tensor) -> None:
        if self._mapped is not None:
            self._read += piece.nbytes
            if self._read >= HELD:
                self._read = 0
                self.release()

    def release(self) -> None:
        """Hand the pages of a file back to the system."""
        if self._mapped is not None:
            self._mapped.madvise(mmap.MADV_DONTNEED)  # of a shared mapping: nothing is lost


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
