"""The cache: what was decoded once lies there as arrays, in one folder per content, and is mapped, not read.

A folder appears whole or not at all. ``meta.json`` names the splits; a split is ``SPLIT_images.npy``, or for
images that are decoded when they are fetched ``SPLIT_places.npy`` and ``SPLIT_paths.json``.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fedscope.data.datasets import SPLITS, Dataset, Split, fingerprint
from fedscope.data.files import Files


def is_complete(folder: Path) -> bool:
    """Say whether ``folder`` holds a data set."""
    return (folder / "meta.json").exists()


def write_split(folder: Path, name: str, split: Split) -> None:
    """Write one split's arrays; its images may lie in ``folder`` already."""
    if isinstance(split.images, Files):
        split.images.save(folder, name)
    elif not images_file(folder, name).exists():
        np.save(images_file(folder, name), split.images.numpy())
    np.save(folder / f"{name}_labels.npy", split.labels.numpy())
    if split.domains is not None:
        np.save(folder / f"{name}_domains.npy", split.domains.numpy())


def write_meta(
    folder: Path,
    splits: Mapping[str, Split],
    classes: Sequence[str],
    domains: Sequence[str] = (),
    note: str = "",
) -> None:
    """Write what the arrays mean; with it the folder is complete."""
    print_ = fingerprint(*(splits[name] for name in SPLITS if name in splits), domains=tuple(domains))
    meta = {
        "classes": list(classes),
        "fingerprint": print_,
        "domains": list(domains),
        "note": note,
        "splits": [name for name in SPLITS if name in splits],
    }
    (folder / "meta.json").write_text(json.dumps(meta))


def read(name: str, folder: Path, note: str = "") -> Dataset:
    """Return the data set in ``folder`` under ``name``; ``note`` comes before its own."""
    meta = json.loads((folder / "meta.json").read_text())
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
    """Return where a split's decoded images lie."""
    return folder / f"{split}_images.npy"


def _tensor(path: Path) -> Tensor:
    return torch.from_numpy(np.load(path, mmap_mode="c"))
