"""NumPy's files: one array (``.npy``), or several by name or place (``.npz``).

``numpy.savez(FILE, *arrays)``, as Flower's servers save a list of arrays, names them ``arr_0``, ``arr_1``, ….
"""

from pathlib import Path
from zipfile import ZipFile

import numpy as np
import torch
from torch import Tensor

from fedscope.errors import UserError
from fedscope.storage import regular

MOST_EXPANSION = 100  # times the file's size, of what its compressed members claim to hold


def read_array(path: Path) -> Tensor:
    try:
        # Mapped: a header that claims more numbers than there are is refused, not allocated.
        return torch.from_numpy(np.load(regular(path), allow_pickle=False, mmap_mode="c"))
    except Exception as error:  # whatever numpy raises on bytes that somebody else wrote
        raise UserError(f"{path} is no array of numbers ({error}); save one with numpy.save") from error


def read_arrays(path: Path) -> dict[str, Tensor]:
    try:
        with ZipFile(regular(path)) as archive:
            claimed = sum(member.file_size for member in archive.infolist())
        if claimed > MOST_EXPANSION * path.stat().st_size:
            raise ValueError(f"it claims {claimed} bytes")
        with np.load(path, allow_pickle=False) as arrays:
            return {name: torch.from_numpy(arrays[name]) for name in arrays.files}
    except Exception as error:  # whatever zipfile and numpy raise on them
        raise UserError(
            f"{path} holds no arrays of numbers ({error}); save them with numpy.savez(FILE, *arrays)"
        ) from error
