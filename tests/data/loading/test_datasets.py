from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from fedscope.data.loading.datasets import Split
from fedscope.data.sets.dataset_catalogue import load, pipeline
from fedscope.errors import UserError
from fedscope.storage import cache_dir
from tests.lazy import Lazy

datasets = Lazy("datasets")
NAMES = [f"class {i}" for i in range(10)]


def make_shard(path: Path, rows: int, seed: int, labels: range = range(10)) -> np.ndarray:
    """Write a small shard in the hub's true layout (img, label); return its images."""
    generator = np.random.default_rng(seed)
    pixels = generator.integers(0, 256, (rows, 32, 32, 3), dtype=np.uint8)
    images = []
    for pixel in pixels:
        buffer = BytesIO()
        Image.fromarray(pixel).save(buffer, format="PNG")
        images.append({"bytes": buffer.getvalue(), "path": None})
    features = datasets.Features({"img": datasets.Image(), "label": datasets.ClassLabel(names=NAMES)})
    content = {"img": images, "label": [labels[i % len(labels)] for i in range(rows)]}
    path.parent.mkdir(parents=True, exist_ok=True)
    datasets.Dataset.from_dict(content, features=features).to_parquet(str(path))
    return pixels


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_shard(tmp_path / "cifar10" / "train-00000-of-00002.parquet", 20, seed=0)
    make_shard(tmp_path / "cifar10" / "train-00001-of-00002.parquet", 20, seed=1)
    make_shard(tmp_path / "cifar10" / "test-00000-of-00001.parquet", 10, seed=2)
    return tmp_path


def test_digits_are_split_once_and_for_all() -> None:
    dataset = load("digits")
    assert dataset.train.images.shape == (1437, 1, 8, 8)
    assert dataset.test.images.shape == (360, 1, 8, 8)
    assert isinstance(dataset.train.images, torch.Tensor)
    assert dataset.train.images.dtype == torch.uint8
    assert dataset.train.images.max() == 255
    assert dataset.train.labels.bincount().tolist() == [142, 146, 142, 146, 145, 145, 145, 143, 139, 144]
    assert dataset.fingerprint == load("digits").fingerprint
    assert dataset.fingerprint.startswith("b63efdd1")
    train = pipeline("digits")[1].test(dataset.train.images)
    assert train.mean().item() == pytest.approx(0, abs=1e-3)
    assert train.std().item() == pytest.approx(1, abs=1e-3)


def test_a_split_moves_as_a_whole() -> None:
    rows = torch.arange(3)
    moved = Split(rows, rows, domains=rows, clients=rows, targets=rows).to("meta")
    parts = [part for part in vars(moved).values() if part is not None]
    assert [part.device.type for part in parts] == ["meta"] * 5


@pytest.mark.parametrize("below", ["", "cifar10"])
def test_parquet_files_are_read_pixel_by_pixel(folder: Path, below: str) -> None:
    dataset = load("cifar10", folder / below)
    expected = make_shard(folder / "other" / "x.parquet", 20, seed=1).transpose(0, 3, 1, 2)
    assert np.array_equal(np.asarray(dataset.train.images)[20:], expected)
    assert dataset.train.labels.tolist() == [*range(10)] * 4
    assert len(dataset.test) == 10
    assert dataset.classes == tuple(NAMES)
    assert dataset.note == ""


