"""A run as one file: a zip of stored members, the first of which lists the others with their hashes.

    archive.json     {"format", "run", "files": {"final.pt": {"bytes", "sha256"}, …}, "sha256": its seal}
    final.pt …       the files of the run, under the names that `layout` knows, and under no others

The same run gives the same bytes. Importing writes into a hidden folder, compares every hash, reads every
checkpoint as any other reader does, and only then gives the folder its name: it appears whole or not at all.
"""

import hashlib
import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any, BinaryIO
from zipfile import BadZipFile, ZipFile, ZipInfo

from fedscope.checkpoints import layout
from fedscope.checkpoints.container import is_container, members
from fedscope.checkpoints.files import load_checkpoint
from fedscope.checkpoints.formats import ARCHIVE_FORMAT, seal, upgraded
from fedscope.checkpoints.limits import MOST_BYTES, parse_json
from fedscope.checkpoints.registry import Registry
from fedscope.checkpoints.run import Run, checked_name
from fedscope.checkpoints.state import check_state
from fedscope.errors import UserError
from fedscope.storage import atomic_file, atomic_folder

_CONTENTS = "archive.json"
_CHUNK = 1 << 20


def export_run(run: Run, out: Path, only: Path | None = None) -> None:
    """Write all files of a run to the archive ``out``; with ``only``, of its checkpoints that one alone.

    Raises:
        UserError: the run has no readable manifest, a checkpoint of it is damaged, or it is being trained.
    """
    manifest = run.manifest()
    with run.held(shared=True), atomic_file(out) as temporary:
        names = [name for name in layout.files(run.folder) if _belongs(run, name, only)]
        if only is not None:
            manifest = manifest.model_copy(update={"partial": True})
        own = {"manifest.json": run.sealed(manifest).encode()}
        for name in names:
            _check(run.folder / name, name)
        files = {name: _measured(run.folder / name, own.get(name)) for name in names}
        contents: dict[str, Any] = {"format": ARCHIVE_FORMAT, "run": run.name, "files": files}
        own[_CONTENTS] = json.dumps({**contents, "sha256": seal(contents)}, indent=1).encode()
        with ZipFile(temporary, "w") as archive:
            for name in [_CONTENTS, *names]:
                with archive.open(ZipInfo(name), "w", force_zip64=True) as target:
                    if name in own:
                        target.write(own[name])
                    else:
                        _copy(run.folder / name, target)


def import_run(registry: Registry, path: Path, name: str | None = None) -> Run:
    """Add the run in the archive ``path`` to the registry, under its own name or under ``name``.

    Raises:
        UserError: it is no archive, is of a newer fedscope, damaged, or holds what no run has; or the name
            is taken.
    """
    if not path.is_file():
        raise UserError(f"no such file: {path}")
    try:
        if not is_container(path):
            raise BadZipFile("no zip file")
        with ZipFile(path) as archive:
            return _imported(registry, archive, members(archive, path.stat().st_size), path, name)
    except FileExistsError as error:
        raise UserError(f"{error.filename} is taken; import under another --name") from error
    except (BadZipFile, ValueError, EOFError, NotImplementedError) as error:
        raise UserError(f"{path} is no archive of a run, or is damaged ({error}); get it anew") from error


def _imported(
    registry: Registry, archive: ZipFile, found: dict[str, ZipInfo], path: Path, name: str | None
) -> Run:
    contents = _contents(archive, found, path)
    run = Run(registry.root / checked_name(name or contents["run"]))
    with atomic_folder(run.folder, exclusive=True) as folder:
        for member, claim in contents["files"].items():
            target = folder / member
            target.parent.mkdir(parents=True, exist_ok=True)
            with archive.open(found[member]) as source, target.open("wb") as handle:
                if _copied(source, handle) != claim:
                    raise BadZipFile(f"{member} does not match its hash")
        for member in contents["files"]:
            _check(folder / member, member)
        manifest = Run(folder).manifest()
        Run(folder).metrics()
        if manifest.name != run.name:
            Run(folder).write_manifest(manifest.model_copy(update={"name": run.name}))
    return run


def _contents(archive: ZipFile, found: dict[str, ZipInfo], path: Path) -> dict[str, Any]:
    """Return the list of files, once it is clear that the archive holds these and no others."""
    if _CONTENTS not in found:
        raise BadZipFile("it has no list of files")
    if found[_CONTENTS].file_size > MOST_BYTES:
        raise BadZipFile("its list of files is too long")
    contents = upgraded(parse_json(archive.read(_CONTENTS)), ARCHIVE_FORMAT, str(path))
    if contents.pop("sha256", None) != seal(contents):
        raise BadZipFile("its list of files does not match its hash")
    run, files = contents.get("run"), contents.get("files")
    if not isinstance(run, str) or not isinstance(files, dict) or "manifest.json" not in files:
        raise BadZipFile("it lists no run")
    for name in files:
        if layout.kind(name) is None:
            raise BadZipFile(f"{name[:100]!a} is no file of a run")
    if found.keys() - {_CONTENTS} != files.keys():
        raise BadZipFile("its list of files is not what it holds")
    return contents


def _belongs(run: Run, name: str, only: Path | None) -> bool:
    kind, path = layout.kind(name), run.folder / name
    if kind is None or path.is_symlink():
        return False
    return only is None or path == only or kind in ("manifest", "metrics", "tag")


def _check(path: Path, name: str) -> None:
    if layout.kind(name) == "checkpoint":
        load_checkpoint(path)
    elif layout.kind(name) == "state" and path.name == "state.json":
        check_state(path.parent)


def _measured(path: Path, content: bytes | None) -> dict[str, Any]:
    if content is not None:
        return {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    with path.open("rb") as handle:
        return {"bytes": path.stat().st_size, "sha256": hashlib.file_digest(handle, "sha256").hexdigest()}


def _copy(path: Path, target: Any) -> None:
    with path.open("rb") as source:
        shutil.copyfileobj(source, target, _CHUNK)


def _copied(source: Any, target: BinaryIO) -> dict[str, Any]:
    """Copy a stream and return how long it was and its hash."""
    digest, size = hashlib.sha256(), 0
    for chunk in _chunks(source):
        digest.update(chunk)
        size += target.write(chunk)
    return {"bytes": size, "sha256": digest.hexdigest()}


def _chunks(source: Any) -> Iterable[bytes]:
    while chunk := source.read(_CHUNK):
        yield chunk
