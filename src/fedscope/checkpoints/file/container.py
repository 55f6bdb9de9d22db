"""The zip container of a checkpoint and the pickle in it, checked before anything is read.

Nothing is compressed in these files, so their content is never larger than the file: a "zip bomb" is refused
for its method of compression, for members that overlap, or for a name that stands twice.

What a pickle would make is counted from its instructions before any of them is carried out. A pickle names
again what it has made, so that two kilobytes make a tuple of sixty times the same tuple of sixty times the
same tuple. As a key of a mapping that is hashed while it is loaded, for longer than anybody waits.
"""

import pickletools
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import BinaryIO
from zipfile import ZIP_STORED, BadZipFile, ZipFile, ZipInfo

from fedscope.storage import open_regular
from fedscope.storage.limits import MOST_DEPTH, MOST_ENTRIES

MAGIC = b"PK\x03\x04"
_PICKLES = 5  # magic number, version, system, content, names of the storages
MOST_PICKLE = 1 << 26  # bytes of a checkpoint's names, shapes and description
_GROWING = {"APPEND": 1, "SETITEM": 2, "APPENDS": None, "SETITEMS": None, "ADDITEMS": None}
_STORES, _RECALLS = {"PUT", "BINPUT", "LONG_BINPUT"}, {"GET", "BINGET", "LONG_BINGET"}
_DEEPEST = 2 * MOST_DEPTH  # the arguments of which a tensor is made nest too


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


class ExtentError(ValueError):
    """What a pickle makes is not nearly as small as its file."""


@dataclass
class _Made:
    """An object: how many objects a walk through it meets, and how deep they are nested."""

    size: int = 1
    depth: int = 0

    def hold(self, parts: list["_Made"]) -> None:
        for part in parts:
            self.size += part.size
            if part.depth >= self.depth:
                self.depth = part.depth + 1
        if self.depth > _DEEPEST:
            raise ExtentError("nested too deeply")


_SCALAR = _Made()  # a number, a text, a name: nothing is ever put into it
_MADE_EMPTY = {"EMPTY_LIST", "EMPTY_DICT", "EMPTY_SET"}
_PLAIN = {
    one.name
    for one in pickletools.opcodes
    if one.stack_after and not one.stack_before and one.name not in _MADE_EMPTY
}
_TAKEN = {  # how many objects an instruction takes off the stack; None: those above the last mark
    one.name: None if pickletools.stackslice in one.stack_before else len(one.stack_before)
    for one in pickletools.opcodes
}


def check_pickle(file: BinaryIO) -> bool:
    """Check the pickle that begins where ``file`` is, leave it behind its end; return whether it is one."""
    machine = _Machine()
    try:
        for instruction, argument, _ in pickletools.genops(file):
            machine.take(instruction, argument)
    except ExtentError:
        raise
    except (ValueError, IndexError, KeyError):
        return False
    return True


class _Machine:
    """The sizes of the objects that a reader would have on its stack and in its memo."""

    def __init__(self) -> None:
        self._stack: list[_Made] = []
        self._marks: list[int] = []
        self._memo: dict[int, _Made] = {}
        self._recalled = 0

    def take(self, instruction: pickletools.OpcodeInfo, argument: object) -> None:
        name, stack = instruction.name, self._stack
        if name == "MARK":
            self._marks.append(len(stack))
        elif name in _STORES:
            self._memo[int(str(argument))] = stack[-1]
        elif name == "MEMOIZE":
            self._memo[len(self._memo)] = stack[-1]
        elif name in _RECALLS:
            self._recall(self._memo[int(str(argument))])
        elif name == "DUP":
            self._recall(stack[-1])
        elif name in _GROWING:
            parts = self._parts(_GROWING[name])
            if stack[-1] is _SCALAR:
                raise ValueError("grows what does not")
            stack[-1].hold(parts)
        elif name in _PLAIN:
            stack.append(_SCALAR)
        else:
            parts = self._parts(_TAKEN[name])
            if instruction.stack_after:
                stack.append(_Made())
                stack[-1].hold(parts)

    def _recall(self, made: _Made) -> None:
        self._recalled += made.size - 1
        if self._recalled > MOST_ENTRIES:
            raise ExtentError("too many entries")
        self._stack.append(made)

    def _parts(self, count: int | None) -> list[_Made]:
        """Take ``count`` objects off the stack, or those above the last mark."""
        start = self._marks.pop() if count is None else len(self._stack) - count
        if not 0 <= start <= len(self._stack):
            raise IndexError(start)
        parts = self._stack[start:]
        del self._stack[start:]
        return parts
