"""Archives that somebody made to mislead `fedscope runs import`."""

import hashlib
import json
import random
import stat
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path

from fedscope.checkpoints.file.formats import seal

Members = dict[str, bytes]


def hostile(source: Path, target: Path, draw: random.Random) -> str:
    """Write a hostile copy of the archive ``source``; return what is hostile about it."""
    kind = draw.choice(sorted(KINDS))
    KINDS[kind](source, target, draw)
    return kind


def members(source: Path) -> Members:
    """Return what an archive holds, but for its list."""
    with zipfile.ZipFile(source) as archive:
        return {name: archive.read(name) for name in archive.namelist() if name != "archive.json"}


def listing(held: Members, run: str = "a") -> bytes:
    """Return the list of an archive with every hash right."""
    files = {n: {"bytes": len(d), "sha256": hashlib.sha256(d).hexdigest()} for n, d in held.items()}
    contents = {"format": "fedscope/archive/1", "run": run, "files": files}
    return json.dumps({**contents, "sha256": seal(contents)}).encode()


def pack(target: Path, held: Members, *, contents: bytes | None = None, compression: int = 0) -> None:
    """Write an archive."""
    with zipfile.ZipFile(target, "w", compression) as archive:
        archive.writestr("archive.json", listing(held) if contents is None else contents)
        for name, data in held.items():
            archive.writestr(name, data)


def _named(name: str) -> Callable[[Path, Path, random.Random], None]:
    return lambda source, target, draw: pack(target, members(source) | {name: b"evil"})


def _link(source: Path, target: Path, draw: random.Random) -> None:
    held = members(source)
    pack(target, held, contents=listing(held | {"tags/link": b"/etc/passwd"}))
    with zipfile.ZipFile(target, "a") as archive:
        link = zipfile.ZipInfo("tags/link")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(link, "/etc/passwd")


def _bomb(source: Path, target: Path, draw: random.Random) -> None:
    pack(target, members(source) | {"tags/x": bytes(30_000_000)}, compression=zipfile.ZIP_DEFLATED)


def _twice(source: Path, target: Path, draw: random.Random) -> None:
    held = members(source)
    pack(target, held)
    with warnings.catch_warnings(), zipfile.ZipFile(target, "a") as archive:
        warnings.simplefilter("ignore")
        archive.writestr(draw.choice(sorted(held)), b"other")


def _overlapping(source: Path, target: Path, draw: random.Random) -> None:
    held = members(source)
    with zipfile.ZipFile(target, "w") as archive:
        archive.writestr("archive.json", listing(held))
        for name, data in held.items():
            archive.writestr(name, data)
        last = archive.infolist()[-1]
        last.header_offset, last.file_size = 0, 1 << 31
        last.compress_size = last.file_size


def _cut(source: Path, target: Path, draw: random.Random) -> None:
    content = source.read_bytes()
    target.write_bytes(content[: draw.randrange(len(content))])


def _other_list(source: Path, target: Path, draw: random.Random) -> None:
    held = members(source)
    name = draw.choice(sorted(held))
    changed = bytearray(held[name] or b"x")
    changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(8)
    pack(target, held | {name: bytes(changed)}, contents=listing(held))


def _forged(source: Path, target: Path, draw: random.Random) -> None:
    held = members(source)
    manifest = json.loads(held["manifest.json"])
    manifest.pop("sha256")
    manifest |= draw.choice([{"created": "~ soon"}, {"created": "2999-01-01T00:00:00+00:00"}, {"name": ".."},
                             {"extended": [99]}, {"diverged": 1}, {"clients_deleted": True}])  # fmt: skip
    pack(target, held | {"manifest.json": json.dumps({**manifest, "sha256": seal(manifest)}).encode()})


def _without(source: Path, target: Path, draw: random.Random) -> None:
    held = members(source)
    del held[draw.choice([name for name in sorted(held) if not name.startswith("tags/")])]
    pack(target, held)


def _deep(source: Path, target: Path, draw: random.Random) -> None:
    pack(target, members(source), contents=b"[" * 200_000 + b"]" * 200_000)


KINDS: dict[str, Callable[[Path, Path, random.Random], None]] = {
    "a name that goes up": _named("../evil"),
    "an absolute name": _named("/tmp/fedscope-evil"),
    "a name that goes up below": _named("clients/../../evil"),
    "a device's name": _named("con"),
    "a foreign name": _named("evil.py"),
    "a backslash": _named("a\\..\\evil"),
    "a link": _link,
    "a bomb": _bomb,
    "a name twice": _twice,
    "members that overlap": _overlapping,
    "cut short": _cut,
    "not what is listed": _other_list,
    "a forged claim": _forged,
    "a file left out": _without,
    "a deep list": _deep,
}
