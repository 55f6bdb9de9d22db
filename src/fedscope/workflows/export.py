"""A checkpoint's weights for other programs, by the name of the format."""

from collections.abc import Callable, Mapping
from pathlib import Path

from fedscope import pretrained
from fedscope.checkpoints.file.checkpoint import load_checkpoint
from fedscope.checkpoints.registry.plain_weights import export_peft, export_safetensors, export_state_dict
from fedscope.errors import UserError
from fedscope.models.pretrained import lora_adapters
from fedscope.models.pretrained.networks import Seen, quietly
from fedscope.storage import atomic_folder, open_regular, write_bytes
from fedscope.workflows.sources.problem import network
from fedscope.workflows.sources.samples import Source

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
