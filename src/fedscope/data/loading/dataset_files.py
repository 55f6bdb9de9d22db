"""Where a data set's files are: in a folder of the user's, by one of its layouts, or on the hub."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from fedscope.data.loading.dataset_record import DatasetRecord
from fedscope.data.reading import folders, shards
from fedscope.data.reading.image_tables import ImageTable
from fedscope.data.reading.split_rules import Tables, by_column, drawn_classes, relabelled
from fedscope.errors import UserError


@dataclass(frozen=True)
class DataFiles:
    """A data set's files, and how to read the tables of their images."""

    files: tuple[Path, ...]  # all that the content depends on
    read: Callable[[], Tables]
    note: str = ""


def local(record: DatasetRecord, folder: Path, *, fetch: bool = True) -> DataFiles:
    """Return the files in ``folder/NAME`` or ``folder``; missing domains come from the hub if ``fetch``."""
    for home in (folder / record.folder, folder):
        if home.is_dir():
            for layout in (_whole_shards, _domains if record.domains else _train_and_val):
                found = layout(record, home, direct=home == folder, fetch=fetch)
                if found:
                    return found
    raise UserError(f"no {record.folder} under {folder}: expected {record.layout}; {record.source}")


def from_hub(record: DatasetRecord) -> DataFiles:
    if record.hub:
        files = shards.fetch(record.hub)
        return DataFiles(_every(files), partial(_read_shards, record, files))
    mend = "put it into a folder and name that with --data-dir or FEDSCOPE_DATA"
    return _by_domain(record, {}, mend, fetch=True)


def _whole_shards(record: DatasetRecord, home: Path, *, direct: bool, fetch: bool) -> DataFiles | None:
    """Shards of the whole data set; a folder of several data sets must not be mistaken for this one."""
    files = shards.find(home, record.hub, direct=direct) if record.hub else None
    if not files:
        return None
    return DataFiles(_every(files), partial(_read_shards, record, files), shards.missing_shards(files))


def _read_shards(record: DatasetRecord, files: Mapping[str, Sequence[Path]]) -> Tables:
    assert record.hub
    tables = {
        split: shards.table(paths, record.hub, record.names, record.domains) for split, paths in files.items()
    }
    split = by_column(tables, record.domains) if record.domains else {"": tables}
    return relabelled(split, record.names) if record.names else split


def _train_and_val(record: DatasetRecord, home: Path, *, direct: bool, fetch: bool) -> DataFiles | None:
    """Folders ``train/CLASS`` and ``val`` or ``test``; of ImageNet the drawn classes alone are listed."""
    if not (home / "train").is_dir() or not any((home / name).is_dir() for name in ("val", "test")):
        return None

    def choose(classes: Sequence[str]) -> Sequence[str]:
        if record.decode != "files":
            return classes
        return [classes[place] for place in drawn_classes(len(classes))]

    tables = folders.train_and_val(home, choose)
    return DataFiles(_paths(tables), lambda: {"": tables})


def _domains(record: DatasetRecord, home: Path, *, direct: bool, fetch: bool) -> DataFiles | None:
    if not any((home / domain).is_dir() for domain in record.domains):
        return None
    found: dict[str, tuple[tuple[Path, ...], Callable[[], Mapping[str, ImageTable]]]] = {}
    for domain in record.domains:
        source = record.domain_hubs.get(domain, shards.HubSource(f"{record.name}/{domain}"))
        files = shards.find(home / domain, source, direct=False)
        if files:
            found[domain] = _every(files), partial(_domain_shards, record, source, files)
        elif tables := folders.of_domain(home, domain, record.names):
            found[domain] = (
                (*_paths(tables), *home.glob(f"{domain}_*.txt")),
                lambda tables=tables: tables,  # type: ignore[misc]
            )
    return _by_domain(record, found, f"expected {record.layout} in {home}", fetch=fetch)


def _by_domain(
    record: DatasetRecord,
    found: dict[str, tuple[tuple[Path, ...], Callable[[], Mapping[str, ImageTable]]]],
    mend: str,
    *,
    fetch: bool,
) -> DataFiles:
    """Complete the domains that were found with the hub's; first see that it has all of them."""
    missing = [domain for domain in record.domains if domain not in found]
    for domain in sorted(missing, key=lambda name: name in record.domain_hubs):
        source = record.domain_hubs.get(domain)
        if source is None:
            raise UserError(
                f"no {domain} of {record.folder} here, and no copy on the hub: {mend}; {record.source}"
            )
        if not fetch:
            raise UserError(
                f"no {domain} of {record.folder} here; training fetches {source.repository}, or {mend}"
            )
        files = shards.fetch(source)
        found[domain] = _every(files), partial(_domain_shards, record, source, files)
    paths = tuple(path for domain in record.domains for path in found[domain][0])
    return DataFiles(paths, lambda: {domain: found[domain][1]() for domain in record.domains})


def _domain_shards(
    record: DatasetRecord, source: shards.HubSource, files: Mapping[str, Sequence[Path]]
) -> Mapping[str, ImageTable]:
    tables = {split: shards.table(paths, source, record.names) for split, paths in files.items()}
    return relabelled({"": tables}, record.names)[""]


def _every(files: Mapping[str, Sequence[Path]]) -> tuple[Path, ...]:
    return tuple(path for paths in files.values() for path in paths)


def _paths(tables: Mapping[str, ImageTable]) -> tuple[Path, ...]:
    return tuple(table.files[place] for table in tables.values() for place in table.file.tolist())
