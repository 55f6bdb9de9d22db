from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fedscope.data.processed.pictures import _labels, pictures
from fedscope.errors import UserError
from tests.lazy import Lazy

datasets = Lazy("datasets")


def saved(path: Path, **names: list[str]) -> Path:
    """Write a data set of two black images, with the names of the classes of each split."""
    black = Image.fromarray(np.zeros((12, 12, 3), dtype=np.uint8))
    kind, features = datasets.ClassLabel, datasets.Features
    parts = {
        split: datasets.Dataset.from_dict(
            {"picture": [black, black], "kind": [0, 1]},
            features=features({"picture": datasets.Image(), "kind": kind(names=classes)}),
        )
        for split, classes in names.items()
    }
    datasets.DatasetDict(parts).save_to_disk(path)
    return path


def test_a_saved_data_set_has_one_list_of_classes(image_model: Path, tmp_path: Path) -> None:
    model, classes = f"hf:{image_model}", ["cat", "dog"]
    found, names = pictures(saved(tmp_path / "a", train=classes, test=classes), model)
    assert (names, list(found)) == (("cat", "dog"), ["train", "test"])
    assert found["test"][1].tolist() == [0, 1]
    with pytest.raises(UserError, match="train has the classes cat, dog, test has dog, cat; cast both"):
        pictures(saved(tmp_path / "b", train=classes, test=classes[::-1]), model)


@pytest.mark.parametrize("missing", [-1, None])
def test_an_image_without_a_class_is_refused_by_its_row(missing: int | None) -> None:
    assert _labels([1, 0], "here").tolist() == [1, 0]
    with pytest.raises(UserError, match="here: row 1 has no label"):
        _labels([1, missing, 0], "here")
