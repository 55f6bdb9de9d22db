"""Which LoRA adapters a network has: their rank, scale and layers, as text and as peft's configuration."""

from dataclasses import dataclass
from typing import Any

from fedscope import extras
from fedscope.errors import UserError

EXTRA = "transformers"
# of a folder of peft's: its files, and what stands before each name in the second
CONFIG, WEIGHTS, PREFIX = "adapter_config.json", "adapter_model.safetensors", "base_model.model."
_FORM = "r=8,alpha=16,targets=c_attn+c_proj"


@dataclass(frozen=True)
class LoRA:
    """Adapters W + (α/r)·B·A (Hu et al. 2022): A is (r, in), B is (out, r), and W stays as it is."""

    r: int = 8  # rank
    alpha: float = 16.0  # α
    targets: tuple[str, ...] = ()  # ends of the names of the layers; none: peft's choice for the network
    transposed: bool = False  # the layers keep W as (in, out), as GPT-2's do
    task: str = ""  # peft's task type, such as CAUSAL_LM

    @classmethod
    def parse(cls, text: str) -> "LoRA":
        """Return what a text such as ``r=8,alpha=16,targets=c_attn+c_proj`` says; the rest is as above."""
        given = dict[str, str]()
        for part in text.split(","):
            name, equals, value = part.strip().partition("=")
            if name not in ("r", "alpha", "targets") or not equals or not value or name in given:
                raise UserError(f"--lora takes r, alpha and targets, such as {_FORM}, not {part.strip()!r}")
            given[name] = value
        try:
            r, alpha = int(given.get("r", cls.r)), float(given.get("alpha", cls.alpha))
        except ValueError as error:
            raise UserError(f"--lora takes numbers for r and alpha, such as {_FORM}, not {text!r}") from error
        if r < 1 or not 0 < alpha < float("inf"):
            raise UserError(f"--lora takes a rank r from 1 up and an alpha above 0, not {text!r}")
        targets = tuple(sorted(set(filter(None, given.get("targets", "").split("+")))))
        return cls(r, alpha, targets)

    @property
    def text(self) -> str:
        targets = f",targets={'+'.join(self.targets)}" if self.targets else ""
        return f"r={self.r},alpha={self.alpha:g}{targets}"

    def config(self, base: str) -> Any:
        with extras.needed(EXTRA, "--lora"):
            from peft import LoraConfig
        return LoraConfig(
            r=self.r,
            lora_alpha=int(self.alpha) if self.alpha.is_integer() else self.alpha,
            target_modules=list(self.targets) or None,
            fan_in_fan_out=self.transposed,
            task_type=self.task or None,
            base_model_name_or_path=base,
        )
