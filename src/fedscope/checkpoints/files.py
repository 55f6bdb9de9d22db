"""Checkpoint files: tensors and plain data, loadable with ``weights_only=True``, hashed by content.

The content hash covers name, dtype, shape and bytes of every tensor in name order, so it does not depend on
how the file was laid out; it is stored beside the weights and checked at every load.
"""

import hashlib
import io
import pickle
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from zipfile import BadZipFile

import torch
from torch import Tensor

from fedscope import __version__
from fedscope.checkpoints.schema import CHECKPOINT_FORMAT, CheckpointInfo, parse
from fedscope.errors import UserError
from fedscope.storage import atomic_file

State = Mapping[str, Tensor]


@dataclass(frozen=True)
class Checkpoint:
    """A verified checkpoint: its description, weights and content hash."""

    path: Path
    info: CheckpointInfo
    state: dict[str, Tensor]
    sha256: str


def content_hash(state: State) -> str:
    """Return the SHA-256 of the canonical tensors of ``state``."""
    digest = hashlib.sha256()
    for name in sorted(state):
        tensor = state[name].detach().cpu().contiguous()
        digest.update(f"{name}\0{tensor.dtype}\0{tuple(tensor.shape)}\0".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def save_checkpoint(path: Path, state: State, info: CheckpointInfo) -> str:
    """Write weights and description to ``path`` atomically; return the content hash."""
    tensors = {name: tensor.detach().cpu().clone() for name, tensor in state.items()}
    sha256 = content_hash(tensors)
    with atomic_file(path) as temporary:
        content = {"format": CHECKPOINT_FORMAT, "info": info.model_dump(), "sha256": sha256, "state": tensors}
        buffer = io.BytesIO()  # torch's own writer hides the reason when a disk is full
        torch.save(content, buffer)
        temporary.write_bytes(buffer.getbuffer())
    return sha256


def load_checkpoint(path: Path) -> Checkpoint:
    """Read and verify a fedscope checkpoint.

    Raises:
        UserError: no such file, truncated, not a checkpoint of ours, or its content does not match its hash.
    """
    content = read_content(path)
    if not (isinstance(content, dict) and "format" in content):
        raise UserError(
            f"{path} is not a fedscope checkpoint; register it with `fedscope runs add`, or add --model "
            "MODULE:FACTORY and --data MODULE:FACTORY"
        )
    if content["format"] != CHECKPOINT_FORMAT:
        raise UserError(f"{path} has format {content['format']!r}, this fedscope reads {CHECKPOINT_FORMAT!r}")
    state = _tensors(content.get("state"), path)
    if content_hash(state) != content.get("sha256"):
        raise UserError(
            f"{path} is damaged: its weights do not match its content hash; restore it from a copy"
        )
    return Checkpoint(path, parse(CheckpointInfo, content.get("info"), str(path)), state, content["sha256"])


def versions() -> dict[str, str]:
    """Return the versions that a number may depend on."""
    return dict(_versions())


@cache
def _versions() -> dict[str, str]:
    packages = ("torch", "numpy", "scikit-learn", "pillow", "pyhessian")
    return {"fedscope": __version__} | {name: version(name) for name in packages}


def _tensors(content: object, path: Path) -> dict[str, Tensor]:
    if not (
        isinstance(content, dict)
        and content
        and all(isinstance(k, str) and isinstance(v, Tensor) for k, v in content.items())
    ):
        raise UserError(
            f"{path} holds no state_dict (a mapping from names to tensors); save model.state_dict()"
        )
    return content


def read_content(path: Path) -> object:
    """Return what a file of ``torch.save`` holds, without running any code that it asks for.

    Raises:
        UserError: no such file, truncated, or a pickle of more than tensors and plain data.
    """
    if not path.is_file():
        raise UserError(f"no such file: {path}; `fedscope runs list` shows what the registry holds")
    try:
        with warnings.catch_warnings():  # torch comments on foreign pickles before it refuses them
            warnings.simplefilter("ignore")
            return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise UserError(_refusal(path)) from error
    except (RuntimeError, EOFError, BadZipFile, ValueError, KeyError, OSError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(f"{path} is truncated or damaged ({reason}); restore it from a copy") from error


def _refusal(path: Path) -> str:
    try:
        asked = sorted(torch.serialization.get_unsafe_globals_in_checkpoint(str(path)))
    except Exception:  # whatever its reader makes of bytes that are no checkpoint
        asked = []
    what = (
        f"a pickle that asks to run code ({listed(asked)})"
        if asked
        else "no checkpoint, or a pickle that asks to run code"
    )
    return (
        f"{path} is not loaded: it is {what}; load it in the program that wrote it, and save "
        "model.state_dict() there"
    )


def listed(names: Sequence[str], most: int = 3) -> str:
    """Return the first few names, for a message."""
    return ", ".join(names[:most]) + (", …" if len(names) > most else "")
