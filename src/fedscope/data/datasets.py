"""A data set in memory, and the two ways to get one: bundled with scikit-learn, or a hub's parquet files.

Images are decoded once to uint8 and cached, keyed by the content they were decoded from; a run never decodes
twice and never copies a partition.
"""

import hashlib
import json
import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from fedscope.errors import UserError
from fedscope.storage import atomic_folder
from fedscope.streams import torch_stream

if TYPE_CHECKING:
    from numpy.typing import NDArray

SPLITS = ("train", "test")


@dataclass(frozen=True)
class Split:
    """Images and labels of one split."""

    images: Tensor  # (N, C, H, W) uint8
    labels: Tensor  # (N,) int64
    domains: Tensor | None = None  # (N,) int64: places in the data set's list of domains

    def __len__(self) -> int:
        return len(self.labels)

    def part(self, rows: Tensor) -> "Split":
        """Return the samples ``rows`` (n,)."""
        domains = None if self.domains is None else self.domains[rows]
        return Split(self.images[rows], self.labels[rows], domains)

    def to(self, device: torch.device | str) -> "Split":
        """Return the split on ``device``."""
        domains = None if self.domains is None else self.domains.to(device)
        return Split(self.images.to(device), self.labels.to(device), domains)


@dataclass(frozen=True)
class Dataset:
    """A data set: its splits, class names, and the SHA-256 of everything in it."""

    name: str
    classes: tuple[str, ...]
    train: Split
    test: Split
    fingerprint: str
    note: str = ""  # what a reader should know, such as shards that were not there
    domains: tuple[str, ...] = ()
    validation: Split | None = None


def part(split: Split, count: int | None, seed: int, purpose: str) -> Tensor:
    """Return the rows of ``split`` that a run with ``seed`` uses, ascending: all, or a draw of ``count``.

    Raises:
        UserError: there are fewer.
    """
    if count is None:
        return torch.arange(len(split))
    if count > len(split):
        raise UserError(f"--{purpose}-samples {count} is more than the {len(split)} there are; lower it")
    order = torch.randperm(len(split), generator=torch_stream(seed, f"{purpose} part"))
    return order[:count].sort().values


@dataclass(frozen=True)
class HubSource:
    """Where a data set lies on the Hugging Face hub, and the columns that hold it."""

    repository: str
    image: str
    label: str


def load_digits() -> Dataset:
    """Return scikit-learn's 1,797 bundled 8×8 digits, split 80/20 and stratified by a fixed draw.

    The sixteen grey levels are spread over 0…255. Source: UCI optical recognition of handwritten digits.
    Kept in the cache, where it is writable, because importing scikit-learn takes longer than many a run.
    """
    folder = cache_dir() / f"digits-{version('scikit-learn')}"
    if not (folder / "meta.json").exists():
        splits = _bundled_digits()
        try:
            with atomic_folder(folder) as temporary:
                _write_cache(temporary, splits, tuple(map(str, range(10))))
        except OSError:
            return Dataset("digits", tuple(map(str, range(10))), *splits, fingerprint(*splits))
    return _read_cache("digits", folder, "")


def _bundled_digits() -> tuple[Split, Split]:
    from sklearn.datasets import load_digits as bundled
    from sklearn.model_selection import train_test_split

    raw = bundled()
    images = torch.from_numpy(np.rint(raw.images * (255 / 16)).astype(np.uint8)).unsqueeze(1)
    labels = torch.from_numpy(raw.target.astype(np.int64))
    rows = train_test_split(np.arange(len(labels)), test_size=0.2, stratify=raw.target, random_state=0)
    train, test = (Split(images[part], labels[part]) for part in map(torch.from_numpy, rows))
    return train, test


def load_synthetic(train: int = 100_000, test: int = 10_000) -> Dataset:
    """Return 8×8 images of ten random patterns under noise: as many samples as many clients need, at once.

    Every image is its class's pattern, drawn once, plus Gaussian noise of twice the patterns' spread, in grey
    levels around 128; classes follow each other in turn. The draw is fixed.
    """
    generator = np.random.default_rng(0)
    patterns = generator.normal(size=(10, 1, 8, 8)).astype(np.float32)

    def draw(count: int) -> Split:
        labels = np.arange(count, dtype=np.int64) % 10
        noise = generator.standard_normal((count, 1, 8, 8), dtype=np.float32)
        images = np.clip(128 + 24 * (patterns[labels] + 2 * noise), 0, 255).astype(np.uint8)
        return Split(torch.from_numpy(images), torch.from_numpy(labels))

    splits = draw(train), draw(test)
    return Dataset("synthetic", tuple(map(str, range(10))), *splits, fingerprint(*splits))


def load_hub(name: str, source: HubSource, data_dir: Path | None) -> Dataset:
    """Return a hub data set from a local copy of its parquet files, or from the hub if there is none.

    ``data_dir``, or the environment's ``FEDSCOPE_DATA``, is a folder that holds the parquet files, directly
    or under ``name``. A missing train shard is not an error: the shards that are there are read, and the
    data set's ``note`` says how many. What came from the hub is cached under its name: it works offline,
    and is fetched again once that folder is deleted.

    Raises:
        UserError: nothing to read there, an unreadable file, or no network for the hub.
    """
    root = data_dir or (Path(os.environ["FEDSCOPE_DATA"]) if os.environ.get("FEDSCOPE_DATA") else None)
    files = _parquet_files(name, root) if root else None
    folder = cache_dir() / (f"{name}-{_content_key(files)[:20]}" if files else f"{name}-hub")
    if not (folder / "meta.json").exists():
        with atomic_folder(folder) as temporary:
            _decode(source, files, temporary)
    return _read_cache(name, folder, _shards_note(files) if files else "")


