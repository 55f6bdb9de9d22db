"""A checkpoint's weights for other programs: a plain state_dict, or safetensors."""

from pathlib import Path

import torch
from safetensors.torch import save

from fedscope.checkpoints.file.checkpoint import load_checkpoint, write_tensors
from fedscope.storage import atomic_file, write_bytes


def export_state_dict(checkpoint: Path, out: Path) -> None:
    """Write the verified weights of ``checkpoint`` as ``model.load_state_dict(torch.load(out))`` takes them.

    Raises:
        UserError: the checkpoint cannot be read, or is damaged.
    """
    state = load_checkpoint(checkpoint).state
    with atomic_file(out, below=None) as handle:
        write_tensors(handle, state)


def export_safetensors(checkpoint: Path, out: Path) -> None:
    """Write the verified weights of ``checkpoint`` in the safetensors format, its description as metadata.

    The metadata are ``fedscope`` (the description as JSON) and ``sha256`` (the content hash).

    Raises:
        UserError: the checkpoint cannot be read, or is damaged.
    """
    loaded = load_checkpoint(checkpoint)
    whole = torch.contiguous_format
    alone = {n: t.clone(memory_format=whole) for n, t in loaded.state.items()}  # tied weights are refused
    about = {"format": "pt", "fedscope": loaded.info.model_dump_json(), "sha256": loaded.sha256}
    content = save(alone, about)
    write_bytes(out, content, below=None)
