"""Checkpoint files: tensors and plain data, loadable with ``weights_only=True``, hashed by content.

The content hash covers name, dtype, shape and bytes of every tensor in name order, so it does not depend on
how the file was laid out; it is stored beside the weights and checked at every load, as is the seal of the
description.
"""

import hashlib
import pickle
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor

from fedscope import __version__, extras
from fedscope.checkpoints.file import stand_ins
from fedscope.checkpoints.file.code import code_version
from fedscope.checkpoints.file.container import check_before_containers, check_checkpoint, is_container
from fedscope.checkpoints.file.fields import parse
from fedscope.checkpoints.file.formats import CHECKPOINT_FORMAT, of_format, seal
from fedscope.checkpoints.file.other_programs import converted_by
from fedscope.checkpoints.file.schema import CheckpointInfo
from fedscope.errors import UserError, mend
from fedscope.storage import atomic_file, open_regular
from fedscope.storage.limits import check_extent, check_plain

_NO_CODE = "no checkpoint, or a pickle that asks to run code"
MOST_REPEATS = 16  # times that tied weights may make a state_dict larger than its file

State = Mapping[str, Tensor]


@dataclass(frozen=True)
class VerifiedCheckpoint:
    """A verified checkpoint: its description, weights and content hash."""

    path: Path
    info: CheckpointInfo
    state: dict[str, Tensor]
    sha256: str


def content_hash(state: State) -> str:
    digest = hashlib.sha256()
    for name in sorted(state):
        tensor = state[name].detach().cpu().contiguous()
        digest.update(f"{name}\0{tensor.dtype}\0{tuple(tensor.shape)}\0".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def save_checkpoint(path: Path, state: State, info: CheckpointInfo) -> str:
    """Write weights and description to ``path`` atomically; return the content hash.

    Tensors that are whole in memory are written without a copy; only views are copied. No link is followed
    inside the folder of the run.
    """
    tensors = {name: _whole(tensor) for name, tensor in state.items()}
    sha256, about = content_hash(tensors), info.model_dump(mode="json")
    content = {
        "format": CHECKPOINT_FORMAT,
        "info": about,
        "info_sha256": seal(about),
        "sha256": sha256,
        "state": tensors,
    }
    root = next((folder.parent for folder in path.parents if folder.name == info.run), None)
    with atomic_file(path, below=root) as handle:
        write_tensors(handle, content)
    return sha256


def write_tensors(handle: BinaryIO, content: object) -> None:
    try:
        torch.save(content, handle)
    except RuntimeError as error:  # torch's own complaint hides the reason: a full disk, an interrupt
        raise error.__context__ or error from None


def load_checkpoint(path: Path) -> VerifiedCheckpoint:
    return _verified(path, read_content(path))


def describe_checkpoint(path: Path) -> tuple[CheckpointInfo, str]:
    """Return the description and the content hash in ``path``, without reading its tensors."""
    claimed = _described(path, read_content(path, mapped=True))
    return claimed.info, claimed.sha256


def read_content(path: Path, *, mapped: bool = False, foreign: bool = False) -> object:
    """Return the content that ``torch.save`` wrote; only tensors and plain data are ever loaded.

    ``mapped``: tensors stay on the disk until they are used. ``foreign``: where another program's objects
    were, there are :mod:`fedscope.checkpoints.file.stand_ins`.
    """
    if not path.is_file():
        raise UserError(f"no such file: {path}; `fedscope runs list` shows what the registry holds")
    try:
        if is_container(path):
            check_checkpoint(path)
        else:
            check_before_containers(path)
        allowed = stand_ins.for_names(path) if foreign else []
        with warnings.catch_warnings(), torch.serialization.safe_globals(allowed):
            warnings.simplefilter("ignore")  # torch comments on foreign pickles before it refuses them
            content = _loaded(path, mapped=mapped)
        check_extent(content)
        if stand_ins.hides_tensors(content):
            raise stand_ins.CodeError("tensors in an object of an unknown class")
        return content
    except Exception as error:  # whatever torch and zipfile raise on bytes that somebody else wrote
        if mend(error):  # the disk's fault, not the file's
            raise
        if said := converted_by(path):
            raise UserError(f"{path} {said}") from error
        if isinstance(error, pickle.UnpicklingError | stand_ins.CodeError):
            raise UserError(_refusal(path)) from error
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        if not is_container(path):  # then it may be anything, and the reason says little
            raise UserError(
                f"{path} is no checkpoint, or is truncated or damaged; name another file"
            ) from error
        raise UserError(f"{path} is truncated or damaged ({reason}); restore it from a copy") from error


def _loaded(path: Path, *, mapped: bool) -> object:
    try:
        str(path).encode()
    except UnicodeEncodeError:  # torch takes names of UTF-8 alone
        with open_regular(path) as handle:
            return torch.load(handle, map_location="cpu", weights_only=True)
    return torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)