def cache_dir() -> Path:
    """Return ``$FEDSCOPE_CACHE``, ``$XDG_CACHE_HOME/fedscope`` or ``~/.cache/fedscope``."""
    if os.environ.get("FEDSCOPE_CACHE"):
        return Path(os.environ["FEDSCOPE_CACHE"])
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fedscope"


def fingerprint(*splits: Split) -> str:
    """Return the SHA-256 of the splits' shapes, images and labels."""
    digest = hashlib.sha256()
    for split in splits:
        digest.update(str(tuple(split.images.shape)).encode())
        digest.update(split.images.contiguous().numpy().data)
        digest.update(split.labels.contiguous().numpy().data)
    return digest.hexdigest()


def _parquet_files(name: str, root: Path) -> dict[str, list[Path]]:
    if not root.is_dir():
        raise UserError(f"no such data folder: {root}; give --data-dir or FEDSCOPE_DATA an existing one")
    for folder in (root / name, root):
        files = (
            {split: sorted(folder.rglob(f"{split}-*.parquet")) for split in SPLITS} if folder.is_dir() else {}
        )
        if folder == root:  # a folder of several data sets must not be mistaken for this one
            files = {split: sorted(folder.glob(f"{split}-*.parquet")) for split in SPLITS}
        if all(files.get(split) for split in SPLITS):
            return files
    raise UserError(
        f"no {name} under {root}: expected {name}/train-*.parquet and {name}/test-*.parquet as on the hub"
    )


def _content_key(files: dict[str, list[Path]]) -> str:
    digest = hashlib.sha256()
    for split in SPLITS:
        for file in files[split]:
            digest.update(f"{split}/{file.name}\0".encode())
            with file.open("rb") as handle:
                digest.update(hashlib.file_digest(handle, "sha256").digest())
    return digest.hexdigest()


def _shards_note(files: dict[str, list[Path]]) -> str:
    expected = [int(match[1]) for f in files["train"] if (match := re.search(r"-of-(\d+)", f.name))]
    if expected and len(files["train"]) < max(expected):
        return f"train: {len(files['train'])} of {max(expected)} shards are there"
    return ""


def _decode(source: HubSource, files: dict[str, list[Path]] | None, folder: Path) -> None:
    import datasets

    quiet = datasets.utils.logging
    quiet.disable_progress_bar()
    splits = {}
    with tempfile.TemporaryDirectory() as scratch:
        for split in SPLITS:
            try:
                if files:
                    names = [str(file) for file in files[split]]
                    rows = datasets.load_dataset(
                        "parquet", data_files=names, split="train", cache_dir=scratch
                    )
                else:
                    rows = datasets.load_dataset(source.repository, split=split)
                _check_columns(rows.features, source)
                splits[split] = _arrays(rows, source)
            except UserError:
                raise
            except Exception as error:  # pyarrow, PIL, datasets and the hub's client share no base class
                mend = "fetch its files again" if files else "or give its parquet files with --data-dir"
                raise UserError(
                    f"cannot read the {split} split of {source.repository}: {_first_line(error)}; {mend}"
                ) from error
        classes = list(rows.features[source.label].names)
    for split, (_, labels) in splits.items():
        if labels.min() < 0 or labels.max() >= len(classes):
            raise UserError(
                f"labels of the {split} split run from {labels.min()} to {labels.max()}, "
                f"but there are {len(classes)} classes; fetch its files again"
            )
    train, test = (Split(*map(torch.from_numpy, splits[split])) for split in SPLITS)
    _write_cache(folder, (train, test), classes)


def _write_cache(folder: Path, splits: tuple[Split, Split], classes: Sequence[str]) -> None:
    for name, split in zip(SPLITS, splits, strict=True):
        np.save(folder / f"{name}_images.npy", split.images.numpy())
        np.save(folder / f"{name}_labels.npy", split.labels.numpy())
    meta = {"classes": list(classes), "fingerprint": fingerprint(*splits)}
    (folder / "meta.json").write_text(json.dumps(meta))


def _check_columns(features: Any, source: HubSource) -> None:
    import datasets

    for column, kind in ((source.image, datasets.Image), (source.label, datasets.ClassLabel)):
        if not isinstance(features.get(column), kind):
            there = ", ".join(f"{name} ({type(feature).__name__})" for name, feature in features.items())
            raise UserError(
                f"{source.repository} keeps its {kind.__name__} in column {column!r}; these files have "
                f"{there}; use the hub's own files"
            )


def _arrays(rows: Any, source: HubSource) -> tuple["NDArray[np.uint8]", "NDArray[np.int64]"]:
    labels = np.asarray(rows[source.label][:], dtype=np.int64)
    images = np.stack(list(_images(rows, source.image))).transpose(0, 3, 1, 2)
    return np.ascontiguousarray(images), labels


def _images(rows: Any, column: str) -> Iterator["NDArray[np.uint8]"]:
    for row in rows.select_columns([column]):
        yield np.asarray(row[column].convert("RGB"), dtype=np.uint8)


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _read_cache(name: str, folder: Path, note: str) -> Dataset:
    meta = json.loads((folder / "meta.json").read_text())
    train, test = (Split(*_load(folder, split)) for split in SPLITS)
    return Dataset(name, tuple(meta["classes"]), train, test, meta["fingerprint"], note)


def _load(folder: Path, split: str) -> Sequence[Tensor]:
    return [
        torch.from_numpy(np.load(folder / f"{split}_{part}.npy", mmap_mode="c"))
        for part in ("images", "labels")
    ]
