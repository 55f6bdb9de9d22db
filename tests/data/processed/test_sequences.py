"""Windows of tokens, checked by a tokenizer that gives each letter its number."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from fedscope.data.processed.documents import Document
from fedscope.data.processed.sequences import windows
from fedscope.errors import UserError
from fedscope.task_loss import IGNORED

END = 0


class Letters(SimpleNamespace):
    eos_token_id: int | None = END

    def __call__(self, text: str, **_: object) -> dict[str, list[int]]:
        return {"input_ids": [ord(letter) - ord("a") + 1 for letter in text]}


def cut(
    *texts: str, length: int = 3, tokens: Any = None
) -> tuple[list[list[int]], list[list[int]], list[int]]:
    inputs, targets, owners = windows([Document(text) for text in texts], tokens or Letters(), length)
    assert inputs.dtype == targets.dtype == torch.int64
    return inputs.tolist(), targets.tolist(), owners.tolist()


def test_every_token_but_the_first_is_predicted_once_and_none_across_documents() -> None:
    inputs, targets, owners = cut("abcde", "fg")
    assert inputs == [[1, 2, 3], [4, 5, END], [6, 7, END]]
    assert targets == [[2, 3, 4], [5, END, IGNORED], [7, END, IGNORED]]
    assert owners == [0, 0, 1]


def test_a_document_that_fills_its_windows_has_no_padding() -> None:
    assert cut("abc") == ([[1, 2, 3]], [[2, 3, END]], [0])


def test_without_an_end_the_last_token_is_the_last_target() -> None:
    tokens = Letters(eos_token_id=None)
    assert cut("abcde", tokens=tokens, length=4) == ([[1, 2, 3, 4]], [[2, 3, 4, 5]], [0])


@pytest.mark.parametrize("length", [2, 3, 5, 50])
def test_the_length_changes_no_target(length: int) -> None:
    texts = ("thequickbrownfox", "a", "jumps")
    found = [token for row in cut(*texts, length=length)[1] for token in row if token != IGNORED]
    assert found == [token for text in texts for token in [*Letters()(text)["input_ids"][1:], END]]


def test_texts_without_a_target_are_refused() -> None:
    with pytest.raises(UserError, match="too short"):
        cut("a", tokens=Letters(eos_token_id=None))
