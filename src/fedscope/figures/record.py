"""What made a figure, in the figure: the analyses it shows, and so their checkpoints and code.

``style.save`` embeds the record; :func:`read_record` takes it out of the file again.
"""

import re
from collections.abc import Mapping, Sequence
from html import unescape
from pathlib import Path
from typing import Any

from fedscope.checkpoints.limits import MOST_BYTES, parse_json, read_bytes
from fedscope.errors import UserError

_ANALYSIS = ("schema", "checkpoint", "problem", "directions", "directions_of", "versions")


def made_from(records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the record of a figure that shows these analyses: what each was of, and which code made it."""
    return {
        "checkpoints": [record["checkpoint"]["sha256"] for record in records],
        "analyses": [{key: record[key] for key in _ANALYSIS if key in record} for record in records],
    }


def read_record(path: Path) -> Any:
    """Return the record in a figure (.png, .pdf, .svg, .gif), a report (.html) or a .json file.

    Raises:
        UserError: no such file, of another kind, or without a record of ours.
    """
    if not path.is_file():
        raise UserError(f"no such file: {path}")
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
    """Return the records in .json files, each of which holds one or a list.

    Raises:
        UserError: no such file, of another kind, or what is in it are no records.
    """
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
    """Return the Description of the text chunks, which stand as length, kind, content and checksum."""
    at = 8
    while at + 12 <= len(content):
        size, kind = int.from_bytes(content[at : at + 4], "big"), content[at + 4 : at + 8]
        chunk = content[at + 8 : at + 8 + size]
        if kind == b"tEXt" and chunk.startswith(b"Description\0"):
            return chunk[12:].decode("latin-1").encode()
        if kind == b"iTXt" and chunk.startswith(b"Description\0\0\0"):  # not compressed
            return chunk[14:].split(b"\0", 2)[2]
        at += 12 + size
    raise ValueError("no description")


def _svg(content: bytes) -> bytes:
    found = re.search(rb"<dc:description>(.*?)</dc:description>", content, re.DOTALL)
    if not found:
        raise ValueError("no description")
    return unescape(found[1].decode()).encode()


def _pdf(content: bytes) -> bytes:
    """Return the Subject: a text in brackets, with backslashes before brackets and backslashes."""
    found = re.search(rb"/Subject \(((?:[^\\()]|\\.)*)\)", content, re.DOTALL)
    if not found:
        raise ValueError("no subject")
    text = re.sub(rb"\\(.)", lambda m: {b"n": b"\n", b"r": b"\r"}.get(m[1], m[1]), found[1], flags=re.DOTALL)
    return text.decode("utf-16" if text.startswith(b"\xfe\xff") else "latin-1").encode()


def _gif(content: bytes) -> bytes:
    """Return the first comment, a chain of blocks that each begin with their length."""
    colors = content[10]
    at = 13 + (3 << (colors & 7) + 1 if colors & 0x80 else 0)
    while content[at] == 0x21:  # an extension; the first picture ends the search
        kind, at, text = content[at + 1], at + 2, b""
        while size := content[at]:
            text += content[at + 1 : at + 1 + size]
            at += 1 + size
        if kind == 0xFE:
            return text
        at += 1
    raise ValueError("no comment")


def _html(content: bytes) -> bytes:
    found = re.search(
        rb'<script type="application/json" id="page-provenance">(.*?)</script>', content, re.DOTALL
    )
    if not found:
        raise ValueError("no provenance")
    return found[1]


_READERS = {".png": _png, ".svg": _svg, ".pdf": _pdf, ".gif": _gif, ".html": _html}
