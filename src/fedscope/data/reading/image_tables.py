"""Encoded images and their labels in files: the tables that a data set's splits are made from."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fedscope.data.reading.decode_worker import read_bytes
from fedscope.data.reading.decoding import first_line
from fedscope.errors import UserError
from fedscope.extras import needed
from fedscope.storage import open_regular

Rows = NDArray[np.int64]
BIG = 2**31  # bytes; more is recognised by size and time of change instead of read on every start


@dataclass(frozen=True)
class ImageTable:
    """N images: image i is the file ``files[file[i]]``, or where ``row[i]`` is not −1 a row of that shard."""

    files: tuple[Path, ...]
    file: Rows  # (N,)
    row: Rows  # (N,)
    labels: Rows  # (N,)
    classes: tuple[str, ...]
    column: str = ""  # of the shards' images
    domains: Rows | None = None  # (N,)

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, rows: Rows) -> "ImageTable":
        domains = None if self.domains is None else self.domains[rows]
        return replace(
            self, file=self.file[rows], row=self.row[rows], labels=self.labels[rows], domains=domains
        )

    def read(self) -> Iterator[tuple[int, str, bytes]]:
        """Yield (place in this table, where it lies, encoded image), shard by shard in the order they lie."""
        order = np.lexsort((self.row, self.file))
        bounds = np.flatnonzero(np.diff(self.file[order], prepend=-1))
        for places in np.split(order, bounds[1:]) if len(order) else []:
            path = self.files[self.file[places[0]]]
            if self.row[places[0]] < 0:
                for place in places.tolist():
                    yield place, str(path), read_bytes(str(path), 0, -1)
            else:
                found = encoded(path, self.column, self.row[places])
                for place, row, image in zip(places.tolist(), self.row[places].tolist(), found, strict=True):
                    yield place, f"{path}, row {row}", image


def of_files(paths: Sequence[Path], labels: Sequence[int], classes: Sequence[str]) -> ImageTable:
    count = len(paths)
    return ImageTable(
        tuple(paths), np.arange(count), np.full(count, -1), np.array(labels, dtype=np.int64), tuple(classes)
    )


def pooled(tables: Sequence[ImageTable]) -> ImageTable:
    """Return the tables' images one table after the other; their classes are the same."""
    starts = np.cumsum([0, *(len(table.files) for table in tables)])
    domains = [table.domains for table in tables if table.domains is not None]
    return ImageTable(
        tuple(path for table in tables for path in table.files),
        np.concatenate([table.file + start for table, start in zip(tables, starts, strict=False)]),
        np.concatenate([table.row for table in tables]),
        np.concatenate([table.labels for table in tables]),
        tables[0].classes,
        next((table.column for table in tables if table.column), ""),
        np.concatenate(domains) if domains else None,
    )


def by_domain(tables: Sequence[ImageTable]) -> ImageTable:
    """Return one table of several domains, a domain after the other; the k-th table is domain k."""
    places = [np.full(len(table), place, dtype=np.int64) for place, table in enumerate(tables)]
    return pooled([replace(table, domains=own) for table, own in zip(tables, places, strict=True)])


def of_classes(table: ImageTable, classes: Sequence[str]) -> ImageTable:
    """Return the images of ``classes`` alone, labelled by their place in it."""
    if missing := [name for name in classes if name not in table.classes]:
        raise UserError(f"there is no class {missing[0]!r} in {_where(table)}; fetch its files again")
    new = np.full(len(table.classes), -1)
    new[[table.classes.index(name) for name in classes]] = np.arange(len(classes))
    kept = table.take(np.flatnonzero(new[table.labels] >= 0))
    return replace(kept, labels=new[kept.labels], classes=tuple(classes))


def check(table: ImageTable, what: str) -> ImageTable:
    """Return the table if every class has an image; ``what`` it is, for the error."""
    count = len(table.classes)
    if not len(table):
        raise UserError(f"{what} has no images in {_where(table)}; fetch its files again")
    if len(empty := np.flatnonzero(np.bincount(table.labels, minlength=count) == 0)):
        raise UserError(
            f"{what} has no image of class {table.classes[empty[0]]!r} in {_where(table)}; fetch its files "
            "again"
        )
    return table


def content_key(files: Iterable[Path], salt: str) -> str:
    """Return a key of the files' content: their bytes, or of many or large ones size and time of change."""
    paths = sorted(files)
    digest = hashlib.sha256(salt.encode())
    stats = [path.stat() for path in paths]
    small = len(paths) < 100 and sum(stat.st_size for stat in stats) < BIG
    for path, stat in zip(paths, stats, strict=True):
        if small:
            digest.update(f"{path.name}\0".encode())
            with open_regular(path) as handle:
                digest.update(hashlib.file_digest(handle, "sha256").digest())
        else:
            digest.update(f"{path.absolute()}\0{stat.st_size}\0{stat.st_mtime_ns}\0".encode())
    return digest.hexdigest()[:20]


def _where(table: ImageTable) -> str:
    if not table.files:
        return "its folder"
    folders = {path.parent for path in table.files}
    return str(table.files[0] if len(table.files) == 1 else min(folders, key=lambda f: len(f.parts)))


if TYPE_CHECKING:
    from pyarrow.parquet import ParquetFile


def encoded(path: Path, column: str, rows: NDArray[np.int64]) -> Iterator[bytes]:
    """Yield the encoded images of a shard's ``rows``, which ascend."""
    with reading(path):
        shard, start = opened(path), 0
        for group in range(shard.num_row_groups):
            stop = start + shard.metadata.row_group(group).num_rows
            wanted = rows[(rows >= start) & (rows < stop)] - start
            if len(wanted):
                images = shard.read_row_group(group, columns=[column]).column(column)
                for row in wanted.tolist():
                    image = images[row].as_py()
                    yield (image or {}).get("bytes") or b""
            start = stop


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn whatever reading a file raises into one line that names it."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # pyarrow's errors, and those of what it reads, share no base class
        raise UserError(f"cannot read {path}: {first_line(error)}; fetch it again") from error


def opened(path: Path) -> "ParquetFile":
    with needed("train", f"{path.name}, a Parquet file,"):
        from pyarrow.parquet import ParquetFile

    return ParquetFile(path)