def test_the_cache_is_keyed_by_content(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = load("cifar10", folder)
    monkeypatch.setattr("fedscope.data.loading.loading._build", lambda *_: pytest.fail("decoded twice"))
    assert load("cifar10", folder).fingerprint == before.fingerprint
    monkeypatch.undo()
    make_shard(folder / "cifar10" / "test-00000-of-00001.parquet", 10, seed=5)
    assert load("cifar10", folder).fingerprint != before.fingerprint


def test_a_missing_shard_is_told(folder: Path) -> None:
    (folder / "cifar10" / "train-00001-of-00002.parquet").unlink()
    dataset = load("cifar10", folder)
    assert len(dataset.train) == 20
    assert dataset.note == "train: 1 of 2 shards are there"


def test_a_broken_shard_poisons_no_cache(folder: Path) -> None:
    shard = folder / "cifar10" / "train-00001-of-00002.parquet"
    whole = shard.read_bytes()
    shard.write_bytes(whole[: len(whole) // 2])
    before = set(cache_dir().iterdir()) if cache_dir().exists() else set()
    with pytest.raises(UserError, match=r"cannot read .*cifar10/train-00001-of-00002.parquet"):
        load("cifar10", folder)
    assert set(cache_dir().iterdir()) == before
    shard.write_bytes(whole)
    assert len(load("cifar10", folder).train) == 40


def test_what_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="data folder"):
        load("cifar10", tmp_path / "nowhere")
    with pytest.raises(UserError, match=r"expected cifar10/train-\*\.parquet"):
        load("cifar10", tmp_path)
    with pytest.raises(UserError, match="digits"):
        load("mnist")
    with pytest.raises(UserError, match=r"'crop'.*digits"):
        pipeline("digits", "crop")


@pytest.mark.parametrize(
    ("forbidden", "why"),
    [(False, r"no answer from https://\S+ \(no route\)"), (True, "HF_HUB_OFFLINE forbids it")],
)
def test_without_files_or_network_the_way_out_is_told(
    monkeypatch: pytest.MonkeyPatch, forbidden: bool, why: str
) -> None:
    """After one question: the hub's client would ask six times."""
    asked = []

    def head(*_: object, **__: object) -> None:
        asked.append(1)
        raise ConnectionError("no route")

    monkeypatch.delenv("FEDSCOPE_DATA", raising=False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", forbidden)
    monkeypatch.setattr("huggingface_hub.utils.get_session", lambda: SimpleNamespace(head=head))
    monkeypatch.setattr(datasets, "load_dataset_builder", lambda *_: pytest.fail("asked the hub again"))
    mend = "name a folder that has its files with --data-dir or FEDSCOPE_DATA, or try again with a network"
    with pytest.raises(UserError, match=f"cannot fetch uoft-cs/cifar100 from the hub: {why}; {mend}"):
        load("cifar100")
    assert len(asked) == (not forbidden)


def test_the_hubs_copy_is_fetched_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A repository of the hub and a folder of its files are read by the same builder."""
    fetched, builder = [], datasets.load_dataset_builder

    def hub(repository: str, config: str | None) -> Any:
        fetched.append(repository)
        return builder(str(folder / "cifar10"), config, cache_dir=str(folder / "arrow"))

    monkeypatch.delenv("FEDSCOPE_DATA", raising=False)
    monkeypatch.setattr("datasets.load_dataset_builder", hub)
    monkeypatch.setattr("fedscope.data.reading.shards.check_reachable", lambda _: None)
    assert len(load("cifar10").train) == 40
    dataset = load("cifar10")
    assert torch.equal(dataset.train.images, load("cifar10", folder).train.images)  # type: ignore[arg-type]
    assert fetched == ["uoft-cs/cifar10"]


def test_other_columns_are_named(folder: Path) -> None:
    for path in (folder / "cifar10").iterdir():
        plain = datasets.Dataset.from_dict({"img": [1, 2], "label": [0, 1]})
        plain.to_parquet(str(path))
    with pytest.raises(
        UserError, match=r"keeps its Image in column 'img'; .*/train-00000-of-00002.parquet has img \(Value\)"
    ):
        load("cifar10", folder)


@pytest.mark.slow
def test_the_real_cifar100(real_data: Path) -> None:
    dataset = load("cifar100", real_data)
    assert dataset.train.images.shape == (50000, 3, 32, 32)
    assert dataset.train.labels.bincount().unique().tolist() == [500]
    assert dataset.test.labels.bincount().unique().tolist() == [100]
    assert isinstance(dataset.train.images, torch.Tensor)
    means = [dataset.train.images[:, c].double().mean().item() / 255 for c in range(3)]
    assert means == pytest.approx([0.50708, 0.48655, 0.44092], abs=1e-5)
    assert (dataset.classes[0], dataset.classes[-1]) == ("apple", "worm")
