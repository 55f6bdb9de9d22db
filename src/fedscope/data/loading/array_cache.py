"""The cache of decoded data sets: arrays in one folder per content, which are mapped, not read.

A folder appears whole or not at all. ``meta.json`` names the splits; a split is ``SPLIT_images.npy``, or for
images that are decoded when they are fetched ``SPLIT_places.npy`` and ``SPLIT_paths.json``.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedscope.data.loading.datasets import SPLITS, Dataset, Split, fingerprint
from fedscope.data.reading.encoded_images import Files
from fedscope.storage import new_file, read_text, regular, write_text


def is_complete(folder: Path) -> bool:
    return (folder / "meta.json").exists()


def write_split(folder: Path, name: str, split: Split) -> None:
    """Write one split's arrays; its images may lie in ``folder`` already."""
    if isinstance(split.images, Files):
        split.images.save(folder, name)
    elif isinstance(split.images, Tensor) and not images_file(folder, name).exists():
        _save(images_file(folder, name), split.images)
    _save(folder / f"{name}_labels.npy", split.labels)
    if split.domains is not None:
        _save(folder / f"{name}_domains.npy", split.domains)


@contextmanager
def new_array(path: Path, shape: tuple[int, ...]) -> Iterator[NDArray[np.uint8]]:
    """Yield an array of bytes that lies in the new file ``path`` from the start, which may be large."""
    with new_file(path, below=path.parent) as handle:
        header = {"descr": "|u1", "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(handle, header)
        handle.flush()
        images = np.memmap(handle, np.uint8, "r+", handle.tell(), shape)
        yield images
        images.flush()


def _save(path: Path, numbers: Tensor) -> None:
    with new_file(path, below=path.parent) as handle:
        np.save(handle, numbers.numpy())


def write_meta(
    folder: Path,
    splits: Mapping[str, Split],
    classes: Sequence[str],
    domains: Sequence[str] = (),
    note: str = "",
) -> None:
    """Write ``meta.json``, which describes the arrays and completes the folder."""
    print_ = fingerprint(*(splits[name] for name in SPLITS if name in splits), domains=tuple(domains))
    meta = {
        "classes": list(classes),
        "fingerprint": print_,
        "domains": list(domains),
        "note": note,
        "splits": [name for name in SPLITS if name in splits],
    }
    write_text(folder / "meta.json", json.dumps(meta), below=folder)


def read(name: str, folder: Path, note: str = "") -> Dataset:
    meta = json.loads(read_text(folder / "meta.json"))
    splits = {split: read_split(folder, split) for split in meta.get("splits", SPLITS[:2])}
    notes = "; ".join(filter(None, [note, meta.get("note", "")]))
    return Dataset(
        name, tuple(meta["classes"]), splits["train"], splits["test"], meta["fingerprint"], notes,
        tuple(meta.get("domains", ())), splits.get("validation"),
    )  # fmt: skip


def read_split(folder: Path, name: str) -> Split:
    """Return one split; its arrays are mapped copy-on-write."""
    in_files = not images_file(folder, name).exists()
    images = Files.load(folder, name) if in_files else _tensor(images_file(folder, name))
    domains = folder / f"{name}_domains.npy"
    return Split(
        images, _tensor(folder / f"{name}_labels.npy"), _tensor(domains) if domains.exists() else None
    )


def images_file(folder: Path, split: str) -> Path:
    return folder / f"{split}_images.npy"


def _tensor(path: Path) -> Tensor:
    return torch.from_numpy(np.load(regular(path), mmap_mode="c"))
