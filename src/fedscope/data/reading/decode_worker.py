"""The work of a decoding process. Imports no torch, so that it starts quickly."""

import signal
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedscope.data.reading.decoding import Pixels, centred, cropped
from fedscope.errors import UserError
from fedscope.parent import end_with_parent
from fedscope.storage import open_regular


class DecodeRequest(NamedTuple):
    """An image to decode: where its bytes lie, and the numbers of its random crop, if it is to be one."""

    path: str
    offset: int
    length: int
    uniforms: NDArray[np.float32] | None


def set_up_worker() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent()


def crops(requests: Sequence[DecodeRequest], side: int) -> Pixels:
    """Return the images (N, 3, side, side)."""
    return np.stack([_crop(request, side) for request in requests])


def _crop(request: DecodeRequest, side: int) -> Pixels:
    where = request.path if not request.offset else f"{request.path} (byte {request.offset})"
    encoded = read_bytes(request.path, request.offset, request.length)
    if request.uniforms is None:
        return centred(encoded, where, side)
    return cropped(encoded, where, side, request.uniforms)


def read_bytes(path: str, offset: int, length: int) -> bytes:
    try:
        with open_regular(path) as file:
            file.seek(offset)
            return file.read(length)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}; is the data still there?") from error
