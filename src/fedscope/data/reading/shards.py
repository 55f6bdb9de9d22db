"""Parquet shards as the Hugging Face hub has them: found in a folder, or fetched, and read row by row."""

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedscope.data.reading.decoding import first_line
from fedscope.data.reading.image_tables import ImageTable, Rows, opened, reading
from fedscope.errors import UserError
from fedscope.extras import needed

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetFile

REACHABLE_IN = 5.0  # seconds
OUR_SPLITS = {"train": "train", "test": "test"}


@dataclass(frozen=True)
class HubSource:
    """Where a data set lies on the hub, the columns that hold it, and the hub's names of our splits."""

    repository: str
    image: str = "image"
    label: str = "label"
    config: str | None = None
    splits: Mapping[str, str] = field(default_factory=lambda: OUR_SPLITS)
    domain: str | None = None  # the column that says which domain an image is from


def find(folder: Path, source: HubSource, *, direct: bool) -> dict[str, list[Path]] | None:
    """Return the shards of each split in ``folder``, or below it unless ``direct``, or None."""
    if not folder.is_dir():
        return None
    look = folder.glob if direct else folder.rglob
    found = {ours: sorted(look(f"{theirs}-*.parquet")) for ours, theirs in source.splits.items()}
    return found if all(found.values()) else None


def fetch(source: HubSource) -> dict[str, list[Path]]:
    """Return the hub's shards, fetched into the ``datasets`` library's cache, which resumes and verifies."""
    check_reachable(source.repository)
    datasets = _library()

    if not sys.stderr.isatty():
        datasets.utils.logging.disable_progress_bar()
    try:
        builder = datasets.load_dataset_builder(source.repository, source.config)
        files = {ours: list(builder.config.data_files[theirs]) for ours, theirs in source.splits.items()}
        fetched = datasets.DownloadManager(dataset_name=builder.dataset_name).download(files)
    except Exception as error:  # datasets, the hub's client and the network share no base class
        raise _unfetched(source.repository, first_line(error)) from error
    return {split: [Path(path) for path in paths] for split, paths in fetched.items()}


def check_reachable(repository: str) -> None:
    """Try the hub once, since its own client retries for half a minute with a line for each try."""
    with needed("train", f"{repository} on the hub"):
        from huggingface_hub import constants
        from huggingface_hub.utils import get_session  # type: ignore[attr-defined]

    if constants.HF_HUB_OFFLINE:
        raise _unfetched(repository, "HF_HUB_OFFLINE forbids it")
    try:
        get_session().head(constants.ENDPOINT, timeout=REACHABLE_IN)
    except Exception as error:  # requests or httpx, by the hub's version, and what these pass on
        why = re.sub(r"^\[Errno -?\d+\] ", "", first_line(error))
        raise _unfetched(repository, f"no answer from {constants.ENDPOINT} ({why})") from error


def _unfetched(repository: str, why: str) -> UserError:
    return UserError(
        f"cannot fetch {repository} from the hub: {why}; name a folder that has its files with --data-dir or "
        "FEDSCOPE_DATA, or try again with a network; `fedscope data list` shows which data sets need none"
    )


def missing_shards(files: Mapping[str, Sequence[Path]]) -> str:
    """Return a note on the shards that are not there by their names, ``…-00000-of-00002…``; empty if none."""
    notes = []
    for split, paths in files.items():
        expected = [int(match[1]) for path in paths if (match := re.search(r"-of-(\d+)", path.name))]
        if expected and len(paths) < max(expected):
            notes.append(f"{split}: {len(paths)} of {max(expected)} shards are there")
    return "; ".join(notes)


def table(
    paths: Sequence[Path], source: HubSource, classes: Sequence[str] = (), domains: Sequence[str] = ()
) -> ImageTable:
    """Return the images of one split's shards; ``classes`` name the labels where the shards do not."""
    labels: list[Rows] = []
    rows, found, names = [], [], tuple(classes)
    for path in paths:
        with reading(path):
            shard = opened(path)
            features = _library().Features.from_arrow_schema(shard.schema_arrow)
            _check_columns(path, features, source, named=bool(classes))
            names = tuple(getattr(features[source.label], "names", None) or classes)
            labels.append(_labels(shard, source.label, len(names)))
            rows.append(np.arange(len(labels[-1])))
            if source.domain:
                found.append(_domains(shard, features, source.domain, domains))
    file = np.repeat(np.arange(len(paths)), [len(part) for part in rows])
    return ImageTable(
        tuple(paths), file, np.concatenate(rows), np.concatenate(labels), names, source.image,
        np.concatenate(found) if found else None,
    )  # fmt: skip


def _library() -> Any:
    with needed("train", "a data set in the hub's files"):
        import datasets
    return datasets


def _labels(shard: "ParquetFile", name: str, classes: int) -> Rows:
    values = shard.read(columns=[name]).column(name)
    if values.null_count:
        raise ValueError(f"column {name!r} has {values.null_count} empty entries")
    labels = np.asarray(values.to_numpy(), dtype=np.int64)
    if len(labels) and not 0 <= labels.min() <= labels.max() < classes:
        raise ValueError(f"labels run from {labels.min()} to {labels.max()}, but there are {classes} classes")
    return labels


def _domains(shard: "ParquetFile", features: Any, column: str, domains: Sequence[str]) -> Rows:
    names = getattr(features[column], "names", None)
    values = shard.read(columns=[column]).column(column).to_pylist()
    return np.array([domains.index(names[value] if names else value) for value in values], dtype=np.int64)


def _check_columns(path: Path, features: Any, source: HubSource, *, named: bool) -> None:
    datasets = _library()
    numbers = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
    label = features.get(source.label)
    integers = named and getattr(label, "dtype", None) in numbers
    wanted = {
        source.image: ("Image", isinstance(features.get(source.image), datasets.Image)),
        source.label: ("ClassLabel", isinstance(label, datasets.ClassLabel) or integers),
        **({source.domain: ("domain", source.domain in features)} if source.domain else {}),
    }
    for column, (kind, right) in wanted.items():
        if not right:
            there = ", ".join(f"{name} ({type(feature).__name__})" for name, feature in features.items())
            raise UserError(
                f"{source.repository} keeps its {kind} in column {column!r}; {path} has {there}; use the "
                "hub's own files"
            )
