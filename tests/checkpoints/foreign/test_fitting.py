from collections import OrderedDict
from collections.abc import Mapping

import pytest
import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from fedscope.checkpoints.foreign.fitting import fit
from fedscope.errors import UserError
from fedscope.models.catalogue import build
from tests.checkpoints.published import ClientModel, FedMLResNet56


def small() -> nn.Module:
    return nn.Sequential(OrderedDict(conv=nn.Conv2d(1, 2, 3), bn=nn.BatchNorm2d(2), fc=nn.Linear(2, 3)))


def wanted(model: nn.Module) -> Mapping[str, Tensor]:
    return model.state_dict(keep_vars=True)


def prefixed(state: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {prefix + name: tensor for name, tensor in state.items()}


STATE = small().state_dict()


@pytest.mark.parametrize(
    ("tensors", "notes"),
    [
        (STATE, ()),
        (prefixed(STATE, "module."), ("removed module. from 9 names",)),
        (prefixed(STATE, "_orig_mod."), ("removed _orig_mod. from 9 names",)),
        (
            prefixed(STATE, "_orig_mod.module."),
            ("removed _orig_mod. from 9 names", "removed module. from 9 names"),
        ),
        (
            {name.replace("bn.", "bn._orig_mod."): tensor for name, tensor in STATE.items()},
            ("removed _orig_mod. from 5 names",),
        ),
        (
            prefixed(STATE, "state_dict.model.") | {"state_dict.w": torch.ones(3)},
            ("removed the prefix state_dict.model. from 9 names", "left out 1 other tensors: state_dict.w"),
        ),
        (
            prefixed(STATE, "ema_state_dict.module.") | {"ema_state_dict.n_averaged": torch.tensor(4)},
            (
                "removed module. from 9 names",
                "removed the prefix ema_state_dict. from 10 names",
                "left out 1 other tensors: ema_state_dict.n_averaged",
            ),
        ),
        (
            prefixed(STATE, "model_state_dict.") | {"optimizer.state.0.exp_avg": torch.ones(3)},
            (
                "removed the prefix model_state_dict. from 9 names",
                "left out 1 other tensors: optimizer.state.0.exp_avg",
            ),
        ),
        (
            {name: tensor for name, tensor in STATE.items() if "num_batches" not in name},
            ("set to 0 what counts batches only and is lacking: bn.num_batches_tracked",),
        ),
    ],
)  # fmt: skip
def test_the_network_is_found_and_every_change_told(
    tensors: dict[str, Tensor], notes: tuple[str, ...]
) -> None:
    found = fit(tensors, wanted(small()), "f.pt")
    assert found.notes == notes
    assert list(found.state) == list(STATE)
    assert all(torch.equal(found.state[name], STATE[name]) for name in STATE)


def test_an_averaged_model_of_torch() -> None:
    averaged = AveragedModel(small())
    averaged.update_parameters(small())
    found = fit(averaged.state_dict(), wanted(small()), "f.pt")
    assert torch.equal(found.state["fc.weight"], averaged.state_dict()["module.fc.weight"])
    assert found.notes == ("removed module. from 9 names", "left out 1 other tensors: n_averaged")


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        (
            prefixed(STATE, "model.") | prefixed(STATE, "model_ema.module."),
            r"tensors 2 times, below model \(the network\), model_ema \(an average\); .* as --entry model$",
        ),
        (
            {name: t for name, t in STATE.items() if name.startswith("conv")},
            r"lacks 6 of 9 tensors \(bn.weight, bn.bias, bn.running_mean, …\)",
        ),
        (STATE | {"head.weight": torch.ones(1)}, r"holds 1 that the network has not \(head.weight\)"),
        (STATE | {"fc.weight": torch.ones(7, 2)}, r"of another shape: fc.weight is \(7, 2\), not \(3, 2\)"),
        (
            {"a.w": torch.ones(1), "b.w": torch.ones(1)},
            r"it names its tensors a.w, b.w, the network conv.weight.*; name the network it was saved from",
        ),
        (
            STATE | prefixed(STATE, "module."),
            r"holds conv.weight twice, as conv.weight and module.conv.weight",
        ),
    ],
)
def test_what_is_not_exactly_one_network_is_refused(tensors: dict[str, Tensor], message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        fit(tensors, wanted(small()), "f.pt")
    assert "\n" not in str(caught.value)


def test_an_entry_chooses() -> None:
    other = {name: tensor + 1 for name, tensor in STATE.items()}
    both = prefixed(STATE, "model.") | prefixed(other, "model_ema.module.")
    found = fit(both, wanted(small()), "f.pt", entry="model_ema")
    assert torch.equal(found.state["fc.bias"], other["fc.bias"])
    with pytest.raises(UserError, match="'best'"):
        fit(both, wanted(small()), "f.pt", entry="best")


def test_weights_that_are_shared_may_be_stored_once() -> None:
    embed, out = nn.Embedding(5, 3), nn.Linear(3, 5, bias=False)
    out.weight = embed.weight
    model = nn.Sequential(OrderedDict(embed=embed, out=out))
    weight = torch.randn(5, 3)
    found = fit({"embed.weight": weight}, wanted(model), "f.pt")
    assert torch.equal(found.state["out.weight"], weight)
    assert found.notes == ("out.weight shares the weights of embed.weight",)


@pytest.mark.parametrize("slimmable", [False, True])
@pytest.mark.parametrize("projection", [False, True])
def test_fedaligns_networks_compute_the_same_here(slimmable: bool, projection: bool) -> None:
    published = FedMLResNet56(100, slimmable=slimmable, projection=projection).eval()
    for name, buffer in published.named_buffers():
        if "running" in name:
            buffer.uniform_(0.5, 1.5)
    ours = build("resnet56_bottleneck", 100, 3, torch.Generator(), head=projection).eval()
    found = fit(published.state_dict(), wanted(ours), "server.pt")
    ours.load_state_dict(found.state)
    x = torch.randn(2, 3, 32, 32)
    assert torch.allclose(ours(x), published(x), atol=1e-5)
    assert len(found.notes) == 1
    assert "conv1.weight to stem.0.weight" in found.notes[0]


def test_feddyns_network_and_its_flat_vectors_compute_the_same_here() -> None:
    published = ClientModel(10)
    ours = build("convnet_cifar", 10, 3, torch.Generator())
    x = torch.randn(2, 3, 32, 32)
    flat = torch.cat([p.detach().reshape(-1) for p in published.parameters()])
    for tensors in (published.state_dict(), {"": flat}):
        ours.load_state_dict(fit(tensors, wanted(ours), "f.pt").state)
        assert torch.allclose(ours(x), published(x), atol=1e-6)
    with pytest.raises(UserError, match=r"\(797961,\).*797962"):
        fit({"": flat[1:]}, wanted(ours), "f.pt")
    with pytest.raises(UserError, match=r"bn\.running_mean"):
        fit({"": torch.zeros(33)}, wanted(small()), "f.pt")
