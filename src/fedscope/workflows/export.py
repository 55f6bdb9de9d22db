"""A checkpoint's weights for other programs, by the name of the format."""

from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from safetensors.torch import save

from fedscope import pretrained
from fedscope.checkpoints.file.checkpoint import VerifiedCheckpoint, load_checkpoint, write_tensors
from fedscope.errors import UserError
from fedscope.lora import PREFIX, WEIGHTS
from fedscope.models.pretrained import lora_adapters
from fedscope.models.pretrained.networks import Seen, quietly
from fedscope.storage import atomic_file, atomic_folder, open_regular, write_bytes
from fedscope.workflows.sources.problem import network
from fedscope.workflows.sources.samples import Source


def export_state_dict(checkpoint: Path, out: Path) -> None:
    """Write the verified weights of a checkpoint as ``model.load_state_dict(torch.load(out))`` takes them."""
    state = load_checkpoint(checkpoint).state
    with atomic_file(out, below=None) as handle:
        write_tensors(handle, state)


def export_safetensors(checkpoint: Path, out: Path) -> None:
    """Write the verified weights of ``checkpoint`` in the safetensors format, its description as metadata.

    The metadata are ``fedscope`` (the description as JSON) and ``sha256`` (the content hash).
    """
    write_bytes(out, _safetensors(load_checkpoint(checkpoint)), below=None)


def export_peft(checkpoint: Path, out: Path) -> None:
    """Write the verified adapters of ``checkpoint`` as the folder that ``PeftModel.from_pretrained`` takes.

    The base is named there and not copied. The metadata of the weights are as in :func:`export_safetensors`.
    """
    loaded = load_checkpoint(checkpoint)
    spec = loaded.info.model
    if spec.lora is None:
        raise UserError(f"{checkpoint} holds no adapters; use --format safetensors, or train with --lora")
    config = spec.lora.config(pretrained.name(spec.name))
    config.inference_mode = True
    with atomic_folder(out, below=None, exclusive=True) as folder:
        config.save_pretrained(str(folder))
        write_bytes(folder / WEIGHTS, _safetensors(loaded, PREFIX), below=folder)


def _safetensors(loaded: VerifiedCheckpoint, prefix: str = "") -> bytes:
    whole = torch.contiguous_format  # a copy of each: tied weights are refused
    alone = {f"{prefix}{n}": t.clone(memory_format=whole) for n, t in loaded.state.items()}
    return save(alone, {"format": "pt", "fedscope": loaded.info.model_dump_json(), "sha256": loaded.sha256})


_PROCESSORS = ("tokenizer*", "special_tokens_map.json", "vocab.*", "merges.txt", "*processor_config.json")


def export_pretrained(checkpoint: Path, out: Path) -> None:
    """Write the whole network of ``checkpoint``, adapters merged into it, as ``from_pretrained`` takes it.

    The folder has the base's tokenizer or image processor too.
    """
    loaded = load_checkpoint(checkpoint)
    spec = loaded.info.model
    if not pretrained.is_network(spec.name):
        raise UserError(
            f"{checkpoint} is of {spec.name}, no network of Hugging Face's; use --format state_dict"
        )
    model = network(loaded, Source())
    home = pretrained.folder(spec.name)
    assert isinstance(model, Seen)
    assert home  # it was loaded from there
    with atomic_folder(out, below=None, exclusive=True) as folder, quietly():
        lora_adapters.merged(model).save_pretrained(str(folder))
        for file in (file for pattern in _PROCESSORS for file in home.glob(pattern)):
            with open_regular(file) as handle:
                write_bytes(folder / file.name, handle.read(), below=None)


WRITERS: Mapping[str, Callable[[Path, Path], None]] = {
    "state_dict": export_state_dict,
    "safetensors": export_safetensors,
    "peft": export_peft,
    "pretrained": export_pretrained,
}
"""Format → what writes a checkpoint to a file or folder."""
