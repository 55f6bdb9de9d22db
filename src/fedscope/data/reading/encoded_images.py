"""Images that stay in files and are decoded when a batch is fetched, by processes of their own.

For data sets that would not fit in memory: 100,000 photographs are 15 GB at 224 pixels, and a random crop is
taken from the whole photograph.
"""

import json
import os
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedscope.data.reading.decode_worker import DecodeRequest, crops, set_up_worker
from fedscope.errors import UserError
from fedscope.storage import new_file, read_text, regular, write_text

CHUNK = 8  # images that one process decodes at a time
AHEAD = 2  # batches that are decoded ahead
MOST_PATHS = 1 << 30  # bytes of the list of files

Key = tuple[bytes, bytes]


@dataclass(frozen=True)
class Files:
    """Encoded images in files; ``fetch`` decodes a batch of them.

    Indexing with rows gives the store of those images. Image i is ``places[i]`` = (path, offset, length).
    """

    paths: tuple[Path, ...]
    places: NDArray[np.int64]  # (N, 3)
    digest: str  # SHA-256 of the encoded images in their order
    side: int
    _prefetched: dict[Key, list["Future[NDArray[np.uint8]]"]] = field(default_factory=dict, compare=False)

    @property
    def shape(self) -> torch.Size:
        return torch.Size([len(self.places), 3, self.side, self.side])

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, rows: Tensor) -> "Files":
        return Files(self.paths, self.places[rows.cpu().numpy()], self.digest, self.side)

    def prefetch(self, rows: Tensor, uniforms: Tensor | None = None) -> None:
        """Begin to decode what ``fetch`` will return for the same arguments."""
        key = _key(rows, uniforms)
        if key in self._prefetched or not decoders():
            return
        while len(self._prefetched) >= AHEAD:  # drop what was never fetched
            self._prefetched.pop(next(iter(self._prefetched)))
        self._prefetched[key] = self._submit(rows, uniforms)

    def fetch(self, rows: Tensor, uniforms: Tensor | None = None) -> Tensor:
        """Return (B, 3, side, side) uint8 on the device of ``rows`` (B,).

        With ``uniforms`` (40, B) each image is the random crop that its column decides
        (:func:`fedscope.data.reading.decoding.random_box`), else its centre.
        """
        if decoders():
            key = _key(rows, uniforms)
            pending = self._prefetched.pop(key) if key in self._prefetched else self._submit(rows, uniforms)
            parts = [_result(future) for future in pending]
        else:
            parts = [crops(self._requests(rows, uniforms), self.side)]
        return torch.from_numpy(np.concatenate(parts)).to(rows.device)

    def _submit(self, rows: Tensor, uniforms: Tensor | None) -> list["Future[NDArray[np.uint8]]"]:
        requests = self._requests(rows, uniforms)
        chunks = [requests[start : start + CHUNK] for start in range(0, len(requests), CHUNK)]
        try:
            return [_pool().submit(crops, chunk, self.side) for chunk in chunks]
        except BrokenProcessPool as error:
            raise _lost() from error

    def _requests(self, rows: Tensor, uniforms: Tensor | None) -> list[DecodeRequest]:
        drawn = [None] * len(rows) if uniforms is None else list(uniforms.T.cpu().numpy())
        places = self.places[rows.cpu().numpy()].tolist()
        return [
            DecodeRequest(str(self.paths[path]), offset, length, numbers)
            for (path, offset, length), numbers in zip(places, drawn, strict=True)
        ]

    def save(self, folder: Path, name: str) -> None:
        with new_file(folder / f"{name}_places.npy", below=folder) as handle:
            np.save(handle, self.places)
        content = {"paths": [str(path) for path in self.paths], "digest": self.digest, "side": self.side}
        write_text(folder / f"{name}_paths.json", json.dumps(content), below=folder)

    @classmethod
    def load(cls, folder: Path, name: str) -> "Files":
        """Return what was saved; paths are absolute, or begin at ``folder``."""
        content = json.loads(read_text(folder / f"{name}_paths.json", MOST_PATHS))
        paths = tuple(folder / path for path in content["paths"])
        return cls(paths, np.load(regular(folder / f"{name}_places.npy")), content["digest"], content["side"])


def decoders() -> int:
    """Return how many processes decode: ``FEDSCOPE_DECODERS`` (0: this alone), or one per core, up to 8."""
    given = os.environ.get("FEDSCOPE_DECODERS")
    if given is None:
        return min(
            8, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        )
    if not given.isdecimal():
        raise UserError(f"FEDSCOPE_DECODERS is a number of processes from 0 up, not {given!r}")
    return int(given)


@cache
def _pool() -> ProcessPoolExecutor:
    from multiprocessing import get_context

    return ProcessPoolExecutor(decoders(), mp_context=get_context("spawn"), initializer=set_up_worker)


def _result(future: "Future[NDArray[np.uint8]]") -> NDArray[np.uint8]:
    try:
        return future.result()
    except BrokenProcessPool as error:
        raise _lost() from error


def _lost() -> UserError:
    _pool.cache_clear()
    return UserError(
        "a process that decodes images was killed (out of memory?); "
        "set FEDSCOPE_DECODERS to fewer processes and run again"
    )


def _key(rows: Tensor, uniforms: Tensor | None) -> Key:
    drawn = b"" if uniforms is None else uniforms.cpu().numpy().tobytes()
    return rows.cpu().numpy().tobytes(), drawn
