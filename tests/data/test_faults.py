"""Bad input: one line that says what is wrong and where, and nothing left in the cache."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from fedscope.data.sets.dataset_catalogue import load, pipeline
from fedscope.errors import UserError
from fedscope.storage import cache_dir
from tests.data.layouts import make, shard, write
from tests.lazy import Lazy

datasets, pa, pq = Lazy("datasets"), Lazy("pyarrow"), Lazy("pyarrow.parquet")
Break = Callable[[Path], object]
SMALL = {"office_caltech": {"per_class": 5}, "domainnet": {"per_class": 2}, "digits5": {"per_class": 5}}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every layout once; the tests break copies."""
    return tmp_path_factory.mktemp("whole")


@pytest.fixture(autouse=True)
def _nothing_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("FEDSCOPE_CACHE", str(tmp_path / "cache"))
    yield
    assert not list(cache_dir().glob("*"))


def cut(pattern: str) -> Break:
    """Keep the first half of a file, as an interrupted download leaves it."""

    def change(home: Path) -> None:
        file = sorted(home.glob(pattern))[0]
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])

    return change


def text(name: str, content: bytes) -> Break:
    return lambda home: (home / name).write_bytes(content)


def without(pattern: str) -> Break:
    def change(home: Path) -> None:
        for path in list(home.glob(pattern)):
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    return change


def empty(folder: str) -> Break:
    def change(home: Path) -> None:
        shutil.rmtree(home / folder)
        (home / folder).mkdir()

    return change


def labelled(label: int) -> Break:
    """Overwrite a shard's labels, which the library that writes shards would refuse."""

    def change(home: Path) -> None:
        path = home / "test-00000-of-00001.parquet"
        old = pq.read_table(path)
        place = old.schema.get_field_index("label")
        labels = pa.array([label] * len(old), pa.int64())
        pq.write_table(old.set_column(place, old.schema.field(place), labels), path)

    return change


def one_class(home: Path) -> None:
    shard(home / "test-00000-of-00001.parquet", [0, 1], list("0123456789"), 0, (32, 32), ("img", "label"))


FAULTS: dict[str, tuple[str, Break, str]] = {
    "half a shard": ("cifar10", cut("test-*"), r"cannot read .*/test-00000-of-00001.parquet: .*again"),
    "a label below": ("cifar10", labelled(-1), r"test-00000-of-00001.parquet: labels run from -1 to -1"),
    "a label above": ("cifar10", labelled(10), "labels run from 10 to 10, but there are 10 classes"),
    "an empty class": ("cifar10", one_class, r"the test split has no image of class '2' in .*test-00000"),
    "no test": ("cifar10", without("test-*"), "no cifar10 under .*: expected cifar10/train-"),
    "half an image": ("tinyimagenet", cut("train/*/images/*_3.JPEG"), r"cannot decode .*_3.JPEG: .*again"),
    "another size": (
        "tinyimagenet",
        lambda home: write(home / "val/images/val_3.JPEG", 0, 0, (40, 30)),
        r"val_3.JPEG is 40×30, expected 64×64",
    ),
    "no annotations": ("tinyimagenet", without("val/*.txt"), "no folder per class, and no val_annot"),
    "annotated but absent": ("tinyimagenet", without("val/images/val_7.JPEG"), "lists val_7.JPEG, which is"),
    "an unlisted class": (
        "tinyimagenet", text("val/val_annotations.txt", b"val_0.JPEG\tn01440764\t0\n"), "no image of class",
    ),
    "an empty class folder": ("tinyimagenet", without("train/n01440764/images/*"), "class 'n01440764'"),
    "no image at all": (
        "imagenet200", text("train/n01440764/n01440764_0.JPEG", b"<html>"), "cannot decode .*_0.JPEG",
    ),
    "an empty domain": ("digits5", empty("svhn"), "the folder of domain 'svhn' is empty: .*digits5/svhn"),
    "no domain": ("office_caltech", without("dslr"), "no dslr of office_caltech here, and no copy on"),
    "no synthetic digits": ("digits5", without("synthdigits"), "no synthdigits of digits5 here, .*Lempitsky"),
    "a class of a domain": ("office_caltech", without("dslr/mug"), "no image of class 'mug' in .*dslr/mug"),
    "too few": ("office_caltech", lambda home: [
        without(f"dslr/{c.name}/frame_000[1-9].jpg")(home) for c in (home / "dslr").iterdir()
    ], "domain dslr is too small to be split"),
    "no lists": ("domainnet", without("*_train.txt"), "clipart has none; put the official"),
    "a binary list": ("domainnet", text("real_train.txt", b"\xff\xfe\x00"), "cannot read the list .*real_t"),
    "an empty list": ("domainnet", text("real_test.txt", b"\n"), "the list .*real_test.txt is empty"),
    "a list of other things": (
        "domainnet", text("real_train.txt", b"real/bird/x.jpg\n"), "real_train.txt, line 1, is not 'path",
    ),
    "a listed image": ("domainnet", without("real/bird/*_000000.jpg"), "lists .*_000000.jpg, which is not"),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_one_line_that_says_where(tmp_path: Path, whole: Path, fault: str) -> None:
    name, change, message = FAULTS[fault]
    shutil.copytree(make(name, whole, **SMALL.get(name, {})), tmp_path / name)
    change(tmp_path / name)
    with pytest.raises(UserError, match=message) as caught:
        load(name, tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["tinyimagenet", "digits5", "office_caltech", "domainnet"])
def test_a_wrong_folder_is_told_with_the_layout_and_the_source(tmp_path: Path, name: str) -> None:
    with pytest.raises(UserError, match=rf"no {name} under .*: expected {name}/.*(hub|images)"):
        load(name, tmp_path)


def test_another_data_set_is_not_taken_for_this_one(tmp_path: Path) -> None:
    make("cifar100", tmp_path, train=1, test=1)
    with pytest.raises(UserError, match=r"in column 'label'; .* has img .Image., fine_label .ClassLabel."):
        load("cifar10", tmp_path / "cifar100")
    with pytest.raises(UserError, match=r"'man'.*imagenet200.*fedalign"):
        pipeline("imagenet200", "man")


def test_labels_without_names_are_the_digits(tmp_path: Path) -> None:
    """A shard whose labels are plain integers, as some on the hub are."""
    home = make("digits5", tmp_path, per_class=5)
    for path in (home / "usps").iterdir():
        old = datasets.Dataset.from_parquet(str(path), cache_dir=str(tmp_path / "arrow"))
        old.cast_column("label", datasets.Value("int64")).to_parquet(str(path))
    dataset = load("digits5", tmp_path)
    assert dataset.test.domains is not None
    assert np.bincount(dataset.test.labels[dataset.test.domains == 2]).tolist() == [1] * 10
    shutil.rmtree(next(cache_dir().glob("digits5-*")))
