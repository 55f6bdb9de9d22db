"""Small data sets in the layouts of the true ones: real image files, right names, right splits.

``make(name, folder)`` writes one of them, so that ``--data-dir folder`` finds it. Pixels are noise around a
level that depends on the class, which is enough to learn from.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image

from fedscope.data.sets.dataset_catalogue import record
from tests.lazy import Lazy

datasets = Lazy("datasets")
WNIDS = tuple(f"n{1440764 + 137 * i:08d}" for i in range(1000))


def make(name: str, folder: Path, **sizes: int) -> Path:
    """Write the data set ``name`` under ``folder``, unless it is there, and return its own folder.

    ``sizes`` are the arguments of its function below; bundled data sets need nothing.
    """
    entry = record(name)
    home = folder / entry.folder
    if not entry.built_in and not home.exists():
        LAYOUTS[entry.folder](home, **sizes)
    return home


@cache
def encoded(label: int, seed: int, size: tuple[int, int], mode: str = "RGB", format: str = "PNG") -> bytes:
    """Return an image file of ``size`` (width, height)."""
    generator = np.random.default_rng([label, seed])
    level = np.random.default_rng(label).integers(40, 216, 3)
    pixels = np.clip(level + generator.normal(0, 30, (size[1], size[0], 3)), 0, 255).astype(np.uint8)
    buffer = BytesIO()
    Image.fromarray(pixels).convert(mode).save(buffer, format=format)
    return buffer.getvalue()


def write(path: Path, label: int, seed: int, size: tuple[int, int], mode: str = "RGB") -> None:
    """Write an image file in the format of its suffix."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(encoded(label, seed, size, mode, "JPEG" if "J" in path.suffix.upper() else "PNG"))


def shard(
    path: Path,
    labels: Sequence[int],
    names: Sequence[str],
    seed: int,
    size: tuple[int, int],
    columns: tuple[str, str] = ("image", "label"),
    mode: str = "RGB",
    domains: tuple[Sequence[int], Sequence[str]] | None = None,
    content: Sequence[Path] = (),
    repeated: int = 1000,
) -> None:
    """Write a parquet shard as the hub has them, of generated images or of the files ``content``.

    Generated images of a class are the same again after ``repeated`` rows: to encode an image takes longest.
    """
    image, label = columns
    files = [file.read_bytes() for file in content] or [
        encoded(c, 1000 * seed + i % repeated, size, mode) for i, c in enumerate(labels)
    ]
    features = {image: datasets.Image(), label: datasets.ClassLabel(names=list(names))}
    data: dict[str, object] = {
        image: [{"bytes": file, "path": None} for file in files],
        label: list(labels),
    }
    if domains:
        features["domain"], data["domain"] = datasets.ClassLabel(names=list(domains[1])), list(domains[0])
    path.parent.mkdir(parents=True, exist_ok=True)
    datasets.disable_progress_bars()
    table = datasets.Dataset.from_dict(data, features=datasets.Features(features))
    table.to_parquet(str(path), batch_size=7)  # several row groups


def cifar(home: Path, classes: int, columns: tuple[str, str], train: int, test: int) -> None:
    names = [f"class {i:03d}" for i in range(classes)]
    mixed = np.random.default_rng(0).permutation(classes * train) % classes
    for place, half in enumerate(np.array_split(mixed, 2)):
        shard(
            home / f"train-0000{place}-of-00002.parquet",
            half.tolist(),
            names,
            place,
            (32, 32),
            columns,
            repeated=20,
        )
    every = [*range(classes)] * test
    shard(home / "test-00000-of-00001.parquet", every, names, 2, (32, 32), columns)


def cifar10(home: Path, train: int = 20, test: int = 4) -> None:
    cifar(home, 10, ("img", "label"), train, test)


def cifar100(home: Path, train: int = 10, test: int = 1) -> None:
    cifar(home, 100, ("img", "fine_label"), train, test)


