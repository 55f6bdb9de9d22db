"""The files of an artefact, and the gallery's index from the records in it."""

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from fedscope.errors import UserError
from fedscope.figures import style
from fedscope.records.artefact import ARTEFACT_SCHEMA, ArtefactRecord
from fedscope.reproduce.artefacts.record_of_cells import NOT_MEASURED
from fedscope.reproduce.gallery.cell_texts import table_csv, verdict_notes
from fedscope.reproduce.gallery.drawing import figures
from fedscope.reproduce.gallery.render import filled, latex, markdown, statements, used_runs
from fedscope.reproduce.recipes.spec import Recipe, names
from fedscope.storage import read_bytes, remove, write_text
from fedscope.storage.limits import parse_json

INDEX = "README.md"
SUFFIXES = ("json", "md", "csv", "tex", "pdf", "png")  # of an artefact's files
SENTENCE = ".txt"  # of a study: its sentence on the paper's page, in Markdown
_HEAD = 1024  # bytes of an artefact in which its schema stands


def write(
    record: ArtefactRecord, out: Path, *, drawn: Sequence[Figure] | None = None, further: str = ""
) -> list[Path]:
    """Write ``RECIPE-SCALE`` with .json, .md, .csv, and .tex or .pdf and .png; return the files.

    Args:
        record: of the artefact.
        out: the gallery.
        drawn: its figures; None: those of its kind.
        further: Markdown below its table.
    """
    stem = _stem(record, out)
    written = [stem.with_name(f"{stem.name}.json")]
    write_text(
        written[0],
        json.dumps(record.to_json(), indent=1, ensure_ascii=False, allow_nan=False) + "\n",
        below=None,
    )
    images = []
    drawn = figures(record) if drawn is None else drawn
    made = {"artefact": record.recipe, "scale": record.scale, "checkpoints": checkpoints(record)}
    for number, figure in enumerate(drawn, 1):
        page = f"-{number}" if len(drawn) > 1 else ""
        for suffix in ("pdf", "png"):
            path = stem.with_name(f"{stem.name}{page}.{suffix}")
            style.save(figure, path, record=made)
            written.append(path)
        images.append(written[-1].name)
    for earlier in stem.parent.glob(f"{stem.name}-[0-9]*.p[dn][fg]"):
        if earlier not in written:
            remove(earlier, below=stem.parent)  # of other pages, which the index would show too
    texts = {"md": markdown(record, images, further), "csv": table_csv(record)}
    if record.entries or record.grid:
        texts["tex"] = latex(record)
    for suffix, text in texts.items():
        written.append(stem.with_name(f"{stem.name}.{suffix}"))
        write_text(written[-1], text, below=None)
    return written


def artefact(recipe: Recipe, out: Path) -> ArtefactRecord | None:
    path = out / f"{recipe.stem}.json"
    return _read(path, _content(path)) if path.is_file() else None


def why_not_overwrite(record: ArtefactRecord, out: Path) -> str | None:
    """Return why an artefact is not to be replaced: the present one has more results."""
    path = Path(f"{_stem(record, out)}.json")
    try:
        had, has = _shown(ArtefactRecord.read(parse_json(_content(path)))), _shown(record)
    except (ValueError, UserError):
        return None
    if has >= had:
        return None
    return (
        f"{path} shows {had} results, and of this registry it would show {has}: it stays as it is; "
        "name its --registry, or another --out, or delete it"
    )


def _shown(record: ArtefactRecord) -> int:
    return (
        len(record.grid.rows if record.grid else ())
        + len(record.drawn)
        + sum(e.value is not None or e.text not in (None, NOT_MEASURED) for e in record.entries)
    )


def checkpoints(record: ArtefactRecord) -> list[str]:
    found = [c.sha256 for run in record.runs for c in run.checkpoints.values()]
    return list(dict.fromkeys(found))


