"""The papers' splits and constants, on small data sets in the true layouts."""

from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from fedscope.data.loading.datasets import Dataset
from fedscope.data.reading import split_rules as rules
from fedscope.data.reading.decoding import squared
from fedscope.data.reading.encoded_images import Files
from fedscope.data.reading.image_tables import ImageTable
from fedscope.data.sets.dataset_catalogue import DATASETS, load, pipeline, record
from tests.data.layouts import WNIDS, images, make, shard
from tests.lazy import Lazy

model_selection = Lazy("sklearn.model_selection")
ON_DISK = [name for name, entry in DATASETS.items() if not entry.built_in]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    for name in ON_DISK:
        make(name, folder, **({"train": 2} if name == "cifar100" else {}))
    return folder


@pytest.fixture(scope="module")
def loaded(root: Path) -> dict[str, Dataset]:
    return {name: load(name, root) for name in ON_DISK}


@pytest.mark.parametrize("name", ON_DISK)
def test_every_data_set_loads_from_its_layout(
    root: Path, loaded: dict[str, Dataset], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    dataset, entry = loaded[name], record(name)
    assert dataset.name == name
    assert dataset.train.images.shape[1:] == (entry.channels, entry.side, entry.side)
    assert dataset.train.labels.max() < len(dataset.classes)
    assert dataset.test.labels.unique().tolist() == [*range(len(dataset.classes))]
    assert dataset.domains == entry.domains
    for split in (dataset.train, dataset.test):
        assert (split.domains is None) == (not entry.domains)
        if split.domains is not None:
            assert split.domains.unique().tolist() == [*range(len(entry.domains))]
    monkeypatch.setattr("fedscope.data.loading.loading._build", lambda *_: pytest.fail("decoded twice"))
    assert load(name, root).fingerprint == dataset.fingerprint


def test_the_draw_of_imagenet200_begins_and_ends_as_published() -> None:
    """Their places in the sorted list: n01729322 n01514668 n04550184 n03109150 … n02708093 n02086646."""
    drawn = rules.drawn_classes(1000)
    assert drawn[[0, 1, 2, 3, -2, -1]].tolist() == [54, 7, 894, 512, 409, 156]
    assert len(set(drawn.tolist())) == 200


def test_imagenet200_draws_500_of_each_class_and_keeps_all_tests() -> None:
    names = tuple(f"class {i:04d}" for i in range(1000))

    def table(each: int) -> ImageTable:
        labels = np.repeat(np.arange(1000), each)
        return ImageTable((Path("shard"),), np.zeros_like(labels), np.arange(len(labels)), labels, names)

    chosen, note = rules.imagenet200({"": {"train": table(510), "test": table(50)}})
    state = np.random.RandomState(1993)
    classes = state.choice(1000, 200, replace=False)
    expected = {c: sorted(state.choice(510, 500, replace=False) + 510 * c) for c in classes}
    assert note == ""
    assert chosen["train"].classes == tuple(names[c] for c in sorted(classes))
    assert chosen["train"].row.tolist() == [row for c in sorted(classes) for row in expected[c]]
    assert np.bincount(chosen["test"].labels).tolist() == [50] * 200


def test_imagenet200_reads_a_flat_validation_folder(tmp_path: Path, loaded: dict[str, Dataset]) -> None:
    make("imagenet200", tmp_path, flat=1)
    flat, foldered = load("imagenet200", tmp_path).test, loaded["imagenet200"].test
    assert flat.labels.tolist() == [0, 1, 2, 3, 4] * 2
    chosen = pipeline("imagenet200")[1]
    order = torch.tensor([0, 5, 1, 6, 2, 7, 3, 8, 4, 9])
    assert torch.equal(chosen.test(flat.images, order), chosen.test(foldered.images))


def test_imagenet200_is_the_same_from_shards(tmp_path: Path, root: Path, loaded: dict[str, Dataset]) -> None:
    home = tmp_path / "imagenet200"
    for split, ours in (("train", "train"), ("validation", "val")):
        files = list(images(root / "imagenet200" / ours))
        names = [f"name {i}" for i in range(5)]
        labels = [WNIDS.index(path.parent.name) for path in files]
        shard(home / f"{split}-00000-of-00001.parquet", labels, names, 0, (1, 1), content=files)
    dataset, other = load("imagenet200", tmp_path), loaded["imagenet200"]
    assert isinstance(dataset.train.images, Files)
    assert isinstance(other.train.images, Files)
    assert dataset.train.images.digest == other.train.images.digest
    rows = torch.tensor([3, 30])
    chosen = pipeline("imagenet200")[1]
    assert torch.equal(chosen.test(dataset.train.images, rows), chosen.test(other.train.images, rows))


def test_tinyimagenets_validation_is_the_test(root: Path, loaded: dict[str, Dataset]) -> None:
    dataset = loaded["tinyimagenet"]
    assert dataset.classes == WNIDS[:5]
    assert (len(dataset.train), len(dataset.test)) == (40, 10)
    for row, name in ((0, "val_0"), (9, "val_9")):
        path = root / "tinyimagenet" / "val" / "images" / f"{name}.JPEG"
        expected = np.asarray(Image.open(path).convert("RGB")).transpose(2, 0, 1)
        assert any(np.array_equal(image, expected) for image in np.asarray(dataset.test.images))
        assert dataset.test.labels[row] in range(5)


def test_digits5_trains_on_a_tenth_of_usps_of_each_domain(loaded: dict[str, Dataset]) -> None:
    """150 images a domain: 120 are for training, a tenth of USPS's 120 is used, and 30 are the test."""
    dataset = loaded["digits5"]
    assert dataset.train.domains is not None
    assert dataset.train.domains.bincount().tolist() == [12] * 5
    assert dataset.test.domains is not None
    assert dataset.test.domains.bincount().tolist() == [30] * 5
    assert dataset.validation is None


def test_743_images_of_the_true_usps() -> None:
    """The published sizes: pooled, split and cut."""
    sizes = {"mnist": 70_000, "svhn": 99_289, "usps": 9_298, "synthdigits": 488_953, "mnistm": 70_000}
    names = tuple(map(str, range(10)))

    def table(count: int) -> dict[str, ImageTable]:
        labels = np.random.default_rng(count).integers(0, 10, count)
        every = ImageTable((Path("shard"),), np.zeros_like(labels), np.arange(count), labels, names)
        return {
            "train": every.take(np.arange(count - 1000)),
            "test": every.take(np.arange(count - 1000, count)),
        }

    chosen, _ = rules.digits5({domain: table(count) for domain, count in sizes.items()})
    assert chosen["train"].domains is not None
    assert np.bincount(chosen["train"].domains).tolist() == [743] * 5
    assert chosen["test"].domains is not None
    assert np.bincount(chosen["test"].domains).tolist() == [14_000, 19_858, 1_860, 97_791, 14_000]
    labels = np.random.default_rng(9_298).integers(0, 10, 9_298)
    halves = model_selection.StratifiedShuffleSplit(1, test_size=0.2, random_state=0)
    train, test = next(halves.split(labels[:, None], labels))
    assert chosen["train"].row[chosen["train"].domains == 2].tolist() == train[:743].tolist()
    assert chosen["test"].row[chosen["test"].domains == 2].tolist() == test.tolist()


def test_digits_are_scaled_and_grey_ones_get_three_channels(root: Path, loaded: dict[str, Dataset]) -> None:
    dataset = loaded["digits5"]
    assert dataset.test.domains is not None
    pixels = np.asarray(dataset.test.images)[dataset.test.domains.numpy() == 1]
    paths = list(images(root / "digits5" / "svhn"))
    small = [np.asarray(Image.open(p).resize((28, 28), Image.Resampling.BILINEAR)) for p in paths]
    assert (
        sum(any(np.array_equal(image.transpose(1, 2, 0), other) for other in small) for image in pixels) == 30
    )
    grey = np.asarray(dataset.test.images)[dataset.test.domains.numpy() == 0]
    assert np.array_equal(grey[:, 0], grey[:, 1])
    assert np.array_equal(grey[:, 0], grey[:, 2])


def test_domainnet_takes_five_percent_from_either_end(root: Path, loaded: dict[str, Dataset]) -> None:
    """Clipart has the shortest list, 80 images of the ten classes: 4 to train on, 4 to validate."""
    dataset = loaded["domainnet"]
    assert dataset.validation is not None
    for split, count in ((dataset.train, 4), (dataset.validation, 4), (dataset.test, 10)):
        assert split.domains is not None
        assert split.domains.bincount().tolist() == [count] * 6
    assert (
        len({image.tobytes() for s in (dataset.train, dataset.validation) for image in np.asarray(s.images)})
        == 48
    )
    assert dataset.fingerprint == loaded["domainnet_concept_shift"].fingerprint


def test_a_list_in_an_order_of_its_own_is_taken_as_it_is(tmp_path: Path) -> None:
    home = make("domainnet", tmp_path, per_class=4)
    lines = (home / "sketch_train.txt").read_text().splitlines()
    mixed = [lines[i] for i in np.random.default_rng(1).permutation(len(lines))]
    (home / "sketch_train.txt").write_text("\n".join(mixed))
    ours = [line.split()[0] for line in mixed if line.split("/")[1] in record("domainnet").names]
    dataset = load("domainnet", tmp_path)
    assert dataset.train.domains is not None
    got = np.asarray(dataset.train.images)[dataset.train.domains.numpy() == 5]
    for image, path in zip(got, ours, strict=False):
        expected = Image.open(home / path).resize((256, 256), Image.Resampling.BILINEAR)
        assert np.array_equal(image, np.asarray(expected).transpose(2, 0, 1))


def test_office_takes_half_and_two_fifths_of_the_shortest(loaded: dict[str, Dataset]) -> None:
    """Caltech, dslr and webcam have 50 images, 40 of them to train on: 20, and 16 to validate."""
    dataset = loaded["office_caltech"]
    assert dataset.validation is not None
    for split, counts in (
        (dataset.train, [20] * 4),
        (dataset.validation, [16] * 4),
        (dataset.test, [14, 10, 10, 10]),
    ):
        assert split.domains is not None
        assert split.domains.bincount().tolist() == counts


def test_domains_are_in_the_fingerprint(tmp_path: Path, loaded: dict[str, Dataset]) -> None:
    home = make("office_caltech", tmp_path)
    swapped = home / "webcam", home / "dslr"
    swapped[0].rename(home / "x")
    swapped[1].rename(swapped[0])
    (home / "x").rename(swapped[1])
    assert load("office_caltech", tmp_path).fingerprint != loaded["office_caltech"].fingerprint


def test_domainnet_from_the_hubs_shards(tmp_path: Path) -> None:
    names = sorted([*record("domainnet").names, "airplane"])
    labels = np.tile(np.arange(11), 24).tolist()
    domains = np.repeat(np.arange(6), 44).tolist()
    for split, seed in (("train", 0), ("test", 1)):
        shard(
            tmp_path / "domainnet" / f"{split}-00000-of-00001.parquet", labels, names, seed, (20, 20),
            domains=(domains, record("domainnet").domains),
        )  # fmt: skip
    dataset = load("domainnet", tmp_path)
    assert dataset.validation is not None
    assert dataset.train.domains is not None
    assert dataset.train.domains.bincount().tolist() == [2] * 6
    assert len(dataset.test) == 240


@pytest.mark.parametrize(
    ("name", "augmentation", "mean", "std"),
    [
        ("cifar100", "fedalign", (0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)),
        ("cifar100", "man", (0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761)),
        ("tinyimagenet", "man", (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
        ("imagenet200", "fedalign", (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
        ("digits5", "none", (0.5,) * 3, (0.5,) * 3),
        ("domainnet", "fedbn", (0.0,) * 3, (1.0,) * 3),
        ("office_caltech", "fedbn", (0.0,) * 3, (1.0,) * 3),
    ],
)
def test_the_constants_are_the_papers(
    name: str, augmentation: str, mean: tuple[float, ...], std: tuple[float, ...]
) -> None:
    chosen, found = pipeline(name)
    if name != "cifar100":
        assert chosen == augmentation
    found = pipeline(name, augmentation)[1]
    assert (found.mean, found.std) == (mean, std)


def test_an_image_with_four_channels_becomes_grey() -> None:
    buffer = BytesIO()
    Image.new("RGBA", (40, 30), (200, 20, 20, 128)).save(buffer, format="PNG")
    assert np.unique(squared(buffer.getvalue(), "here", 8)).tolist() == [round(0.299 * 200 + 0.701 * 20)]


def test_fedgloss_program_measures_each_cifar_by_the_constants_of_the_other() -> None:
    """Its ``get_ds`` has them swapped; its clients have them right."""
    trained = {name: pipeline(name, "fedgloss")[1] for name in ("cifar10", "cifar100")}
    for name, other in (("cifar10", "cifar100"), ("cifar100", "cifar10")):
        measured = pipeline(name, "fedgloss_measured")[1]
        assert (measured.mean, measured.std) == (trained[other].mean, trained[other].std)
        assert not measured.draws
    assert trained["cifar10"].std == (0.2470, 0.2434, 0.2616)
    assert pipeline("cifar10", "fedasam")[1].std == (0.2023, 0.1994, 0.2010)
    assert pipeline("cifar100", "fedasam")[1].std == (0.2675, 0.2565, 0.2761)
