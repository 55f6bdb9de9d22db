"""What the gallery has of each paper: its tables and figures, and what they say of its statements."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

from builder.links import GALLERY
from builder.markdown import escaped, table
from fedscope.reproduce.recipes.spec import names


def _records(root: Path, paper: str) -> list[tuple[Path, dict[str, Any]]]:
    found = []
    for path in sorted((root / "figures" / paper).glob("*.json")):
        found.append((path, json.loads(path.read_text(encoding="utf-8"))))
    return [(path, record) for path, record in found if "recipe" in record]


def titles(root: Path) -> dict[str, str]:
    """Return the gallery's pages by path, with their titles."""
    found = {}
    for paper in ("fedalign", "man", "fedfor"):
        for path, record in _records(root, paper):
            name = f"{record['printed_in']}: {record['title']}"
            found[f"{GALLERY}/{paper}/{path.stem}.md"] = name
    return found


def artefacts(root: Path, paper: str) -> str:
    """Return the list of a paper's tables and figures, and below it its statements with their verdicts."""
    records = _records(root, paper)
    rows = [
        [
            f"[{record['printed_in']}](../{GALLERY}/{paper}/{path.stem}.md)",
            escaped(record["title"]),
            _rebuilt(record["recipe"]),
            _verdicts(record),
        ]
        for path, record in records
    ]
    claims = [
        [escaped(claim["statement"]), record["printed_in"], f"**{claim['verdict']}**"]
        for _, record in records
        for claim in record["claims"]
    ]
    parts = [table(["artefact", "shows", "rebuilt by", "its statements"], rows)]
    if claims:
        parts.append("## Its statements\n\n" + table(["statement", "of", "here"], claims))
    return "\n".join(parts)


def _rebuilt(recipe: str) -> str:
    return f"`fedscope figures build {recipe}`" if recipe in names() else "[a study](../../studies/README.md)"


def _verdicts(record: dict[str, Any]) -> str:
    counts = Counter(claim["verdict"] for claim in record["claims"])
    return ", ".join(f"{verdict}: {count}" for verdict, count in counts.items())