def records(out: Path) -> Iterator[tuple[Path, ArtefactRecord]]:
    """Yield the artefacts below a folder, in the papers' order and then by scale."""
    found = []
    for path in sorted(out.rglob("*.json")):
        content = _content(path)
        if ARTEFACT_SCHEMA.encode() not in content[:_HEAD]:
            continue
        found.append((path, _read(path, content)))
    yield from sorted(found, key=lambda one: (_place(one[1].recipe), one[1].recipe, one[1].scale))


def _place(name: str) -> int:
    """Return where an artefact stands: beside the recipe whose name its own begins with, others last."""
    known = names()
    begun = max((one for one in known if name.startswith(one)), key=len, default=None)
    return len(known) if begun is None else known.index(begun)


def index(out: Path) -> str:
    """Return the gallery's index: every artefact below ``out``, and other pages by their title."""
    artefacts, named = [], set()
    for path, record in records(out):
        named.add(path.parent)
        page = path.with_suffix(".md").relative_to(out).as_posix()
        images = sorted(path.parent.glob(f"{path.stem}*.png"))
        places = [image.relative_to(out).as_posix() for image in images]
        artefacts.append((record, page, _verdicts(record), places))
    folders = [folder for folder in sorted(out.iterdir()) if folder not in named] if out.is_dir() else []
    others = [
        (folder.name, INDEX, _heading(folder / INDEX)) for folder in folders if (folder / INDEX).is_file()
    ]
    return filled("index.md", artefacts=artefacts, others=others)


def supplement(paper: str, out: Path) -> str:
    found = [(path, record) for path, record in records(out) if record.recipe.partition("/")[0] == paper]
    if not found:
        return ""
    pages = [(path.with_suffix(".md").name, record) for path, record in found]
    counts = Counter[str](claim.verdict for _, record in found for claim in record.claims)
    verdicts = [f"{n} {_COUNTED[word][n > 1]}" for word in _COUNTED if (n := counts[word])]
    departures = [[*record.why, *record.reductions] for _, record in found]
    several = [lines for lines, (_, record) in zip(departures, found, strict=True) if record.runs]
    shared = [line for line in several[0] if all(line in lines for lines in several)] if several[1:] else []
    return filled(
        "paper.md",
        source=found[0][1].source,
        counts=f"Of {counts.total()} statements {', '.join(verdicts)}" if verdicts else "",
        smaller=any(record.claims and record.reductions for _, record in found),
        claims=[spoken for page, record in pages for spoken in statements(record, page)],
        judged=verdict_notes([record for _, record in found]),
        explained=[
            (record, path.with_suffix(".md").name, said)
            for path, record in found
            if (said := _content(path.with_suffix(SENTENCE)).decode("utf-8", "replace").strip())
        ],
        shared=shared,
        departures=[
            (record, page, [line for line in lines if line not in shared])
            for (page, record), lines in zip(pages, departures, strict=True)
        ],
        runs=used_runs([record for _, record in found]),
        images=[
            (f"{record.printed_in}: {record.title}", image.name)
            for path, record in found
            for image in sorted(path.parent.glob(f"{path.stem}*.png"))
        ],
    )


_COUNTED = {  # one, several
    "holds": ("holds", "hold"),
    "does not hold": ("does not hold", "do not hold"),
    "undecided": ("is undecided", "are undecided"),
}


def _stem(record: ArtefactRecord, out: Path) -> Path:
    return out / f"{record.recipe}-{record.scale}"


def _read(path: Path, content: bytes) -> ArtefactRecord:
    try:
        return ArtefactRecord.read(parse_json(content), "the artefact")
    except (ValueError, UserError) as error:
        raise UserError(f"{path} cannot be read ({error}); build it again, or delete it") from error


def _content(path: Path) -> bytes:
    try:
        return read_bytes(path)
    except (OSError, UserError):
        return b""


def _verdicts(record: ArtefactRecord) -> str:
    counts = Counter(claim.verdict for claim in record.claims)
    return ", ".join(f"{v}: {counts[v]}" for v in ("holds", "does not hold", "undecided") if counts[v])


def _heading(path: Path) -> str:
    found = re.search(r"^# (.+)$", _content(path).decode("utf-8", "replace"), re.MULTILINE)
    return found[1] if found else path.parent.name