def versions() -> dict[str, str]:
    return _versions() | code_version()


@cache
def _versions() -> dict[str, str]:
    packages = ("torch", "numpy", "scikit-learn", "pillow", "pyhessian")
    return {"fedscope": __version__} | extras.versions(packages)


def _whole(tensor: Tensor) -> Tensor:
    tensor = tensor.detach().cpu()
    alone = tensor.is_contiguous() and tensor.untyped_storage().nbytes() == tensor.nbytes
    return tensor if alone else tensor.clone(memory_format=torch.contiguous_format)


def _verified(path: Path, content: object) -> VerifiedCheckpoint:
    checkpoint = _described(path, content)
    if content_hash(checkpoint.state) != checkpoint.sha256:
        raise UserError(
            f"{path} is damaged: its weights do not match its content hash; restore it from a copy"
        )
    return checkpoint


def is_described(content: object) -> bool:
    """Say whether this is the content of a file of fedscope, which says so."""
    said = content.get("format") if isinstance(content, dict) else None
    return isinstance(said, str) and said.startswith("fedscope/")


def _described(path: Path, content: object) -> VerifiedCheckpoint:
    if not is_described(content):
        raise UserError(
            f"{path} is not a fedscope checkpoint; register it with `fedscope runs add`, or add --model "
            "MODULE:FACTORY and --data MODULE:FACTORY"
        )
    assert isinstance(content, dict)
    plain = {key: content.get(key) for key in ("format", "info", "info_sha256", "sha256")}
    try:
        check_plain(plain)
    except ValueError as error:
        raise UserError(f"{path} is damaged: its description {error}; restore it from a copy") from error
    found: dict[str, Any] = of_format(plain, CHECKPOINT_FORMAT, str(path))
    info = parse(CheckpointInfo, found["info"], str(path))
    if seal(found["info"]) != found["info_sha256"]:
        raise UserError(f"{path} is damaged: its description does not match its hash; restore it from a copy")
    return VerifiedCheckpoint(path, info, _tensors(content.get("state"), path), str(found["sha256"]))


def _tensors(content: object, path: Path) -> dict[str, Tensor]:
    if not (
        isinstance(content, dict)
        and content
        and all(isinstance(k, str) and isinstance(v, Tensor) for k, v in content.items())
    ):
        raise UserError(
            f"{path} holds no state_dict (a mapping from names to tensors); save model.state_dict()"
        )
    odd = next((name for name, tensor in content.items() if not is_dense(tensor)), None)
    if odd is not None:
        raise UserError(f"{path}: {odd[:80]!a} is no dense tensor in memory; save a plain state_dict")
    if sum(tensor.nbytes for tensor in content.values()) > MOST_REPEATS * path.stat().st_size:
        raise UserError(f"{path} names the same numbers again and again; save a plain state_dict")
    return content


def is_dense(tensor: Tensor) -> bool:
    """Say whether the tensor has each of its numbers in memory, and so no more of them than the file."""
    return (
        tensor.layout == torch.strided
        and tensor.device.type == "cpu"
        and not (tensor.is_quantized or tensor.is_nested or tensor.is_conj() or tensor.is_neg())
        and tensor.nbytes <= tensor.untyped_storage().nbytes()  # not so if one number is repeated by strides
    )


def _refusal(path: Path) -> str:
    asked = stand_ins.unknown(path)
    what = f"a pickle that asks to run code ({listed(asked)})" if asked else _NO_CODE
    return (
        f"{path} is not loaded: it is {what}; load it in the program that wrote it, and save "
        "model.state_dict() there"
    )


def listed(names: Sequence[str], most: int = 3) -> str:
    return ", ".join(name[:80] for name in names[:most]) + (", …" if len(names) > most else "")
