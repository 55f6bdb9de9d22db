"""Networks of transformers as modules of one tensor, and their curvature."""

import copy
import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.autograd.functional import hessian
from torch.func import functional_call

from fedscope.errors import UserError
from fedscope.landscape import Batches, Hessian
from fedscope.landscape.loss.checks import check_symmetric
from fedscope.models import users_network
from fedscope.models.pretrained import networks
from fedscope.task_loss import TaskLoss
from tests import tiny


def test_a_language_model_gives_the_logits_of_every_next_token(language_model: Path) -> None:
    model = networks.load(f"hf:{language_model}")
    x = tiny.sequences(3, 10, 40)
    logits = model(x)
    assert networks.is_language(model)
    assert logits.shape == (3, 10, len(model.get_parameter("lm_head.weight")))
    changed = x.clone()
    changed[:, 6:] = 1
    assert torch.equal(model(changed)[:, :6], logits[:, :6])  # what comes later, padding too, is not seen


def test_an_image_classifier_gives_logits(image_model: Path) -> None:
    model = networks.load(f"hf:{image_model}")
    assert not networks.is_language(model)
    assert model(torch.zeros(2, 3, 8, 8)).shape == (2, 2)


def test_a_folders_weights_have_the_names_of_the_network(image_model: Path, tmp_path: Path) -> None:
    assert networks.is_folder(image_model)
    own = networks.load(f"hf:{image_model}").state_dict()
    found = networks.weights(image_model)
    assert own.keys() == found.keys()
    assert all(torch.equal(found[name], tensor) for name, tensor in own.items())
    assert not own.keys() <= load_file(image_model / "model.safetensors").keys()
    shutil.copy(image_model / "config.json", tmp_path)
    assert networks.is_folder(tmp_path)
    headless = {
        n: t for n, t in load_file(image_model / "model.safetensors").items() if "classifier" not in n
    }
    save_file(headless, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(UserError, match=r"it lacks classifier\.bias and 1 more tensors"):
        networks.weights(tmp_path)


def test_names_are_those_of_the_folder_and_tied_weights_are_one(language_model: Path) -> None:
    model = networks.load(f"hf:{language_model}")
    assert model.state_dict().keys() == model.whole.state_dict().keys()
    assert sum(p.numel() for p in model.parameters()) == sum(p.numel() for p in model.whole.parameters())
    assert model.get_parameter("lm_head.weight") is model.get_parameter("transformer.wte.weight")


def test_a_copy_is_another_network_and_moves_whole(language_model: Path) -> None:
    model = networks.load(f"hf:{language_model}")
    other, x = copy.deepcopy(model).double(), tiny.sequences(2, 5, 40)
    assert {p.dtype for p in other.whole.parameters()} == {torch.float64}
    assert {p.dtype for p in model.whole.parameters()} == {torch.float32}
    with torch.no_grad():
        other.get_parameter("transformer.h.0.attn.c_attn.weight").zero_()
    assert not torch.allclose(other(x), model(x).double())


def test_the_curvature_of_a_block_is_that_of_dense_autograd(language_model: Path) -> None:
    """Of the second block's LayerNorm, in float64, on sequences of several lengths."""
    model = networks.load(f"hf:{language_model}").double()
    x, targets = tiny.sequences(4, 6, 40), tiny.sequences(4, 6, 40, seed=1)
    targets[0, 2:] = targets[3, 5:] = -100
    loss, name = TaskLoss(19 / 4), "transformer.h.1.ln_1.weight"
    operator = Hessian(model, loss, Batches(x, targets, batch_size=3), parameters=[name])

    def of(weight: torch.Tensor) -> torch.Tensor:
        return loss(functional_call(model, {name: weight}, (x,)), targets)

    dense = hessian(of, model.get_parameter(name).detach())
    assert isinstance(dense, torch.Tensor)
    found = torch.stack([operator @ row for row in torch.eye(tiny.WIDTH, dtype=torch.float64)])
    assert torch.allclose(found, dense, atol=1e-12)
    whole = Hessian(model, loss, Batches(x, targets))
    check_symmetric(lambda v: whole @ v, torch.zeros(whole.shape[0], dtype=torch.float64), "the Hessian")


def test_other_folders_are_refused(
    language_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)  # there is nobody to ask
    with pytest.raises(UserError, match="no such folder here"):
        networks.load("hf:not_there")
    encoder = shutil.copytree(language_model, tmp_path / "encoder")
    config = json.loads((encoder / "config.json").read_text()) | {"model_type": "t5"}
    (encoder / "config.json").write_text(json.dumps(config))
    with pytest.raises(UserError, match="no causal language model or image classifier"):
        networks.load(f"hf:{encoder}")


def test_code_of_a_folder_is_not_run(language_model: Path, tmp_path: Path) -> None:
    strange = shutil.copytree(language_model, tmp_path / "strange")
    config = json.loads((strange / "config.json").read_text())
    config |= {"model_type": "strange", "auto_map": {"AutoConfig": "code.Config"}}
    (strange / "config.json").write_text(json.dumps(config))
    (strange / "code.py").write_text("open('ran', 'w')\n")
    with pytest.raises(UserError, match="--model hf:"):
        networks.load(f"hf:{strange}")
    assert not Path("ran").exists()


def test_a_stack_of_networks_is_differentiated_at_once(language_model: Path) -> None:
    x = tiny.sequences(2, 6, 40)
    users_network.check_stack(networks.load(f"hf:{language_model}"), "it", x, x, TaskLoss(6.0))
