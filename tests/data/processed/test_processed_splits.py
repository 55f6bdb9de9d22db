"""Data sets of text and images for a pretrained network: splits, classes, and what is held out."""

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer

from fedscope.data.loading.datasets import Split
from fedscope.data.sets import dataset_catalogue
from fedscope.errors import UserError
from fedscope.task_loss import IGNORED
from tests import tiny


def predicted(split: Split) -> int:
    assert split.targets is not None
    return int((split.targets != IGNORED).sum())


def test_text_is_cut_by_the_networks_own_tokenizer(language_model: Path, tmp_path: Path) -> None:
    corpus = tiny.write_corpus(tmp_path / "corpus.jsonl")
    found = dataset_catalogue.load(f"text:{corpus}:16", model=f"hf:{language_model}")
    tokens = AutoTokenizer.from_pretrained(language_model)
    whole = sum(len(tokens(one["text"])["input_ids"]) for one in tiny.documents())  # an end for a first token
    assert predicted(found.train) + predicted(found.test) == whole
    assert found.classes == ("sea", "town", "wood")
    assert isinstance(found.train.images, torch.Tensor)
    assert found.train.images.shape[1:] == (16,)
    share = len(found.test) / (len(found.train) + len(found.test))
    assert 0.18 < share <= 0.2
    assert "held out" in found.note
    row = next(row for row in range(len(found.train)) if found.train.labels[row] == 0)
    assert set(tokens.decode(found.train.images[row]).split()[1:-1]) <= {
        *tiny.TOPICS["sea"].split(),
        tiny.END,
    }


def test_documents_are_classes_where_there_are_no_topics(language_model: Path, tmp_path: Path) -> None:
    for number, one in enumerate(tiny.documents(4)):
        (tmp_path / f"{number}.txt").write_text(one["text"])
    (tmp_path / "more.jsonl").write_text(json.dumps({"text": "the gull"}))
    found = dataset_catalogue.load(f"text:{tmp_path}:4", model=f"hf:{language_model}")
    assert found.classes == tuple(f"document {number}" for number in range(5))
    assert set(found.train.labels.tolist()) == set(range(5))


def test_other_text_to_test_on(language_model: Path, tmp_path: Path) -> None:
    corpus, other = tiny.write_corpus(tmp_path / "a.jsonl"), tmp_path / "b.txt"
    other.write_text("the salt of a wave")
    model = f"hf:{language_model}"
    found = dataset_catalogue.load(f"text:{corpus}:16", None, f"text:{other}", model)
    assert (len(found.test), found.note) == (1, "")
    assert found.classes == ("none", "sea", "town", "wood")
    with pytest.raises(UserError, match="are text: files too"):
        dataset_catalogue.load(f"text:{corpus}:16", None, "mine:batches", model)
    for nothing in (None, "resnet8"):
        with pytest.raises(UserError, match="add --model hf:NAME"):
            dataset_catalogue.load(f"text:{corpus}", model=nothing)


def test_images_are_prepared_by_the_networks_own_processor(image_model: Path, tmp_path: Path) -> None:
    found = dataset_catalogue.load(
        f"images:{tiny.write_images(tmp_path / 'images')}", model=f"hf:{image_model}"
    )
    assert (found.classes, len(found.train), len(found.test)) == (("dark", "light"), 20, 10)
    assert isinstance(found.train.images, torch.Tensor)
    assert (found.train.images.shape[1:], found.train.images.dtype) == ((3, 8, 8), torch.float32)
    # the processor's x ↦ (x/255 − ½)/½ of noise about 50 and about 150
    means = [float(found.train.images[found.train.labels == kind].mean()) for kind in (0, 1)]
    assert means == pytest.approx([50 / 127.5 - 1, 150 / 127.5 - 1], abs=0.02)
    with pytest.raises(UserError, match="holds no images; it takes a folder of CLASS/FILE, or train/CLASS"):
        dataset_catalogue.load(f"images:{image_model}", model=f"hf:{image_model}")


def test_sequences_are_as_long_as_the_network_takes(language_model: Path, tmp_path: Path) -> None:
    corpus, model = tiny.write_corpus(tmp_path / "corpus.jsonl"), f"hf:{language_model}"
    longest, usual = (
        dataset_catalogue.load(f"text:{corpus}{length}", model=model).train.images
        for length in (f":{tiny.POSITIONS}", "")
    )
    assert isinstance(longest, torch.Tensor)
    assert isinstance(usual, torch.Tensor)
    assert torch.equal(longest, usual)
    with pytest.raises(UserError, match=rf"takes sequences of at most 32 tokens; give text:{corpus}:32 or"):
        dataset_catalogue.load(f"text:{corpus}:33", model=model)


def test_a_network_without_a_tokenizer_is_named(image_model: Path, tmp_path: Path) -> None:
    corpus = tiny.write_corpus(tmp_path / "corpus.jsonl")
    with pytest.raises(UserError, match="has no tokenizer that can be loaded"):
        dataset_catalogue.load(f"text:{corpus}", model=f"hf:{image_model}")
