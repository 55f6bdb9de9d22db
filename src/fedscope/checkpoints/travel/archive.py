"""A run as one file: a zip of stored members, the first of which lists the others with their hashes.

    archive.json     {"format", "run", "files": {"final.pt": {"bytes", "sha256"}, …}, "sha256": its seal}
    final.pt …       the files of the run, under the names that `layout` knows, and under no others

The same run gives the same bytes. Importing writes into a hidden folder, compares every hash, checks the run
as `verify` does, and only then gives the folder its name: it appears whole or not at all.
"""

import shutil
from pathlib import Path
from zipfile import BadZipFile, ZipFile, ZipInfo

from fedscope.checkpoints.file import layout
from fedscope.checkpoints.file.checkpoint import load_checkpoint
from fedscope.checkpoints.file.container import is_container, members
from fedscope.checkpoints.file.fields import checked_name
from fedscope.checkpoints.file.formats import ARCHIVE_FORMAT
from fedscope.checkpoints.registry.contents import Contents, File
from fedscope.checkpoints.registry.run_folder import RunFolder
from fedscope.checkpoints.registry.run_registry import RunRegistry
from fedscope.checkpoints.travel.pull import settle
from fedscope.checkpoints.verification.verify import check_run
from fedscope.errors import UserError, no_file
from fedscope.storage import MOST_BYTES, atomic_file, atomic_folder, new_file, open_regular

_CONTENTS = "archive.json"


def export_run(run: RunFolder, out: Path, only: Path | None = None) -> None:
    """Write all files of a run to the archive ``out``; with ``only``, of its checkpoints that one alone."""
    with run.locked(shared=True), atomic_file(out, below=None) as handle:
        manifest = run.manifest()
        names = [name for name in layout.files(run.folder) if _belongs(run, name, only)]
        if only is None:
            check_run(run, taken=lambda name: layout.kind(name) is not None)
        else:
            load_checkpoint(only)
            manifest = manifest.model_copy(update={"partial": True})
        files = {name: File.from_path(run.folder / name) for name in names}
        own = {"manifest.json": run.manifest_text(manifest).encode()}
        files["manifest.json"] = File.from_content(own["manifest.json"])
        own[_CONTENTS] = Contents(format=ARCHIVE_FORMAT, run=run.name, files=files).to_bytes()
        with ZipFile(handle, "w") as archive:
            for name in [_CONTENTS, *names]:
                with archive.open(ZipInfo(name), "w", force_zip64=True) as target:
                    if name in own:
                        target.write(own[name])
                        continue
                    with open_regular(run.folder / name) as source:
                        shutil.copyfileobj(source, target)


def import_run(registry: RunRegistry, path: Path, name: str | None = None) -> RunFolder:
    """Make the run in an archive one of the registry, under its own name or another that is free."""
    if not path.is_file():
        raise no_file(path)
    try:
        if not is_container(path):
            raise BadZipFile("no zip file")
        with ZipFile(path) as archive:
            found = members(archive, path.stat().st_size)
            contents = _contents(archive, found, path)
            run = RunFolder(registry.root / checked_name(name or contents.run))
            with atomic_folder(run.folder, below=registry.root, exclusive=True) as folder:
                for member, claim in contents.files.items():
                    with (
                        archive.open(found[member]) as source,
                        new_file(folder / member, below=folder) as handle,
                    ):
                        shutil.copyfileobj(source, handle)
                    if File.from_path(folder / member) != claim:
                        raise BadZipFile(f"{member} does not match its hash")
                settle(RunFolder(folder), run.name, contents.run)
            return run
    except FileExistsError as error:
        raise UserError(f"{error.filename} is taken; import under another --name") from error
    except (BadZipFile, ValueError, EOFError, NotImplementedError) as error:
        raise UserError(f"{path} is no archive of a run, or is damaged ({error}); get it anew") from error


def _contents(archive: ZipFile, found: dict[str, ZipInfo], path: Path) -> Contents:
    if _CONTENTS not in found:
        raise BadZipFile("it has no list of files")
    if found[_CONTENTS].file_size > MOST_BYTES:
        raise BadZipFile("its list of files is too long")
    contents = Contents.from_bytes(archive.read(_CONTENTS), ARCHIVE_FORMAT, str(path))
    if found.keys() - {_CONTENTS} != contents.files.keys():
        raise BadZipFile("its list of files is not what it holds")
    return contents


def _belongs(run: RunFolder, name: str, only: Path | None) -> bool:
    kind, path = layout.kind(name), run.folder / name
    if kind is None or path.is_symlink():
        return False
    return only is None or path == only or kind in ("manifest", "metrics", "rows", "tag")
