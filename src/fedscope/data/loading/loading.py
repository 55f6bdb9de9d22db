"""From a data set's files to the data set: its rule, decoding once, the cache."""

import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from fedscope.data.loading import array_cache, dataset_files
from fedscope.data.loading.data_folder import root
from fedscope.data.loading.dataset_record import DatasetRecord
from fedscope.data.loading.datasets import Dataset, Split
from fedscope.data.reading.decoding import Pixels, check_header, exact, squared
from fedscope.data.reading.encoded_images import Files
from fedscope.data.reading.image_tables import ImageTable, content_key
from fedscope.errors import UserError
from fedscope.storage import atomic_folder, cache_dir, new_file

Decode = Callable[[bytes, str, int], Pixels]
ONCE: dict[str, Decode] = {"exact": exact, "squared": squared}


def load(record: DatasetRecord, data_dir: Path | None, *, fetch: bool = True) -> Dataset:
    """Return a data set from local files, or without a folder of such from the hub, if it may ``fetch``.

    What was decoded is cached: from local files by their content, from the hub under the data set's name,
    where it works offline and is fetched again once that folder is deleted.
    """
    if record.built_in:
        if data_dir is not None:
            root(data_dir)  # it may be mistyped
        return record.built_in()
    given = root(data_dir)
    found = dataset_files.local(record, given, fetch=fetch) if given else None
    folder = cache_folder(record, found)
    if not array_cache.is_complete(folder):
        if not (found or fetch):
            raise UserError(
                f"no files of it here; name their folder with --data-dir or FEDSCOPE_DATA ({record.layout}); "
                f"source: {record.source}"
            )
        found = found or dataset_files.from_hub(record)
        with atomic_folder(folder, below=cache_dir()) as temporary:
            _build(record, found, temporary)
    return array_cache.read(record.name, folder, found.note if found else "")


def cache_folder(record: DatasetRecord, found: dataset_files.DataFiles | None) -> Path:
    """Return the cache's folder: by the files' content, and by their place where images stay in them."""
    if found is None:
        return cache_dir() / f"{record.folder}-hub"
    place = f" {min(found.files).absolute()}" if record.decode == "files" else ""
    key = content_key(found.files, f"{record.decode} {record.side} {record.rule.__name__}{place}")
    return cache_dir() / f"{record.folder}-{key}"


def _build(record: DatasetRecord, found: dataset_files.DataFiles, folder: Path) -> None:
    tables, note = record.rule(found.read())
    splits = {}
    for name, table in tables.items():
        images: torch.Tensor | Files
        if record.decode == "files":
            images = _kept(table, name, folder, record.side)
        else:
            images = _decoded(table, array_cache.images_file(folder, name), ONCE[record.decode], record.side)
        domains = None if table.domains is None else torch.from_numpy(table.domains)
        splits[name] = Split(images, torch.from_numpy(np.ascontiguousarray(table.labels)), domains)
        array_cache.write_split(folder, name, splits[name])
    array_cache.write_meta(folder, splits, tables["train"].classes, record.domains, note)


def _decoded(table: ImageTable, path: Path, decode: Decode, side: int) -> torch.Tensor:
    shape = (len(table), 3, side, side)
    with array_cache.new_array(path, shape) as images:
        for place, where, encoded in table.read():
            images[place] = decode(encoded, where, side)
    return torch.from_numpy(images)


def _kept(table: ImageTable, name: str, folder: Path, side: int) -> Files:
    """Return the table's images as files; those of shards are copied out, so that each can be read alone."""
    digests = np.zeros((len(table), 32), dtype=np.uint8)
    packed = bool(table.row[0] >= 0)
    paths = [Path(f"{name}.bin")] if packed else [table.files[i].absolute() for i in table.file.tolist()]
    places = np.zeros((len(table), 3), dtype=np.int64)
    with new_file(folder / f"{name}.bin", below=folder) as pack:
        for place, where, encoded in table.read():
            check_header(encoded, where)
            digests[place] = np.frombuffer(hashlib.sha256(encoded).digest(), dtype=np.uint8)
            places[place] = (0, pack.tell(), len(encoded)) if packed else (place, 0, len(encoded))
            pack.write(encoded if packed else b"")
    return Files(tuple(paths), places, hashlib.sha256(digests.tobytes()).hexdigest(), side)
