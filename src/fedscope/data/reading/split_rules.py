"""Which images make up a data set's splits: the rules of the papers, on labels alone.

Each takes the tables of a source by domain ("" where there are none) and split, and returns those of the data
set by split, with a note on what differs from the published one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from fedscope.data.reading.image_tables import ImageTable, Rows, by_domain, check, of_classes, pooled
from fedscope.errors import UserError
from fedscope.extras import needed
from fedscope.streams import numpy_stream

Tables = Mapping[str, Mapping[str, ImageTable]]
Chosen = tuple[dict[str, ImageTable], str]

IMAGENET_SEED, IMAGENET_CLASSES, IMAGENET_IMAGES = 1993, 200, 500


def as_published(tables: Tables) -> Chosen:
    return {split: check(table, f"the {split} split") for split, table in tables[""].items()}, ""


def drawn_classes(count: int) -> Rows:
    """Return ImageNet-200's classes as places in the sorted list of ``count``, in the order of the draw.

    ``numpy.random.seed(1993)`` and a draw of 200 without replacement (Mendieta et al. 2022, published code).
    """
    return _draw_classes(np.random.RandomState(IMAGENET_SEED), count)


def _draw_classes(state: np.random.RandomState, count: int) -> Rows:
    return state.choice(count, min(IMAGENET_CLASSES, count), replace=False).astype(np.int64)


def imagenet200(tables: Tables) -> Chosen:
    """Draw 200 classes, then from each, in the order of the draw, 500 training images in the order of names.

    The published code draws from the order in which its file system lists a class, which is not known; so the
    classes are its own and the images are others. All test images of the classes are kept.
    """
    train, test = tables[""]["train"], tables[""]["test"]
    state = np.random.RandomState(IMAGENET_SEED)
    classes = _draw_classes(state, len(train.classes))
    kept = []
    for place in classes:
        rows = np.flatnonzero(train.labels == place)
        kept.append(rows[state.choice(len(rows), min(IMAGENET_IMAGES, len(rows)), replace=False)])
    names = [train.classes[place] for place in np.sort(classes)]
    note = "" if len(train.classes) == 1000 else f"{len(train.classes)} of 1000 class folders are there"
    chosen = {
        "train": of_classes(train.take(np.sort(np.concatenate(kept))), names),
        "test": of_classes(test, names),
    }
    return {split: check(table, f"the {split} split") for split, table in chosen.items()}, note


def digits5(tables: Tables) -> Chosen:
    """Pool each domain, split it 80/20 stratified by label, and train on the first tenth of USPS's size.

    That is 743 images of each domain, all test images of each, and no validation (Li et al. 2021, FedBN, with
    ``percent=0.1``). The draw is scikit-learn's with ``random_state=0``.
    """
    train, test = {}, {}
    for domain, splits in tables.items():
        every = check(pooled(list(splits.values())), f"domain {domain}")
        train[domain], test[domain] = (every.take(rows) for rows in _stratified(every, domain))
    size = max(1, len(train["usps"]) // 10)
    pieces = [table.take(np.arange(min(size, len(table)))) for table in train.values()]
    return {"train": by_domain(pieces), "test": by_domain(list(test.values()))}, ""


def domainnet(tables: Tables) -> Chosen:
    """Train on the first 5 % of the shortest training list's length, validate on as many from the end.

    Per domain, of the lists of the ten classes (Li et al. 2021, FedBN); the test lists are kept whole.
    """
    for domain, splits in tables.items():
        if "train" not in splits:
            raise UserError(
                f"DomainNet's split is in lists, and {domain} has none; put the official "
                f"{domain}_train.txt and {domain}_test.txt beside the folder {domain}"
            )
    train = {domain: _mixed(splits["train"], domain) for domain, splits in tables.items()}
    shortest = min(map(len, train.values()))
    return _ends(train, {d: s["test"] for d, s in tables.items()}, shortest // 20, shortest // 20), ""


def office_caltech(tables: Tables) -> Chosen:
    """Train on the first half of the shortest training list's length, validate on 40 % from the end.

    (Li et al. 2021, FedBN.) Where a domain has no lists, its training list is 80 % of its images, stratified
    by label, and the others are its test list.
    """
    train, test, note = {}, {}, ""
    for domain, splits in tables.items():
        if "train" in splits:
            train[domain], test[domain] = _mixed(splits["train"], domain), splits["test"]
            continue
        note = "the test images are a fifth of each domain, by a draw of ours"
        every = check(splits["all"], f"domain {domain}")
        train[domain], test[domain] = (every.take(rows) for rows in _stratified(every, domain))
    shortest = min(map(len, train.values()))
    return _ends(train, test, shortest // 2, shortest * 2 // 5), note


def _ends(
    train: Mapping[str, ImageTable], test: Mapping[str, ImageTable], first: int, last: int
) -> dict[str, ImageTable]:
    for domain, table in train.items():
        if not first or not last:
            shortest = min(train, key=lambda name: len(train[name]))
            raise UserError(
                f"{shortest} has {len(train[shortest])} training images, too few to cut the published share "
                "from; fetch its files again"
            )
        check(test[domain], f"the test split of {domain}")
        check(table, f"the training list of {domain}")
    return {
        "train": by_domain([table.take(np.arange(first)) for table in train.values()]),
        "validation": by_domain([
            table.take(np.arange(len(table) - last, len(table))) for table in train.values()
        ]),
        "test": by_domain(list(test.values())),
    }  # fmt: skip


def _mixed(table: ImageTable, domain: str) -> ImageTable:
    """Return a list in its own order, or if it goes class by class in a fixed random one.

    The official lists go class by class, whose first 5 % would be a single class. FedBN cuts its own lists,
    which are pickled and in another order; a list that mixes the classes is taken as it is.
    """
    if np.count_nonzero(np.diff(table.labels)) >= len(table.classes):
        return table
    return table.take(numpy_stream(0, f"order of {domain}").permutation(len(table)))


def _stratified(table: ImageTable, domain: str) -> Sequence[Rows]:
    with needed("train", f"the split of domain {domain}"):
        from sklearn.model_selection import train_test_split

    try:
        rows = train_test_split(np.arange(len(table)), test_size=0.2, stratify=table.labels, random_state=0)
    except ValueError as error:
        raise UserError(f"domain {domain} is too small to be split 80/20 by label: {error}") from error
    return [part.astype(np.int64) for part in rows]


def relabelled(tables: Tables, classes: Sequence[str]) -> Tables:
    return {
        domain: {split: of_classes(table, classes) for split, table in splits.items()}
        for domain, splits in tables.items()
    }


def by_column(tables: Mapping[str, ImageTable], domains: Sequence[str]) -> Tables:
    result: dict[str, dict[str, ImageTable]] = {domain: {} for domain in domains}
    for split, table in tables.items():
        assert table.domains is not None
        for place, domain in enumerate(domains):
            rows = np.flatnonzero(table.domains == place)
            result[domain][split] = replace(table.take(rows), domains=None)
    return result
