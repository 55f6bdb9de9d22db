"""LoRA adapters beside peft itself, and their curvature beside dense autograd."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.autograd.functional import hessian
from torch.func import functional_call

from fedscope.errors import UserError
from fedscope.landscape import Batches, Hessian
from fedscope.lora import LoRA
from fedscope.models.pretrained import lora_adapters, networks
from fedscope.task_loss import TaskLoss
from tests import tiny

PEFT = "ignore:`is_gradient_checkpointing` is deprecated:FutureWarning"  # peft's use of transformers


def pefts_own(base: Path, folder: Path, **settings: Any) -> Any:
    """Return a network that peft adapted, with random B, and write its folder."""
    import peft
    from transformers import AutoModelForCausalLM

    with networks.quietly():
        loaded = AutoModelForCausalLM.from_pretrained(base)
        usual = {"r": 2, "lora_alpha": 6, "target_modules": ["c_attn"], "task_type": "CAUSAL_LM"}
        model: Any = peft.get_peft_model(loaded, peft.LoraConfig(**usual | settings))
        draw = torch.Generator().manual_seed(0)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if "lora_" in name:
                    parameter.copy_(torch.randn(parameter.shape, generator=draw))
        model.save_pretrained(folder)
    return model.eval()


def test_new_adapters_leave_the_network_as_it_is(language_model: Path) -> None:
    reference, x = f"hf:{language_model}", tiny.sequences(2, 8, 40)
    base, model = (
        networks.load(reference),
        lora_adapters.adapted(reference, LoRA.parse("r=3,targets=c_attn+c_fc")),
    )
    assert torch.equal(model(x), base(x))
    shapes = {name: tuple(p.shape) for name, p in model.named_parameters() if ".h.0." in name}
    assert shapes == {
        "transformer.h.0.attn.c_attn.lora_A.weight": (3, tiny.WIDTH),
        "transformer.h.0.attn.c_attn.lora_B.weight": (3 * tiny.WIDTH, 3),
        "transformer.h.0.mlp.c_fc.lora_A.weight": (3, tiny.WIDTH),
        "transformer.h.0.mlp.c_fc.lora_B.weight": (4 * tiny.WIDTH, 3),
    }
    assert model.state_dict().keys() == dict(model.named_parameters()).keys()
    assert model.lora == LoRA(3, 16.0, ("c_attn", "c_fc"), transposed=True, task="CAUSAL_LM")


def test_the_base_is_constant_and_without_dropout(tmp_path: Path) -> None:
    folder = tiny.write_language_model(tmp_path / "base", dropout=0.5)
    model, x = lora_adapters.adapted(f"hf:{folder}", LoRA(2)), tiny.sequences(2, 8, 40)
    model.train()
    assert torch.equal(model(x), model(x))
    before = {name: p.clone() for name, p in model.whole.named_parameters()}
    for _ in range(2):  # B is 0 at first, and A has no gradient then
        model(x).square().sum().backward()
        with torch.no_grad():
            for p in model.parameters():
                assert p.grad is not None
                p.sub_(0.1 * p.grad)
    moved = {name for name, p in model.whole.named_parameters() if not torch.equal(p, before[name])}
    assert moved == {n for n, p in model.whole.named_parameters() if "lora_" in n}


@pytest.mark.filterwarnings(PEFT)
def test_pefts_folder_gives_pefts_network(language_model: Path, tmp_path: Path) -> None:
    expected, x = pefts_own(language_model, tmp_path / "adapters"), tiny.sequences(2, 8, 40)
    model = lora_adapters.from_folder(f"hf:{language_model}", tmp_path / "adapters")
    with torch.no_grad():
        assert torch.allclose(model(x), expected(x).logits, atol=1e-6)
        assert not torch.allclose(model(x), networks.load(f"hf:{language_model}")(x), atol=1e-2)
    named = load_file(tmp_path / "adapters" / "adapter_model.safetensors")
    assert {f"base_model.model.{name}" for name in model.state_dict()} == named.keys()
    merged = lora_adapters.merged(model)
    assert not any("lora" in name for name in merged.state_dict())
    with torch.no_grad():
        assert torch.allclose(merged(x).logits, expected(x).logits, atol=1e-5)


@pytest.mark.filterwarnings(PEFT)
def test_the_curvature_in_the_subspace_is_that_of_dense_autograd(
    language_model: Path, tmp_path: Path
) -> None:
    """In float64, at B ≠ 0; all n = 256 columns against autograd.functional.hessian of the adapters alone."""
    pefts_own(language_model, tmp_path / "adapters")
    model = lora_adapters.from_folder(f"hf:{language_model}", tmp_path / "adapters").double()
    x, targets = tiny.sequences(3, 6, 40), tiny.sequences(3, 6, 40, seed=1)
    loss, named = TaskLoss(6.0), {name: p.detach() for name, p in model.named_parameters()}
    sizes = [p.numel() for p in named.values()]

    def of(vector: torch.Tensor) -> torch.Tensor:
        pieces = zip(vector.split(sizes), named.items(), strict=True)
        weights = {name: piece.view(p.shape) for piece, (name, p) in pieces}
        return loss(functional_call(model, weights, (x,)), targets)

    dense = hessian(of, torch.cat([p.flatten() for p in named.values()]))
    assert isinstance(dense, torch.Tensor)
    operator = Hessian(model, loss, Batches(x, targets, batch_size=2))
    assert operator.shape == (256, 256) == dense.shape
    found = operator.matmat(torch.eye(256, dtype=torch.float64))
    assert torch.allclose(found, dense, atol=1e-10 * float(dense.abs().max()))


def test_targets_that_are_not_there_are_answered_with_those_that_are(language_model: Path) -> None:
    with pytest.raises(UserError, match=r"its linear layers are c_attn, c_fc, c_proj, lm_head"):
        lora_adapters.adapted(f"hf:{language_model}", LoRA.parse("targets=q_proj"))
    with pytest.raises(UserError, match="only LoRA of linear layers"):
        lora_adapters.adapted(f"hf:{language_model}", LoRA.parse("targets=wte"))


@pytest.mark.filterwarnings(PEFT)
def test_other_adapters_are_refused(language_model: Path, tmp_path: Path) -> None:
    import peft

    reference, folder = f"hf:{language_model}", tmp_path / "adapters"
    pefts_own(language_model, folder)
    wider = shutil.copytree(folder, tmp_path / "wider")
    state = load_file(wider / "adapter_model.safetensors")
    save_file({name: torch.zeros(7, 7) for name in state}, wider / "adapter_model.safetensors")
    with pytest.raises(UserError, match="are not those of hf:"):
        lora_adapters.from_folder(reference, wider)
    (wider / "adapter_model.safetensors").write_bytes(b"nothing")
    with pytest.raises(UserError, match="holds no whole adapter_config"):
        lora_adapters.from_folder(reference, wider)
    peft.IA3Config(target_modules=["c_attn"], feedforward_modules=[]).save_pretrained(folder)
    with pytest.raises(UserError, match="only LoRA's are read"):
        lora_adapters.from_folder(reference, folder)
