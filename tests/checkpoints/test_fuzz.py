"""Readers of what anybody may have written: they return what was saved or raise a UserError, and run no code.

The canary is a file that a poisoned pickle makes when its code runs.
"""

import hashlib
import io
import json
import pickle
import pickletools
import shutil
import struct
import zipfile
from contextlib import suppress
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedscope.checkpoints.file.checkpoint import describe_checkpoint, load_checkpoint
from fedscope.checkpoints.file.formats import seal
from fedscope.checkpoints.foreign.tensor_files import read
from fedscope.checkpoints.registry.run_registry import RunFolder, RunRegistry
from fedscope.checkpoints.travel.places import remote
from fedscope.checkpoints.travel.pull import pull_run
from fedscope.checkpoints.verification.verify import verify_root, verify_run
from fedscope.errors import UserError
from tests import tiers
from tests.checkpoints.cases import small_run


@cache
def place() -> Path:
    """Return a folder for all cases, with one run in it."""
    folder = Path(mkdtemp(prefix="fedscope-fuzz-"))
    small_run(folder / "registry")
    return folder


def teardown_module() -> None:  # more than once: slow tests come before those of other modules
    shutil.rmtree(place())
    place.cache_clear()


def canary() -> Path:
    return place() / "canary"


class Poison:
    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return (Path.touch, (canary(),))


def poison(protocol: int) -> bytes:
    return pickle.dumps(Poison(), protocol)[:-1]  # without STOP, to go on with


def repacked(content: bytes) -> bytes:
    """Return a checkpoint of ours with ``content`` as its pickle, and every checksum right."""
    out = io.BytesIO()
    with (
        zipfile.ZipFile(RunFolder(place() / "registry" / "small").final) as old,
        zipfile.ZipFile(out, "w") as new,
    ):
        for name in old.namelist():
            new.writestr(name, content if name.endswith("/data.pkl") else old.read(name))
    return out.getvalue()


@cache
def genuine() -> bytes:
    with zipfile.ZipFile(RunFolder(place() / "registry" / "small").final) as archive:
        return archive.read(next(n for n in archive.namelist() if n.endswith("/data.pkl")))


def programs() -> st.SearchStrategy[bytes]:
    """Pickles of random opcodes, some of which call what they should not."""
    calls = [f"c{module}\n{name}\n".encode() for module, name in (
        ("os", "system"), ("builtins", "eval"), ("builtins", "exec"), ("pathlib", "Path.touch"),
        ("torch", "load"), ("torch._utils", "_rebuild_tensor_v2"), ("collections", "OrderedDict"),
        ("torch.storage", "_load_from_bytes"), ("torch", "FloatStorage"),
    )]  # fmt: skip
    touch = f"X{{}}touch {canary()}".encode()
    texts = [b"X" + struct.pack("<I", len(touch) - 3) + touch[3:]]
    plain = [op.code.encode("latin-1") for op in pickletools.opcodes if op.arg is None]
    numbers = [
        b"K\x01",
        b"J\xff\xff\xff\x7f",
        b"\x8a\x08" + b"\xff" * 7 + b"\x7f",
        b"G" + b"\x7f\xf0" + bytes(6),
    ]
    whole = [poison(2), poison(4)]
    step = st.one_of(st.sampled_from(plain + calls + texts + numbers + whole), st.binary(max_size=3))
    return st.lists(step, max_size=30).map(lambda steps: b"\x80\x02" + b"".join(steps) + b".")


def changed() -> st.SearchStrategy[bytes]:
    """Our own pickle with pieces of it replaced."""
    pieces = st.one_of(st.binary(max_size=8), st.sampled_from([poison(2), b"R", b"}", b"\x85", b"N"]))
    edit = st.tuples(st.floats(0, 1), st.integers(0, 8), pieces)

    def apply(edits: list[tuple[float, int, bytes]]) -> bytes:
        content = genuine()
        for share, cut, piece in edits:
            at = int(share * len(content))
            content = content[:at] + piece + content[at + cut :]
        return content

    return st.lists(edit, min_size=1, max_size=4).map(apply)


def files() -> st.SearchStrategy[bytes]:
    """Files that claim to be checkpoints."""
    pickles = programs() | changed()
    bare = st.binary(max_size=200) | pickles
    return bare | pickles.map(repacked)


def checkpoint_is_refused_or_whole(content: bytes) -> None:
    path = place() / "case.pt"
    path.write_bytes(content)
    whole = load_checkpoint(RunFolder(place() / "registry" / "small").final)
    for load in (load_checkpoint, read, describe_checkpoint):
        try:
            found = load(path)
        except UserError:
            continue
        if load is load_checkpoint:
            assert found.sha256 == whole.sha256  # type: ignore[union-attr]
    assert not canary().exists()


MANY = settings(max_examples=tiers.examples(400), deadline=None, suppress_health_check=list(HealthCheck))


@MANY
@given(files())
def test_checkpoints(content: bytes) -> None:
    checkpoint_is_refused_or_whole(content)


