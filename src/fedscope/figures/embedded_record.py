"""The origin of a figure, stored in its file: the analyses it shows, with their checkpoints and code."""

import re
import warnings
from collections.abc import Mapping, Sequence
from html import unescape
from io import BytesIO
from pathlib import Path
from typing import Any

from fedscope.errors import UserError, no_file
from fedscope.records.clients_record import ClientsRecord
from fedscope.records.saved_records import Analysis
from fedscope.records.sharpness_record import SharpnessRecord
from fedscope.storage import MOST_BYTES, read_bytes
from fedscope.storage.limits import parse_json

_ANALYSIS = ("schema", "checkpoint", "problem", "directions", "directions_of", "versions")


def made_from(records: Sequence[Analysis | ClientsRecord | SharpnessRecord]) -> dict[str, Any]:
    """Return the record of a figure that shows these analyses: the subject and the code of each."""
    return {
        "checkpoints": [record.checkpoint.sha256 for record in records],
        "analyses": [
            {key: json[key] for key in _ANALYSIS if key in json}
            for json in (record.to_json() for record in records)
        ],
    }


def read_record(path: Path) -> Any:
    """Return the record in a figure (.png, .pdf, .svg, .gif), a report (.html) or a .json file."""
    if not path.is_file():
        raise no_file(path)
    try:
        content = read_bytes(path, 4 * MOST_BYTES)
        kind = path.suffix.lower()
        text = content if kind == ".json" else _READERS[kind](content)
        return parse_json(text)
    except (ValueError, KeyError, IndexError) as error:
        raise UserError(
            f"{path} holds no record of fedscope; give a figure or a --json file that it wrote"
        ) from error


def read_records(paths: Sequence[Path]) -> list[Mapping[str, Any]]:
    found: list[Mapping[str, Any]] = []
    for path in paths:
        if path.suffix.lower() != ".json":
            raise UserError(f"{path} is no .json file; give what --json wrote")
        content = read_record(path)
        records = content if isinstance(content, list) else [content]
        if not records or not all(isinstance(record, dict) and "schema" in record for record in records):
            raise UserError(f"{path} holds no record of fedscope; give what --json wrote")
        found += records
    return found


def _png(content: bytes) -> bytes:
    from PIL import Image

    try:
        with warnings.catch_warnings():  # about many pixels, which are not decoded
            warnings.simplefilter("ignore")
            image = Image.open(BytesIO(content), formats=["PNG"])
    except (OSError, SyntaxError, Image.DecompressionBombError) as error:
        raise ValueError("no picture") from error
    return str(image.info["Description"]).encode()


def _svg(content: bytes) -> bytes:
    return unescape(_between(content, b"<dc:description>", b"</dc:description>").decode()).encode()


def _pdf(content: bytes) -> bytes:
    """Return the Subject: a text in brackets, with backslashes before brackets and backslashes."""
    found = re.search(rb"/Subject \(((?:[^\\()]++|\\.)*+)\)", content, re.DOTALL)  # each byte is met once
    if not found:
        raise ValueError("no subject")
    text = re.sub(rb"\\(.)", lambda m: {b"n": b"\n", b"r": b"\r"}.get(m[1], m[1]), found[1], flags=re.DOTALL)
    return text.decode("utf-16" if text.startswith(b"\xfe\xff") else "latin-1").encode()


def _gif(content: bytes) -> bytes:
    """Return the first comment, a chain of blocks that each begin with their length.

    Read here because Pillow needs hours for a long comment: it appends block to block.
    """
    colors = content[10]
    at = 13 + (3 << (colors & 7) + 1 if colors & 0x80 else 0)
    while content[at] == 0x21:  # an extension; the first picture ends the search
        kind, at, blocks = content[at + 1], at + 2, []
        while size := content[at]:
            blocks.append(content[at + 1 : at + 1 + size])
            at += 1 + size
        if kind == 0xFE:
            return b"".join(blocks)
        at += 1
    raise ValueError("no comment")


def _html(content: bytes) -> bytes:
    return _between(content, b'<script type="application/json" id="page-provenance">', b"</script>")


def _between(content: bytes, before: bytes, after: bytes) -> bytes:
    start = content.index(before) + len(before)
    return content[start : content.index(after, start)]


_READERS = {".png": _png, ".svg": _svg, ".pdf": _pdf, ".gif": _gif, ".html": _html}
