"""Causal language models and image classifiers of transformers, as modules of one tensor to logits.

Attention is transformers' ``eager`` one, written out in matrix products: PyTorch's fused kernels have no
second derivative. Weights are float32, tied weights stay tied, and no code of the folder is run.
"""

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fedscope import extras, pretrained
from fedscope.errors import UserError, shortened
from fedscope.lora import EXTRA, LoRA


class Seen(nn.Module):
    """A network of transformers, with the parameters of the modules that are seen and no others.

    The forward pass is the ``whole``'s. The seen modules stand in this one under their own names, so that its
    state dict holds them alone; what is not seen is constant, and stays in eval mode: its dropout is off.
    """

    def __init__(self, whole: nn.Module, seen: Mapping[str, nn.Module], lora: LoRA | None = None) -> None:
        super().__init__()
        self.lora = lora  # the adapters that are seen, in full; None: the network's own modules are
        self._whole = (whole,)  # not a child
        for name, module in seen.items():
            *path, leaf = name.split(".")
            place: nn.Module = self
            for part in path:
                if part not in place._modules:
                    place.add_module(part, nn.Module())
                place = place.get_submodule(part)
            place.add_module(leaf, module)

    @property
    def whole(self) -> nn.Module:
        return self._whole[0]

    def forward(self, inputs: Tensor) -> Tensor:
        """Map tokens (B, T) to logits of the next ones (B, T, V), or images (B, C, H, W) to logits (B, C)."""
        logits: Tensor = self.whole(inputs).logits
        return logits

    def _apply(self, fn: Any, recurse: bool = True) -> "Seen":
        self.whole._apply(fn, recurse)  # the seen modules are among its own
        return self


def load(reference: str) -> Seen:
    """Return the pretrained network ``hf:NAME``, with all of its parameters, in eval mode."""
    whole, _ = _loaded(reference)
    return Seen(whole, dict(whole.named_children()))


def is_folder(path: Path) -> bool:
    return (path / pretrained.CONFIG).is_file()


def weights(path: Path) -> Mapping[str, Tensor]:
    """Return the state of a folder's network by the names of its modules, which its files may not have."""
    model, missing = _loaded(f"{pretrained.NETWORK}:{path}")
    if missing:
        more = f" and {len(missing) - 1} more tensors" if missing[1:] else ""
        raise UserError(f"{path} does not hold the whole network: it lacks {missing[0]}{more}")
    state: Mapping[str, Tensor] = model.state_dict()
    return state


def is_language(model: nn.Module) -> bool:
    return isinstance(model, Seen) and hasattr(model.whole.config, "vocab_size")


@contextmanager
def quietly() -> Iterator[None]:
    """Let transformers and peft load without bars and advice, which are about their own commands."""
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def _loaded(reference: str) -> tuple[Any, list[str]]:
    name = pretrained.name(reference)
    with extras.needed(EXTRA, f"--model {reference}"):
        from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageClassification
    pretrained.sought(reference)
    try:
        with quietly():
            config = AutoConfig.from_pretrained(name, trust_remote_code=False)
            kind = AutoModelForCausalLM if _has_tokens(config) else AutoModelForImageClassification
            if type(config) not in kind._model_mapping:
                raise ValueError(f"{config.model_type} is no causal language model or image classifier")
            model, info = kind.from_pretrained(
                name, dtype=torch.float32, attn_implementation="eager", trust_remote_code=False,
                output_loading_info=True,
            )  # fmt: skip
    except Exception as error:  # whatever its files, or the hub, make of it
        raise UserError(f"--model {reference}: {type(error).__name__}: {shortened(error)}") from error
    model.config.use_cache = False
    return model.eval(), sorted(info["missing_keys"])


def _has_tokens(config: Any) -> bool:
    return getattr(config, "vocab_size", None) is not None
