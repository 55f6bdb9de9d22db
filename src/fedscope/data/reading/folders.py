"""Image folders in the layouts that data sets are published in, as tables."""

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from fedscope.data.reading.image_tables import ImageTable, check, of_classes, of_files
from fedscope.errors import UserError
from fedscope.storage import read_text

SUFFIXES = (".jpeg", ".jpg", ".png", ".webp", ".bmp", ".ppm", ".pgm")
ANNOTATION = re.compile(r"([^\s,]+)[\s,]+(n\d{8})\b")  # an image's name and its WordNet id, at a line's start
MOST_LIST = 1 << 30  # bytes of a list of images
LISTS = ("val_annotations.txt", "val_labels.txt", "LOC_val_solution.csv")

Choose = Callable[[Sequence[str]], Sequence[str]]


def class_names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir() if entry.is_dir())


def by_class(folder: Path, classes: Sequence[str], only: Iterable[str] | None = None) -> ImageTable:
    """Return images of ``folder/CLASS/*`` or ``folder/CLASS/images/*``, of ``classes`` or ``only`` some."""
    paths: list[Path] = []
    labels: list[int] = []
    for label, name in enumerate(classes):
        if only is not None and name not in only:
            continue
        found = images_of(folder / name)
        if not found:
            raise UserError(f"there is no image of class {name!r} in {folder / name}; fetch its files again")
        paths += found
        labels += [label] * len(found)
    return of_files(paths, labels, classes)


def images_of(folder: Path) -> list[Path]:
    for place in (folder, folder / "images"):
        if place.is_dir() and (found := [f for f in place.iterdir() if f.suffix.lower() in SUFFIXES]):
            return sorted(found)
    return []


def train_and_val(home: Path, choose: Choose) -> dict[str, ImageTable]:
    """Return the splits of ``train/CLASS/*`` and ``val``, of the classes that ``choose`` picks from all.

    ``val`` (or ``test``, where there is no ``val``) has a folder per class too, or all its images in one with
    a list of their classes beside them: Tiny-ImageNet's ``val/val_annotations.txt``, or for ImageNet
    ``val_labels.txt`` or Kaggle's ``LOC_val_solution.csv``, of lines that begin with image and WordNet id.
    """
    classes = class_names(home / "train")
    only = frozenset(choose(classes))
    train, val = by_class(home / "train", classes, only), home / "val"
    val = val if val.is_dir() else home / "test"
    if any((val / name).is_dir() for name in only):
        return {"train": train, "test": by_class(val, classes, only)}
    return {"train": train, "test": _annotated(home, val, classes, only)}


def _annotated(home: Path, val: Path, classes: Sequence[str], only: frozenset[str]) -> ImageTable:
    lists = [folder / name for folder in (val, home) for name in LISTS]
    file = next((path for path in lists if path.is_file()), None)
    if file is None:
        raise UserError(f"{val} has no folder per class, and no {', '.join(LISTS)}; add one of them")
    images = {path.stem: path for path in images_of(val)}
    places, paths, labels = {name: i for i, name in enumerate(classes)}, [], []
    for line in lines(file):
        match = ANNOTATION.match(line)
        if match and match[2] in only:
            stem = Path(match[1]).stem
            if stem not in images:
                raise UserError(f"{file} lists {match[1]}, which is not in {val}; fetch it again")
            paths.append(images[stem])
            labels.append(places[match[2]])
    if missing := only - {classes[label] for label in labels}:
        raise UserError(f"{file} lists no image of class {min(missing)!r}; fetch it again")
    return of_files(paths, labels, classes)


def of_domain(home: Path, domain: str, classes: Sequence[str]) -> dict[str, ImageTable] | None:
    """Return the splits of one domain by the layout it is in, or None if it is not there.

    Lists ``DOMAIN_train.txt`` and ``DOMAIN_test.txt`` in ``home``, of lines "path label"; else folders
    ``DOMAIN/train/CLASS`` and ``DOMAIN/test/CLASS``; else ``DOMAIN/CLASS``, one split called "all".
    """
    folder = home / domain
    lists = {split: home / f"{domain}_{split}.txt" for split in ("train", "test")}
    if all(file.is_file() for file in lists.values()):
        return {split: _listed(file, classes, f"{domain}'s {split} list") for split, file in lists.items()}
    if not folder.is_dir():
        return None
    if all((folder / split).is_dir() for split in ("train", "test")):
        return {split: by_class(folder / split, classes) for split in ("train", "test")}
    if not any(folder.iterdir()):
        raise UserError(f"the folder of domain {domain!r} is empty: {folder}; fetch its files again")
    return {"all": by_class(folder, classes)}


def _listed(file: Path, classes: Sequence[str], what: str) -> ImageTable:
    paths, labels = [], []
    names: dict[str, int] = {}
    for number, line in enumerate(lines(file), 1):
        path = Path(line.rsplit(maxsplit=1)[0])
        if not re.search(r"\s\d+$", line) or len(path.parts) < 2:
            raise UserError(f"{file}, line {number}, is not 'path label' but {line[:60]!r}; fetch it again")
        paths.append(file.parent / path)
        labels.append(names.setdefault(path.parts[-2], len(names)))
    table = of_classes(of_files(paths, labels, tuple(names)), classes)
    absent = next((table.files[i] for i in table.file.tolist() if not table.files[i].is_file()), None)
    if absent:
        raise UserError(f"{file} lists {absent}, which is not there; fetch it again")
    return check(table, what)


def lines(file: Path) -> list[str]:
    try:
        found = [line.strip() for line in read_text(file, MOST_LIST).splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read the list {file}: {error}; fetch it again") from error
    if not found:
        raise UserError(f"the list {file} is empty; fetch it again")
    return found
