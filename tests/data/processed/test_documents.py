"""Documents from every kind of file and folder."""

import json
from pathlib import Path
from typing import Any

import pytest

from fedscope.data.processed.documents import Document, documents
from fedscope.errors import UserError
from tests.lazy import Lazy

datasets, pa, parquet = Lazy("datasets"), Lazy("pyarrow"), Lazy("pyarrow.parquet")
BOTH = [Document("salt", "sea"), Document("oak", "wood")]
ROWS = [{"text": one.text, "topic": one.topic} for one in BOTH]


def _features() -> Any:
    kinds = datasets.ClassLabel(names=["sea", "wood"])
    return datasets.Features({"text": datasets.Value("string"), "label": kinds})


def test_lines_and_rows_are_documents(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("\n".join(json.dumps(row) for row in ROWS) + "\n\n")
    parquet.write_table(pa.Table.from_pylist(ROWS), tmp_path / "a.parquet")
    assert documents(tmp_path / "a.jsonl") == documents(tmp_path / "a.parquet") == {"train": BOTH}


def test_a_text_is_one_document_and_its_folder_the_topic(tmp_path: Path) -> None:
    for topic, text in (("wood", "oak"), ("sea", "salt")):
        (tmp_path / topic / "deep").mkdir(parents=True)
        (tmp_path / topic / "deep" / "a.txt").write_text(text)
    (tmp_path / "z.txt").write_text("none")
    assert documents(tmp_path) == {"train": [*BOTH, Document("none")]}
    assert documents(tmp_path / "z.txt") == {"train": [Document("none")]}


def test_parts_are_called_train_and_test(tmp_path: Path) -> None:
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "a.txt").write_text("salt")
    (tmp_path / "test.jsonl").write_text(json.dumps({"text": "oak", "label": 3}))
    assert documents(tmp_path) == {"train": [Document("salt")], "test": [Document("oak", "3")]}


def test_a_saved_data_set_has_its_splits_and_the_names_of_its_classes(tmp_path: Path) -> None:
    features = _features()
    rows = [{"text": one.text, "label": number} for number, one in enumerate(BOTH)]
    part = datasets.Dataset.from_list(rows, features=features)
    part.save_to_disk(tmp_path / "one")
    datasets.DatasetDict({"train": part, "test": part.select([1])}).save_to_disk(tmp_path / "two")
    assert documents(tmp_path / "one") == {"train": BOTH}
    assert documents(tmp_path / "two") == {"train": BOTH, "test": BOTH[1:]}


def test_what_is_no_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "a"}\n{"words": "b"}\n')
    with pytest.raises(UserError, match="line 2 has no field 'text'"):
        documents(tmp_path / "a.jsonl")
    (tmp_path / "a.jsonl").write_text("{")
    with pytest.raises(UserError, match="cannot be read as text"):
        documents(tmp_path / "a.jsonl")
    (tmp_path / "b.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(UserError, match="cannot be read as text"):
        documents(tmp_path / "b.txt")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="no text for train"):
        documents(tmp_path / "empty")


def test_a_row_without_a_class_has_no_topic(tmp_path: Path) -> None:
    features = _features()
    rows = [{"text": "salt", "label": 0}, {"text": "oak", "label": -1}, {"text": "ash", "label": None}]
    datasets.Dataset.from_list(rows, features=features).save_to_disk(tmp_path / "one")
    assert [one.topic for one in documents(tmp_path / "one")["train"]] == ["sea", "", ""]
