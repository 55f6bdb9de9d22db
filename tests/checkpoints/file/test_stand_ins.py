"""What other programs pickle beside weights is made of stand-ins: nothing is imported, made or called."""

import datetime
import enum
from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from fedscope.checkpoints.file.checkpoint import load_checkpoint, read_content
from fedscope.checkpoints.file.stand_ins import Array, Value, hides_tensors
from fedscope.errors import UserError

MADE: list[str] = []


class Loud:
    """Says when it is made or filled."""

    def __new__(cls) -> "Loud":
        MADE.append("made")
        return super().__new__(cls)

    def __setstate__(self, state: object) -> None:
        MADE.append("filled")


class Shade(enum.Enum):
    DARK = 1


def kept(content: object, folder: Path) -> object:
    torch.save({"": content}, folder / "w.pt")
    found = read_content(folder / "w.pt", foreign=True)
    assert isinstance(found, dict)
    return found[""]


def test_an_object_is_neither_made_nor_filled(tmp_path: Path) -> None:
    loud = Loud()
    loud.name = "x"  # type: ignore[attr-defined]
    MADE.clear()
    assert kept(loud, tmp_path) != loud
    assert MADE == []
    torch.load(tmp_path / "w.pt", weights_only=False)
    assert MADE == ["made", "filled"]  # they could have been


@pytest.mark.parametrize("content", [Shade.DARK, np.errstate, Namespace(shade=Shade.DARK)])
def test_a_function_is_not_called(content: object, tmp_path: Path) -> None:
    if content is np.errstate:
        assert kept(content, tmp_path) is not content
        return
    with pytest.raises(UserError, match=r"asks to run code \(.*Shade\)"):
        kept(content, tmp_path)


def test_values_are_lists_of_their_parts_and_may_be_keys(tmp_path: Path) -> None:
    day = datetime.date(2026, 1, 1)
    found = kept({day: Path("a/b"), np.float64(2): Path("c")}, tmp_path)
    assert isinstance(found, dict)
    assert all(type(part) is Value for part in (*found.keys(), *found.values()))
    assert repr(Value(1)) == "Value"


SIX = np.arange(6.0).reshape(2, 3)


@pytest.mark.parametrize(
    "array",
    [
        SIX, np.asfortranarray(SIX), np.array(3, dtype=">i4"), np.array([True, False]), np.ones(2) * 1j,
        np.zeros((0, 2), dtype=np.float16), np.arange(3, dtype=np.uint8),
    ],
)  # fmt: skip
def test_arrays_are_their_numbers(array: NDArray[np.generic], tmp_path: Path) -> None:
    found = kept(array, tmp_path)
    assert isinstance(found, Array)
    assert found.tensor is not None
    assert np.array_equal(found.tensor.numpy(), array)
    assert found.tensor.shape == array.shape


@pytest.mark.parametrize("array", [np.array(["a"]), np.array([{}], dtype=object), np.zeros(2, dtype="i4,f8")])
def test_arrays_of_anything_else_are_none(array: object, tmp_path: Path) -> None:
    found = kept(array, tmp_path)
    assert isinstance(found, Array)
    assert found.tensor is None


@pytest.mark.parametrize("shape", [(3,), (-1,), (2, -1), ("a",), 2])
def test_an_array_whose_shape_lies_is_refused(shape: object) -> None:
    lying = Array((1, shape, ["f8", (3, "<")], False, bytes(16)))
    with pytest.raises((TypeError, ValueError)):
        _ = lying.tensor


def test_tensors_are_not_hidden_in_objects(tmp_path: Path) -> None:
    assert not hides_tensors({"a": [torch.ones(1), Value(3)]})
    for content in (Namespace(w=torch.ones(1)), [Namespace(deep={"w": [np.ones(2)]})]):
        with pytest.raises(UserError, match=r"\(argparse.Namespace\)"):
            kept(content, tmp_path)


def test_files_of_fedscope_have_no_stand_ins(tmp_path: Path) -> None:
    torch.save({"format": "fedscope/checkpoint/2", "info": np.float64(1)}, tmp_path / "w.pt")
    with pytest.raises(UserError, match="asks to run code"):
        load_checkpoint(tmp_path / "w.pt")
    torch.save({"format": "pt", "state": {}}, tmp_path / "w.pt")
    with pytest.raises(UserError, match="is not a fedscope checkpoint; register it"):
        load_checkpoint(tmp_path / "w.pt")