def tinyimagenet(home: Path, classes: int = 5, train: int = 8, test: int = 2) -> None:
    """The official layout; every tenth image is grey, as some of the true ones are."""
    lines = []
    for c, wnid in enumerate(WNIDS[:classes]):
        for i in range(train):
            mode = "L" if i % 10 == 9 else "RGB"
            write(home / "train" / wnid / "images" / f"{wnid}_{i}.JPEG", c, i, (64, 64), mode)
        (home / "train" / wnid / f"{wnid}_boxes.txt").write_text("")
    for i in range(classes * test):
        write(home / "val" / "images" / f"val_{i}.JPEG", i % classes, 10**6 + i, (64, 64))
        lines.append(f"val_{i}.JPEG\t{WNIDS[i % classes]}\t0\t0\t63\t63")
    (home / "val" / "val_annotations.txt").write_text("\n".join(lines) + "\n")
    (home / "wnids.txt").write_text("\n".join(WNIDS[:classes]) + "\n")


def imagenet200(home: Path, classes: int = 5, train: int = 8, test: int = 2, flat: int = 0) -> None:
    """Photographs of several sizes; with ``flat`` the validation images lie in one folder, with a list."""
    sizes = [(96, 64), (50, 90), (70, 70), (300, 80)]
    for c, wnid in enumerate(WNIDS[:classes]):
        for i in range(train):
            write(home / "train" / wnid / f"{wnid}_{i}.JPEG", c, i, sizes[i % len(sizes)])
    lines = ["ImageId,PredictionString"]
    for i in range(classes * test):
        wnid, name = WNIDS[i % classes], f"ILSVRC2012_val_{i + 1:08d}"
        place = home / "val" / f"{name}.JPEG" if flat else home / "val" / wnid / f"{name}.JPEG"
        write(place, i % classes, 10**6 + i, sizes[i % len(sizes)])
        lines.append(f"{name},{wnid} 1 2 30 40 {wnid} 5 6 30 40 ")
    if flat:
        (home / "LOC_val_solution.csv").write_text("\n".join(lines) + "\n")


def digits5(home: Path, per_class: int = 15) -> None:
    """Two domains in the hub's shards, the others as folders; each in its own size and mode."""
    sizes = {"mnist": (28, "L"), "svhn": (32, "RGB"), "usps": (16, "L"), "synthdigits": (32, "RGB"),
             "mnistm": (28, "RGB")}  # fmt: skip
    labels = [*range(10)] * per_class
    for domain in record("digits5").domains:
        side, mode = sizes[domain]
        if domain in ("mnist", "usps"):
            cut = 10 * (per_class * 4 // 5)
            for split, part, seed in (("train", labels[:cut], 0), ("test", labels[cut:], 1)):
                path = home / domain / f"{split}-00000-of-00001.parquet"
                shard(path, part, record("digits5").names, seed, (side, side), mode=mode)
        else:
            for i, c in enumerate(labels):
                write(home / domain / str(c) / f"{i:05d}.png", c, i, (side, side), mode)


def office_caltech(home: Path, per_class: int = 5) -> None:
    """One folder per class; amazon has the most images, as it does in truth, and dslr the fewest."""
    for place, domain in enumerate(record("office_caltech").domains):
        count = per_class + (2 if domain == "amazon" else 0)
        for c, name in enumerate(record("office_caltech").names):
            for i in range(count):
                write(home / domain / name / f"frame_{i:04d}.jpg", c, 100 * place + i, (40, 30))


def domainnet(home: Path, per_class: int = 8, test: int = 1) -> None:
    """The official lists, class by class, with classes besides the ten; quickdraw is grey."""
    names = sorted([*record("domainnet").names, "airplane", "zigzag"])
    for place, domain in enumerate(record("domainnet").domains):
        mode = "L" if domain == "quickdraw" else "RGB"
        lists: dict[str, list[str]] = {"train": [], "test": []}
        for c, name in enumerate(names):
            for i in range(per_class + place + test):
                path = f"{domain}/{name}/{domain}_{c:03d}_{i:06d}.jpg"
                write(home / path, c, 100 * place + i, (36, 48), mode)
                lists["test" if i >= per_class + place else "train"].append(f"{path} {c}")
        for split, found in lists.items():
            (home / f"{domain}_{split}.txt").write_text("\n".join(found) + "\n")


def images(home: Path) -> Iterable[Path]:
    """Return all image files of a data set, sorted."""
    return sorted(path for path in home.rglob("*") if path.suffix.lower() in (".jpeg", ".jpg", ".png"))


LAYOUTS: dict[str, Callable[..., None]] = {
    "cifar10": cifar10,
    "cifar100": cifar100,
    "tinyimagenet": tinyimagenet,
    "imagenet200": imagenet200,
    "digits5": digits5,
    "office_caltech": office_caltech,
    "domainnet": domainnet,
}
