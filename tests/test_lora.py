"""Adapters in words."""

import pytest

from fedscope.errors import UserError
from fedscope.lora import LoRA


def test_what_is_left_out_is_usual() -> None:
    assert LoRA.parse("r=4") == LoRA(4, 16.0)
    assert LoRA.parse("targets=c_proj+c_attn, alpha=2") == LoRA(8, 2.0, ("c_attn", "c_proj"))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "takes r, alpha and targets, such as r=8"),
        ("rank=4", "not 'rank=4'"),
        ("r=4,r=5", "not 'r=5'"),
        ("r=", "not 'r='"),
        ("r=two", "takes numbers for r and alpha"),
        ("r=0", "a rank r from 1 up"),
        ("alpha=0", "an alpha above 0"),
        ("alpha=inf", "an alpha above 0"),
        ("alpha=nan", "an alpha above 0"),
    ],
)
def test_other_texts_are_refused(text: str, reason: str) -> None:
    with pytest.raises(UserError, match=reason):
        LoRA.parse(text)


def test_peft_gets_the_same_numbers() -> None:
    config = LoRA(2, 3.0, ("q", "v"), transposed=True, task="CAUSAL_LM").config("base")
    assert (config.r, config.lora_alpha, set(config.target_modules)) == (2, 3, {"q", "v"})
    assert (config.fan_in_fan_out, config.task_type, config.base_model_name_or_path) == (
        True,
        "CAUSAL_LM",
        "base",
    )