def test_the_poison_is_real() -> None:
    torch.load(io.BytesIO(repacked(poison(2) + b".")), weights_only=False)
    assert canary().exists()
    canary().unlink()


def leaves() -> st.SearchStrategy[object]:
    odd = st.sampled_from(["\x1b[2J", "\u202e", "../../x", "/etc/passwd", "con", "", 1e308, -1, 2**70, "NaN"])
    return st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | odd


def trees() -> st.SearchStrategy[object]:
    return st.recursive(
        leaves(), lambda t: st.lists(t, max_size=3) | st.dictionaries(st.text(max_size=5), t, max_size=3)
    )


@cache
def keys() -> list[tuple[str, ...]]:
    """Return where in a manifest there is a value."""
    data = json.loads((place() / "registry" / "small" / "manifest.json").read_text())
    return [(k,) for k in data] + [(k, n) for k, v in data.items() if isinstance(v, dict) for n in v]


def manifests() -> st.SearchStrategy[bytes]:
    """A manifest with values replaced and the seal made right again, or not; or any bytes."""
    edit = st.tuples(st.deferred(lambda: st.sampled_from(keys())), trees(), st.booleans())

    def apply(edits: list[tuple[tuple[str, ...], object, bool]]) -> bytes:
        data = json.loads((place() / "registry" / "small" / "manifest.json").read_text())
        for where, value, _ in edits:
            inner = data
            for key in where[:-1]:
                inner = inner[key] if isinstance(inner.get(key), dict) else data
            inner[where[-1]] = value
        if edits[0][2]:
            data.pop("sha256", None)
            with suppress(ValueError):
                data["sha256"] = seal(data)
        return json.dumps(data).encode()

    deep = st.integers(1, 100_000).map(lambda n: b'{"a":' * n + b"1" + b"}" * n)
    return st.lists(edit, min_size=1, max_size=3).map(apply) | st.binary(max_size=100) | deep


def manifest_is_refused_or_plain(content: bytes) -> None:
    """Every reader of a registry bears the manifest, and what it accepts can be printed and written again."""
    root = place() / "manifests"
    if not root.exists():
        shutil.copytree(place() / "registry", root)
    run = RunFolder(root / "small")
    (run.folder / "manifest.json").write_bytes(content)
    registry = RunRegistry(root)
    (row,) = registry.rows()
    json.dumps(row, allow_nan=False).encode()
    faults = [*verify_root(registry), *verify_run(run)]
    try:
        found = run.manifest()
        RunFolder.manifest_text(found).encode()
        assert (
            found == RunFolder(place() / "registry" / "small").manifest()
            or faults
            or row["status"] == "finished"
        )
    except UserError as error:
        assert row["status"] == "unreadable"
        assert faults
        str(error).encode()
    assert sorted(p.name for p in root.iterdir()) in (["index.sqlite", "small"], ["small"])


@MANY
@given(manifests())
def test_manifests(content: bytes) -> None:
    manifest_is_refused_or_plain(content)


def names() -> st.SearchStrategy[str]:
    bad = [
        "../x",
        "/tmp/x",
        "..",
        "clients/../../x",
        "C:\\x",
        "con.pt",
        "final.pt/x",
        "state/round-0001/../x",
    ]
    good = ["final.pt", "metrics.jsonl", "manifest.json", "rows.zz", "tags/a", "clients/0001.pt"]
    return st.sampled_from(bad + good) | st.text(st.characters(codec="utf-8"), min_size=1, max_size=10)


def pushed_is_refused_or_contained(held: dict[str, bytes]) -> None:
    """Pull a run from a place that lists and holds these files, every hash of them right."""
    outside = place() / "outside"
    shutil.rmtree(outside, ignore_errors=True)
    root = outside / "registry"
    root.mkdir(parents=True)
    there = remote(str(place() / "there"))
    files = {}
    for name, content in held.items():
        sha256 = hashlib.sha256(content).hexdigest()
        files[name] = {"bytes": len(content), "sha256": sha256}
        there.write(f"objects/{sha256[:2]}/{sha256[2:]}", content, lambda _: None)
    data = {"format": "fedscope/remote/1", "run": "case", "files": files, "created": "", "rounds": 0}
    content = json.dumps({**data, "sha256": seal(data)}).encode()
    there.write("runs/case.json", content, lambda _: None)
    with pytest.raises(UserError):
        pull_run(RunRegistry(root), there, "case", lambda *_: None)
    assert RunRegistry(root).folders() == []
    assert {path.relative_to(outside).parts[:2] for path in outside.rglob("*")} <= {
        ("registry",),
        ("registry", ".case.pull"),
    }


@settings(MANY, max_examples=tiers.examples())
@given(st.dictionaries(names(), st.binary(max_size=20) | trees().map(lambda t: json.dumps(t).encode())))
def test_pushed_runs(held: dict[str, bytes]) -> None:
    pushed_is_refused_or_contained({"manifest.json": b"{}", **held})
