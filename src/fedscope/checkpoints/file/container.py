"""The zip container of a checkpoint or an archive, checked before anything in it is read.

Nothing is compressed in these files, so their content is never larger than the file: a "zip bomb" is refused
for its method of compression, for members that overlap, or for a name that stands twice.
"""

from io import BytesIO
from pathlib import Path
from zipfile import ZIP_STORED, BadZipFile, ZipFile, ZipInfo

from fedscope.checkpoints.file.pickles import check_pickle
from fedscope.storage import open_regular

MAGIC = b"PK\x03\x04"
_PICKLES = 5  # magic number, version, system, content, names of the storages
MOST_PICKLE = 1 << 26  # bytes of a checkpoint's names, shapes and description


def is_container(path: Path) -> bool:
    with open_regular(path) as handle:
        return handle.read(4) == MAGIC


def members(archive: ZipFile, size: int) -> dict[str, ZipInfo]:
    found: dict[str, ZipInfo] = {}
    for member in archive.infolist():
        if member.compress_type != ZIP_STORED or member.flag_bits & 1:
            raise BadZipFile("a member is compressed or encrypted")
        if member.filename in found:
            raise BadZipFile("a name stands twice")
        found[member.filename] = member
    if sum(member.file_size for member in found.values()) > size:
        raise BadZipFile("the members claim more bytes than the file has")
    return found


def check_checkpoint(path: Path) -> int:
    """Check the container, its pickle, and all checksums but the tensors'; return the tensors' bytes."""
    tensors = 0
    with ZipFile(path) as archive:
        for name, member in members(archive, path.stat().st_size).items():
            if "/data/" in name:
                tensors += member.file_size
            elif member.file_size > MOST_PICKLE:
                raise BadZipFile(f"{member.file_size} bytes of description")
            else:
                content = archive.read(member)  # which compares the checksum; torch does not
                if name.endswith(".pkl"):
                    check_pickle(BytesIO(content))
    return tensors


def check_before_containers(path: Path) -> None:
    """Check the pickles at the beginning of a file that PyTorch before 1.6 wrote."""
    with open_regular(path) as file:
        for _ in range(_PICKLES):
            if not check_pickle(file):
                return
