"""LoRA adapters on a pretrained network (Hu et al. 2022): W + (α/r)·B·A, of which A and B alone are trained.

They are made by peft, and named as in peft's own files: the state dict of an adapted network is the content
of ``adapter_model.safetensors`` without its prefix. The frozen base is no part of it, and stays in eval mode.
"""

from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from fedscope import extras
from fedscope.errors import UserError, shortened
from fedscope.lora import CONFIG, EXTRA, PREFIX, WEIGHTS, LoRA
from fedscope.models.pretrained.networks import Seen, is_language, load, quietly

_NAME = "default"  # of the one adapter; no part of the names in a file


def adapted(reference: str, lora: LoRA) -> Seen:
    """Return the network ``hf:NAME`` with new adapters.

    A is drawn from PyTorch's global generator; B is 0, so that the network is the base as yet.
    """
    base = load(reference)
    config = lora.config(reference.partition(":")[2])
    config.task_type = config.task_type or ("CAUSAL_LM" if is_language(base) else None)
    return _injected(base, config, f"--lora on {reference}")


def is_folder(path: Path) -> bool:
    return (path / CONFIG).is_file()


def from_folder(reference: str, path: Path) -> Seen:
    base = load(reference)
    with extras.needed(EXTRA, str(path)):
        from peft import LoraConfig, PeftConfig
    try:
        config: Any = PeftConfig.from_pretrained(str(path))
        state = load_file(path / WEIGHTS)
    except (OSError, ValueError, TypeError, KeyError, SafetensorError) as error:
        raise UserError(f"{path} holds no whole {CONFIG} and {WEIGHTS}: {error}") from error
    if not isinstance(config, LoraConfig):
        raise UserError(f"{path} holds {config.peft_type} adapters; only LoRA's are read")
    config.inference_mode = False  # as peft saves it: no gradients
    model = _injected(base, config, str(path))
    try:
        model.load_state_dict({name.removeprefix(PREFIX): tensor.float() for name, tensor in state.items()})
    except RuntimeError as error:
        reason = shortened(error)
        raise UserError(f"the adapters of {path} are not those of {reference}: {reason}") from error
    return model


def merged(model: Seen) -> Any:
    """Return the network of transformers with W + (α/r)·B·A in place of each W; ``model`` is used up."""
    whole = model.whole
    if model.lora is not None:
        from peft.tuners.lora import LoraLayer

        for name, layer in [(n, part) for n, part in whole.named_modules() if isinstance(part, LoraLayer)]:
            layer.merge()
            parent, _, leaf = name.rpartition(".")
            setattr(whole.get_submodule(parent), leaf, layer.get_base_layer())
    return whole


def _injected(base: Seen, config: Any, what: str) -> Seen:
    from peft import inject_adapter_in_model

    try:
        with quietly():
            whole: nn.Module = inject_adapter_in_model(config, base.whole)
    except ValueError as error:
        linear = {name.rpartition(".")[2] for name, part in base.whole.named_modules() if _is_linear(part)}
        reason = shortened(error)
        raise UserError(f"{what}: {reason}; its linear layers are {', '.join(sorted(linear))}") from error
    seen = dict[str, nn.Module]()
    for name, module in whole.named_modules():
        if any(p.requires_grad for p in module.parameters(recurse=False)):
            place, _, leaf = name.rpartition(".")
            if leaf != _NAME or not list(module.parameters(recurse=False)):
                raise UserError(
                    f"{what}: {name} is trained beside the adapters; only LoRA of linear layers is taken"
                )
            seen[place] = module
    targets = tuple(sorted(config.target_modules))
    lora = LoRA(config.r, config.lora_alpha, targets, bool(config.fan_in_fan_out), config.task_type or "")
    return Seen(whole.eval(), seen, lora)


def _is_linear(module: nn.Module) -> bool:
    return isinstance(module, nn.Linear) or type(module).__name__ == "Conv1D"
