"""The facts about a data set, where its files are, and whether their counts are the published ones."""

from dataclasses import asdict, dataclass
from pathlib import Path
from shlex import quote

from fedscope.data.loading import array_cache, dataset_files
from fedscope.data.loading.data_folder import root
from fedscope.data.loading.dataset_record import DatasetRecord
from fedscope.data.loading.datasets import SPLITS, Dataset
from fedscope.data.loading.loading import cache_folder, load
from fedscope.data.sets.dataset_catalogue import DATASETS, record
from fedscope.errors import UserError


@dataclass(frozen=True)
class SplitCount:
    """A split, or a domain's part of one: images found and expected (None: not published)."""

    split: str
    domain: str
    found: int
    expected: int | None

    @property
    def verdict(self) -> str:
        if self.expected is None:
            return ""
        return "ok" if self.found == self.expected else "differs"


@dataclass(frozen=True)
class Inspection:
    """The result of a check; ``problem`` is empty where there is none."""

    name: str
    lines: tuple[SplitCount, ...] = ()
    note: str = ""
    problem: str = ""
    fingerprint: str = ""

    def as_json(self) -> dict[str, object]:
        lines = [asdict(line) | {"verdict": line.verdict} for line in self.lines]
        return asdict(self) | {"lines": lines, "ok": not self.problem}


def describe(entry: DatasetRecord) -> dict[str, object]:
    hubs = [entry.hub] if entry.hub else list(entry.domain_hubs.values())
    return {
        "name": entry.name,
        "title": entry.title,
        "classes": entry.classes,
        "images": dict(entry.expected),
        "input": f"{entry.channels}×{entry.side}×{entry.side}",
        "domains": list(entry.domains),
        "model": entry.model,
        "augmentations": list(entry.pipelines),
        "source": entry.source,
        "hub": [hub.repository for hub in hubs],
        "columns": [f"{hub.image}, {hub.label}" for hub in hubs],
        "layout": entry.layout,
        "licence": entry.licence,
    }


def whereabouts(entry: DatasetRecord, data_dir: Path | None) -> str:
    if entry.built_in:
        return "bundled"
    folder = root(data_dir)
    if folder:
        try:
            dataset_files.local(entry, folder, fetch=False)
        except UserError:
            return f"not in {folder}"
        return f"in {folder}"
    if array_cache.is_complete(cache_folder(entry, None)):
        return "fetched"
    return "on the hub" if entry.hub else "to be put into a folder"


def present(folder: Path) -> list[str]:
    found = {entry.folder: entry.name for entry in reversed(DATASETS.values()) if not entry.built_in}
    names = [name for place, name in found.items() if (folder / place).is_dir()]
    if not names:
        raise UserError(
            f"no data set in {folder}; it may hold folders {', '.join(sorted(found))}; if it is a data set's "
            f"own folder, use `fedscope data check NAME --data-dir {quote(str(folder))}`"
        )
    return [name for name in DATASETS if name in names]


def inspect(name: str, data_dir: Path | None) -> Inspection:
    entry = record(name)
    root(data_dir)
    try:
        dataset = load(entry, data_dir, fetch=False)
    except UserError as error:
        return Inspection(name, problem=str(error))
    lines = tuple(_lines(entry, dataset))
    problems = [
        f"{line.split} has {line.found:,} images, not {line.expected:,}"
        for line in lines
        if line.verdict == "differs"
    ]
    if len(dataset.classes) != entry.classes:
        problems.append(f"{len(dataset.classes)} classes, not {entry.classes}")
    return Inspection(name, lines, dataset.note, ", ".join(problems), dataset.fingerprint)


def _lines(entry: DatasetRecord, dataset: Dataset) -> list[SplitCount]:
    lines = []
    for name in SPLITS:
        split = getattr(dataset, name)
        if split is None:
            continue
        lines.append(SplitCount(name, "", len(split), entry.expected.get(name)))
        if split.domains is not None:
            counts = split.domains.bincount(minlength=len(dataset.domains)).tolist()
            lines += [
                SplitCount(name, domain, n, None) for domain, n in zip(dataset.domains, counts, strict=True)
            ]
    return lines
