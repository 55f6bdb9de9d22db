"""A partition that another program made: each client's rows of the training set, from a file."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedscope.checkpoints.foreign.arrays import read_arrays
from fedscope.checkpoints.registry.client_rows import ClientRows, Rows
from fedscope.errors import UserError
from fedscope.storage import read_bytes
from fedscope.storage.limits import parse_json

_CLIENT = re.compile(r"(?:client|arr)?[_. -]?([0-9]{1,9})", re.IGNORECASE)


def read_partition(path: Path, samples: int) -> ClientRows:
    """Return the rows that ``path`` names, of a training set of so many samples.

    Args:
        path: a mapping from each client's number to its rows, or a list of rows for each client, as JSON; or
            an array for each client, as ``.npz``.
        samples: of the training set, whose first row is 0.
    """
    if not path.is_file():
        raise UserError(f"no such file: {path}")
    try:
        found = read_arrays(path) if path.suffix == ".npz" else parse_json(read_bytes(path))
    except ValueError as error:
        raise UserError(f"{path} is no JSON ({error}); save {{client: [rows]}}") from error
    held = dict(enumerate(found)) if isinstance(found, list) else found
    if not isinstance(held, dict) or not held:
        raise UserError(f"{path} is no partition; save {{client: [rows]}} as JSON, client numbers from 0")
    rows = {int(match[1]): part for name, part in held.items() if (match := _CLIENT.fullmatch(str(name)))}
    if len(rows) < len(held) or rows.keys() != {*range(len(held))}:
        raise UserError(
            f"{path} has {len(held)} clients whose numbers are not 0 to {len(held) - 1}; number them so"
        )
    clients = [_rows(rows[k], f"{path}: client {k}", samples) for k in range(len(rows))]
    return ClientRows(clients, np.empty(0, np.int64))


def _rows(held: Any, what: str, samples: int) -> Rows:
    try:
        rows = held if isinstance(held, Tensor) else torch.tensor(held, dtype=None if held else torch.int64)
    except (TypeError, ValueError, RuntimeError) as error:
        raise UserError(f"{what} has no list of rows ({error})") from error
    if rows.ndim != 1 or rows.is_floating_point() or rows.is_complex() or rows.dtype == torch.bool:
        raise UserError(f"{what} has {tuple(rows.shape)} of {rows.dtype}, not a list of whole numbers")
    rows = rows.to(torch.int64)
    odd = rows[(rows < 0) | (rows >= samples)]
    if len(odd):
        raise UserError(f"{what} has row {int(odd[0])}; those of the training set are 0 to {samples - 1:,}")
    return rows.numpy()
