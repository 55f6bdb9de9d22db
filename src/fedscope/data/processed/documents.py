"""Documents of text, with their topics where they have any, from files, folders and Hugging Face data sets.

A ``.txt`` file is one document, a line of ``.jsonl`` or a row of ``.parquet`` is one: its field ``text``, and
its topic in ``label`` or ``topic``. The topic of a file in ``FOLDER/TOPIC/`` is that folder's name.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedscope.errors import UserError
from fedscope.extras import needed
from fedscope.storage import open_regular

KINDS = (".txt", ".jsonl", ".parquet")
SPLITS = ("train", "test")
_TOPICS = ("topic", "label")
_SAVED = ("dataset_dict.json", "state.json")  # by save_to_disk


@dataclass(frozen=True)
class Document:
    """A text, and what it is about; "" where that is not said."""

    text: str
    topic: str = ""


def documents(path: Path) -> dict[str, list[Document]]:
    """Return the documents of a file or folder by split: ``train``, and ``test`` where there is such a part.

    Parts are ``train.KIND`` and ``test.KIND``, folders of these names, or the splits of a data set that
    ``save_to_disk`` wrote.
    """
    if any((path / name).is_file() for name in _SAVED):
        found = _saved(path)
    else:
        parts = {split: place for split in SPLITS if (place := _part(path, split))}
        if "train" not in parts:
            parts = {"train": path}
        found = {split: list(_below(place)) for split, place in parts.items()}
    for split, texts in found.items():
        if not any(document.text.strip() for document in texts):
            raise UserError(f"{path}: no text for {split}; there may be {', '.join(KINDS)} files")
    return found


def _part(path: Path, split: str) -> Path | None:
    candidates = (path / split, *(path / f"{split}{kind}" for kind in KINDS))
    return next((place for place in candidates if path.is_dir() and place.exists()), None)


def _below(path: Path) -> Iterator[Document]:
    if path.is_file():
        yield from _file(path, "")
        return
    for file in sorted(path.rglob("*")):
        if file.suffix in KINDS and file.is_file():
            yield from _file(file, "" if file.parent == path else file.relative_to(path).parts[0])


def _file(path: Path, topic: str) -> Iterator[Document]:
    try:
        if path.suffix == ".parquet":
            with needed("train", str(path)):
                from pyarrow import parquet
            rows = parquet.read_table(path).to_pylist()
            yield from (_row(row, topic, f"{path}, row {at}") for at, row in enumerate(rows))
            return
        with open_regular(path) as handle:
            text = handle.read().decode("utf-8")
        if path.suffix != ".jsonl":
            yield Document(text, topic)
            return
        for at, line in enumerate(text.split("\n"), 1):
            if line.strip():
                yield _row(json.loads(line), topic, f"{path}, line {at}")
    except (OSError, ValueError) as error:
        raise UserError(
            f"{path} cannot be read as text ({error}); it may be .txt, .jsonl or .parquet"
        ) from error


def _saved(path: Path) -> dict[str, list[Document]]:
    with needed("train", str(path)):
        from datasets import load_from_disk
    try:
        loaded: Any = load_from_disk(str(path))
    except Exception as error:  # whatever it makes of a damaged folder
        raise UserError(f"{path} is no data set of save_to_disk: {error}") from error
    parts = loaded if isinstance(loaded, Mapping) else {"train": loaded}
    if "train" not in parts:
        raise UserError(f"{path} has the splits {', '.join(parts)}; one must be train")
    return {
        split: [_row(_named(part, row), "", f"{path}, {split}, row {at}") for at, row in enumerate(part)]
        for split, part in parts.items()
        if split in SPLITS
    }


def _named(part: Any, row: Mapping[str, Any]) -> dict[str, Any]:
    names = {key: getattr(part.features[key], "names", None) for key in _TOPICS if key in row}
    found = {key: (known, row[key]) for key, known in names.items() if known}
    return {**row, **{key: None if _unlabelled(own) else known[own] for key, (known, own) in found.items()}}


def _unlabelled(number: int | None) -> bool:
    """Say whether a class is missing: -1 is the mark of a row without one."""
    return number is None or number < 0


def _row(row: object, topic: str, where: str) -> Document:
    if not isinstance(row, Mapping) or not isinstance(row.get("text"), str):
        raise UserError(f"{where} has no field 'text' with a text")
    said = next((row[key] for key in _TOPICS if row.get(key) is not None), topic)
    return Document(row["text"], str(said))
