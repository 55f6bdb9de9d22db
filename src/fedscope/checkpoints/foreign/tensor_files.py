"""Other programs' checkpoints: every tensor of a file or folder, under its dotted name.

A file is read without running code: what nests (``{"state_dict": {"model.fc.weight": …}}``)
becomes a name (``state_dict.model.fc.weight``), and what is no tensor is left out.
:mod:`fedscope.checkpoints.foreign.fitting` finds the names that are a network's.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from zipfile import ZipFile

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from fedscope.checkpoints.file.checkpoint import is_described, load_checkpoint, read_content
from fedscope.checkpoints.file.other_programs import check_whole
from fedscope.checkpoints.file.stand_ins import Array, Value
from fedscope.errors import UserError, no_file
from fedscope.storage import read_bytes, regular
from fedscope.storage.limits import parse_json

SINGLE = ("model.safetensors", "pytorch_model.bin")  # of a folder as Hugging Face's libraries write it
SHARDED = tuple(f"{name}.index.json" for name in SINGLE)
DEEPEST = 8
MOST_EXPANSION = 100  # times the size of an .npz, of what its compressed members claim to hold
SUFFIXES = (".pt", ".pth", ".ckpt", ".bin", ".safetensors", ".npz")
_CLIENT = re.compile(
    r"client[_. -]?(?:(?:id|no|model|net|weights|state)[_. -]?)?([0-9]{1,9})(?=[_ -]|\.(?![0-9])|$)",
    re.IGNORECASE,
)
_SAY = "say which file is whose with `fedscope runs add --client K=FILE`"


def read(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a checkpoint that any program wrote.

    Read are files of ``torch.save`` (tensors and plain data), ``.safetensors``, ``.npy`` (one array, under
    the name ``""``), ``.npz``, folders with ``model.safetensors`` or ``pytorch_model.bin``, whole
    or in shards, and fedscope's own.
    """
    if path.is_dir():
        tensors = _folder(path)
    elif path.suffix == ".safetensors":
        tensors = _safetensors(path)
    elif path.suffix == ".npy":
        tensors = {"": _array(path)}
    elif path.suffix == ".npz":
        tensors = read_arrays(path)
    else:
        content = read_content(path, foreign=True)
        if is_described(content):
            return load_checkpoint(path).state
        tensors = dict(_flat(content, "", path))
    if not tensors:
        raise UserError(f"{path} holds no tensors; save model.state_dict()")
    return tensors


def read_arrays(path: Path) -> dict[str, Tensor]:
    """Return the arrays of an ``.npz`` by name; ``numpy.savez(FILE, *arrays)`` names them ``arr_0``, …."""
    try:
        with ZipFile(regular(path)) as archive:
            claimed = sum(member.file_size for member in archive.infolist())
        if claimed > MOST_EXPANSION * path.stat().st_size:
            raise ValueError(f"it claims {claimed} bytes")
        with np.load(path, allow_pickle=False) as arrays:
            return {name: torch.from_numpy(arrays[name]) for name in arrays.files}
    except Exception as error:  # whatever zipfile and numpy raise on them
        raise UserError(
            f"{path} holds no arrays of numbers ({error}); save them with numpy.savez(FILE, *arrays)"
        ) from error


def clients_in(folder: Path, start: str = "") -> dict[int, Path]:
    """Return the clients' files of a folder as :func:`numbered`; ``client_K.pt`` before others of K.

    Where names of clients begin with ``start``, a round's, these are taken alone.
    """
    files = [path for path in sorted(folder.iterdir()) if path.suffix in SUFFIXES]
    ours = re.compile(rf"{re.escape(start)}(?![0-9]).*")
    files = [path for path in files if start and ours.fullmatch(path.name) and _numbers(path)] or files
    plain = numbered(path for path in files if _CLIENT.fullmatch(path.stem))
    return numbered(path for path in files if not _numbers(path) <= plain.keys()) | plain


def numbered(files: Iterable[Path]) -> dict[int, Path]:
    """Return the files whose names have a client's number, by it: ``client_3_model.pt``, ``Client3.pt``."""
    found: dict[int, Path] = {}
    for path in files:
        numbers = _numbers(path)
        if len(numbers) > 1:
            one, other, *_ = sorted(numbers)
            raise UserError(f"{path.name} is of client {one} or {other} by its name; {_SAY}")
        for number in numbers:
            if number in found:
                raise UserError(
                    f"{found[number].name} and {path.name} are both of client {number} by their names; {_SAY}"
                )
            found[number] = path
    return found


def _numbers(path: Path) -> set[int]:
    return {int(match[1]) for match in _CLIENT.finditer(path.name)}


def _flat(content: object, name: str, path: Path, depth: int = 0) -> Iterator[tuple[str, Tensor]]:
    if depth > DEEPEST:
        raise UserError(f"{path} nests deeper than {DEEPEST} levels; save model.state_dict()")
    if isinstance(content, Array):
        try:
            content = content.tensor
        except (TypeError, ValueError) as error:
            raise UserError(f"{path} is damaged ({name[:80]!a}: {error}); restore it from a copy") from error
    if isinstance(content, Tensor):
        if not content.is_nested:
            yield name, content
        return
    items: Iterable[tuple[object, object]] = ()
    if isinstance(content, Mapping):
        items = content.items()
    elif isinstance(content, list | tuple) and not isinstance(content, Value):
        items = enumerate(content)
    for key, item in items:
        yield from _flat(item, f"{name}.{key}" if name else str(key), path, depth + 1)


def _folder(path: Path) -> dict[str, Tensor]:
    for name in SINGLE:
        if (path / name).is_file():
            return read(path / name)
    for name in SHARDED:
        if (path / name).is_file():
            return {k: t for shard in _shards(path / name) for k, t in read(shard).items()}
    check_whole(path)
    raise UserError(
        f"the folder {path} holds neither {' nor '.join(SINGLE)}, whole or in shards; name a file, or "
        "register a folder of rounds and clients with `fedscope runs add`"
    )


def _shards(index: Path) -> list[Path]:
    try:
        names = sorted(set(parse_json(read_bytes(index))["weight_map"].values()))
        if any(Path(name).name != name or not name.endswith((".safetensors", ".bin")) for name in names):
            raise ValueError("a shard is no file of the folder")
        if any((index.parent / name).is_dir() for name in names):  # which could lead here again
            raise ValueError("a shard is a folder")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{index} is no index of shards ({error}); fetch the folder again") from error
    return [index.parent / name for name in names]


def _safetensors(path: Path) -> dict[str, Tensor]:
    if not path.is_file():
        raise no_file(path)
    try:
        return load_file(path)
    except (SafetensorError, OSError) as error:
        raise UserError(f"{path} is truncated or damaged ({error}); restore it from a copy") from error


def _array(path: Path) -> Tensor:
    try:
        # Mapped: a header that claims more numbers than there are is refused, not allocated.
        return torch.from_numpy(np.load(regular(path), allow_pickle=False, mmap_mode="c"))
    except Exception as error:  # whatever numpy raises on bytes that somebody else wrote
        raise UserError(f"{path} is no array of numbers ({error}); save one with numpy.save") from error
