"""Splits of text or images that a pretrained network's own processor prepared."""

from collections.abc import Mapping, Sequence

import torch

from fedscope import pretrained
from fedscope.data.loading.datasets import Split
from fedscope.data.processed.documents import Document, documents
from fedscope.data.processed.pictures import pictures
from fedscope.data.processed.sequences import length_for, tokenizer, windows
from fedscope.errors import UserError

MOST_DOCUMENTS = 1000  # that are classes of their own, where none has a topic


def load(reference: str, test: str | None, model: str | None) -> tuple[Split, Split | None, tuple[str, ...]]:
    """Return the samples of ``text:PATH`` or ``images:PATH`` to train and to test on, and the classes' names.

    A class of text is its topic; without topics, of up to MOST_DOCUMENTS documents, its document; else all
    text is of one class.

    Args:
        reference: of the data; what they call a test split is what is evaluated on.
        test: other data to evaluate on, all of them.
        model: the network ``hf:NAME`` whose tokenizer or image processor prepares them.
    """
    kind = reference.partition(":")[0]
    if test and test.partition(":")[0] != kind:
        raise UserError(f"--test-data of {reference} are {kind}: files too, not {test!r}")
    if not (model and pretrained.is_network(model)):
        raise UserError(
            f"{reference} is prepared by a pretrained network's own processor: add --model hf:NAME"
        )
    return _text(reference, test, model) if kind == pretrained.TEXT else _images(reference, test, model)


def _text(reference: str, test: str | None, model: str) -> tuple[Split, Split | None, tuple[str, ...]]:
    path, asked = pretrained.files(reference)
    length = length_for(model, asked, reference)
    found = documents(path)
    if test:
        other = documents(pretrained.files(test)[0])
        found = {"train": found["train"], "test": [one for part in other.values() for one in part]}
    kinds, names = _classes(found)
    tokens = tokenizer(model, reference)
    splits = dict[str, Split]()
    for split, texts in found.items():
        inputs, targets, owners = windows(texts, tokens, length)
        splits[split] = Split(inputs, torch.tensor(kinds[split])[owners], targets=targets)
    return splits["train"], splits.get("test"), names


def _classes(found: Mapping[str, Sequence[Document]]) -> tuple[dict[str, list[int]], tuple[str, ...]]:
    topics = sorted({document.topic for texts in found.values() for document in texts})
    if topics != [""]:
        return {split: [topics.index(one.topic) for one in texts] for split, texts in found.items()}, tuple(
            topic or "none" for topic in topics
        )
    count = len(found["train"])
    if count > MOST_DOCUMENTS:
        return {split: [0] * len(texts) for split, texts in found.items()}, ("text",)
    # of a document to test on only its number is known, which is then no document of training
    kinds = {"train": list(range(count)), "test": [count] * len(found.get("test", ()))}
    return kinds, (*(f"document {number}" for number in range(count)), *(["other"] if kinds["test"] else []))


def _images(reference: str, test: str | None, model: str) -> tuple[Split, Split | None, tuple[str, ...]]:
    found, names = pictures(pretrained.files(reference)[0], model)
    if test:
        other, others = pictures(pretrained.files(test)[0], model)
        if others != names:
            raise UserError(f"{test} has the classes {', '.join(others)}, {reference} has {', '.join(names)}")
        parts = list(other.values())
        found = {
            "train": found["train"],
            "test": (torch.cat([x for x, _ in parts]), torch.cat([y for _, y in parts])),
        }
    splits = {split: Split(inputs, labels) for split, (inputs, labels) in found.items()}
    return splits["train"], splits.get("test"), names
