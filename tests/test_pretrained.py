"""References to pretrained networks and to data files, and what is hashed of them."""

import shutil
from pathlib import Path

import pytest

from fedscope import own, pretrained
from fedscope.data.sets import dataset_catalogue
from fedscope.errors import UserError
from fedscope.models.pretrained import networks
from tests import tiny


def test_a_reference_says_what_it_is_of() -> None:
    assert pretrained.is_network("hf:gpt2")
    assert pretrained.is_data("text:a.txt")
    assert pretrained.is_data("images:a")
    assert not any(map(pretrained.is_content, ("mine:net", "digits", "hfx:a")))
    with pytest.raises(UserError, match="hf:FOLDER"):
        pretrained.name("hf:")


def test_the_length_of_a_sequence_stands_behind_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.txt").write_text("a")
    assert pretrained.files("text:a.txt") == (Path("a.txt"), None)
    assert pretrained.files("text:a.txt:32") == (Path("a.txt"), 32)
    for reference, reason in (
        ("text:a.txt:1", "a number of tokens from 2 up"),
        ("text:a.txt:long", "not 'long'"),
        ("text:b.txt", "no file or folder 'b.txt'"),
        ("images:", "no file or folder ''"),
    ):
        with pytest.raises(UserError, match=reason):
            pretrained.files(reference)


def test_a_network_is_hashed_by_its_weights_and_not_by_its_place(
    language_model: Path, tmp_path: Path
) -> None:
    copied = shutil.copytree(language_model, tmp_path / "copied")
    first = own.digest(f"hf:{language_model}")
    assert own.digest(f"hf:{copied}") == first
    (copied / "README.md").write_text("notes")
    assert own.digest(f"hf:{copied}") == first
    weights = bytearray((copied / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (copied / "model.safetensors").write_bytes(weights)
    assert own.digest(f"hf:{copied}") != first
    assert own.digest("hf:not/there") == ""


def test_data_are_hashed_by_all_of_their_files(tmp_path: Path) -> None:
    (tmp_path / "texts" / "sea").mkdir(parents=True)
    (tmp_path / "texts" / "sea" / "a.txt").write_text("wave")
    (tmp_path / "b.txt").write_text("gull")
    both = f"text:{tmp_path / 'texts'}", f"text:{tmp_path / 'b.txt'}"
    before = own.digest(*both)
    assert before
    (tmp_path / "texts" / "sea" / "a.txt").write_text("tide")
    assert own.digest(*both) not in ("", before)
    assert own.digest(both[0], "text:gone") == ""


def test_content_that_has_changed_is_used_where_it_is_named(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("wave")
    reference = (f"text:{file}",)
    known = own.digest(*reference)
    assert own.vouched(reference, known, "--data", own.DATASETS, named=False) == ""
    file.write_text("gull")
    with pytest.raises(UserError, match=r"has changed since training .*name it: --data text:"):
        own.vouched(reference, known, "--data", own.DATASETS, named=False)
    assert "has changed" in own.vouched(reference, known, "--data", own.DATASETS, named=True)
    file.unlink()
    with pytest.raises(UserError, match="not to be found"):
        own.vouched(reference, known, "--data", own.DATASETS, named=True)


def test_data_of_another_name_are_known_by_their_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.txt").write_text("wave")
    known = own.digest("text:a.txt:8")
    Path("a.txt").rename("b.txt")
    assert own.digest("text:b.txt:8") not in ("", known)  # the name is part of it
    assert pretrained.is_copy("text:b.txt:8", "text:a.txt:8", known)
    assert pretrained.is_copy("text:b.txt:8", "text:a.txt:8", "")  # there is nothing to compare with
    assert not pretrained.is_copy("text:b.txt:9", "text:a.txt:8", known)
    assert not pretrained.is_copy("images:b.txt", "text:a.txt", "")
    for named in (False, True):
        with pytest.raises(UserError, match=r"name its new place: --data text:b\.txt:8$"):
            own.vouched(("text:a.txt:8",), known, "--data", own.DATASETS, named=named)
    Path("b.txt").write_text("gull")
    assert not pretrained.is_copy("text:b.txt:8", "text:a.txt:8", known)
    with pytest.raises(UserError, match=r"name its new place: --data text:PATH:8$"):
        own.vouched(("text:a.txt:8",), known, "--data", own.DATASETS, named=False)
    Path("texts").mkdir()
    Path("texts/c.txt").write_text("wave")
    folder = own.digest("text:texts")
    Path("texts").rename("moved")
    assert pretrained.is_copy("text:moved", "text:texts", folder)


def test_the_hub_is_asked_once_and_what_beside_may_be_meant_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, language_model: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    asked = list[str]()

    def unreachable(url: str, **_: object) -> None:
        asked.append(url)
        raise OSError("no way to the hub")

    monkeypatch.setattr("huggingface_hub.get_hf_file_metadata", unreachable)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    (tmp_path / "base").symlink_to(language_model)
    corpus = tiny.write_corpus(tmp_path / "corpus.jsonl")
    for build in (
        lambda: networks.load("hf:bsae"),
        lambda: dataset_catalogue.load(f"text:{corpus}:16", model="hf:bsae"),
        lambda: dataset_catalogue.load(f"images:{tiny.write_images(tmp_path / 'images')}", model="hf:bsae"),
    ):
        asked.clear()
        with pytest.raises(UserError, match=r"no such folder here, .*--model hf:FOLDER; did you mean 'base'"):
            build()
        assert len(asked) == 1
    asked.clear()
    with pytest.raises(UserError, match="no such folder here, and the hub has none"):
        networks.load("hf:./gone")
    pretrained.sought("hf:base")
    assert asked == []


def test_a_network_that_is_not_here_is_fetched_only_if_it_is_named() -> None:
    with pytest.raises(UserError, match="fetch it by naming it: --model hf:some/network"):
        own.vouched(("hf:some/network",), "0" * 64, "--model", own.MODELS, named=False)
    assert own.vouched(("hf:some/network",), "0" * 64, "--model", own.MODELS, named=True) == ""
