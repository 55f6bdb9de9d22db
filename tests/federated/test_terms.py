from typing import Any

import pytest
import torch
from torch import Tensor

from fedscope.federated.local import tapped
from fedscope.federated.method import Finish, ServerStep, Step, Value
from fedscope.federated.methods import METHODS
from fedscope.federated.methods.activation_norm import activation_norm, relu_outputs
from fedscope.federated.methods.dynamic import decay, dynamic, remember, server
from fedscope.federated.methods.proximal import proximal
from fedscope.models.catalogue import build


def step(name: str, first_of_epoch: bool = False, **parts: object) -> Step:
    options: dict[str, Value] = dict(METHODS[name].values({}, "paper"))
    options.update(parts.pop("options", {}))  # type: ignore[call-overload]
    content = {"parameters": torch.zeros(0), "anchor": torch.zeros(0), "activations": {}} | parts
    rest = {"share": torch.ones(()), "memory": {}, "logits": torch.zeros(1, 1)} | content
    return Step(**rest, options=options, first_of_epoch=first_of_epoch)  # type: ignore[arg-type]


TAPS = {"fc": torch.tensor([[1.0, 2.0], [3.0, 4.0]]), "conv": torch.full((2, 1, 2, 2), 2.0)}


@pytest.mark.parametrize(("half", "value"), [(False, 1.725), (True, 0.8625)])
def test_man_by_hand(half: bool, value: float) -> None:
    # R = 7.5 + 4 = 11.5 (Yashwanth et al. 2024, Eq. 16), ζ = 0.15
    term = activation_norm(step("man", activations=TAPS, options={"man.half": half}))
    assert term.item() == pytest.approx(value)


def test_man_can_include_the_logits() -> None:
    logits = torch.tensor([[3.0, 1.0]])
    term = activation_norm(step("man", activations=TAPS, logits=logits, options={"man.include_logits": True}))
    assert term.item() == pytest.approx(0.15 * (11.5 + 5))


def test_man_scales_with_the_square_and_ignores_duplication() -> None:
    value = activation_norm(step("man", activations=TAPS)).item()
    scaled = activation_norm(step("man", activations={k: 3 * v for k, v in TAPS.items()})).item()
    doubled = activation_norm(step("man", activations={k: torch.cat([v, v]) for k, v in TAPS.items()})).item()
    assert scaled == pytest.approx(9 * value)
    assert doubled == pytest.approx(value)


@pytest.mark.parametrize(
    ("name", "side", "count"), [("convnet_cifar", 32, 4), ("resnet56_bottleneck", 32, 55)]
)
def test_man_taps_every_relu_and_leaves_no_hook(name: str, side: int, count: int) -> None:
    model = build(name, 10, 3, torch.Generator().manual_seed(0))
    with tapped(model, relu_outputs(model)) as activations:
        model(torch.ones(1, 3, side, side))
        assert len(activations) == count
        assert all((a >= 0).all() for a in activations.values())
    activations.clear()
    model(torch.ones(1, 3, side, side))
    assert not activations


def test_man_taps_before_pooling() -> None:
    model = build("convnet_cifar", 10, 3, torch.Generator().manual_seed(0))
    with tapped(model, relu_outputs(model)) as activations:
        model(torch.ones(1, 3, 32, 32))
    shapes = [tuple(a.shape[1:]) for a in activations.values()]
    assert shapes == [(64, 28, 28), (64, 10, 10), (384,), (192,)]


def vector(*values: float) -> Tensor:
    return torch.tensor(values, requires_grad=True)


def test_the_proximal_gradient_is_mu_times_the_displacement() -> None:
    w, anchor = vector(1.0, 2.0, 3.0), torch.tensor([0.0, 4.0, 3.0])
    term = proximal(step("fedprox", parameters=w, anchor=anchor, options={"prox.mu": 0.5}))
    assert term.item() == pytest.approx(0.25 * 5)
    assert torch.autograd.grad(term, w)[0].tolist() == pytest.approx([0.5, -1.0, 0.0])


def test_the_unsquared_form() -> None:
    w = vector(3.0, 4.0)
    term = proximal(
        step("fedprox", parameters=w, anchor=torch.zeros(2), options={"prox.mu": 2.0, "prox.form": "norm"})
    )
    assert term.item() == pytest.approx(5.0)
    assert torch.autograd.grad(term, w)[0].tolist() == pytest.approx([0.6, 0.8])


def test_the_unsquared_form_has_gradient_zero_at_the_anchor() -> None:
    w = vector(1.0, 2.0)
    term = proximal(step("fedprox", parameters=w, anchor=w.detach(), options={"prox.form": "norm"}))
    assert torch.autograd.grad(term, w)[0].tolist() == [0.0, 0.0]


def test_skipping_the_first_batch() -> None:
    w, anchor = vector(1.0), torch.zeros(1)
    options = {"prox.skip": "first_batch_of_epoch", "prox.mu": 1.0}
    assert proximal(step("fedprox", True, parameters=w, anchor=anchor, options=options)).item() == 0
    assert proximal(step("fedprox", False, parameters=w, anchor=anchor, options=options)).item() == 0.5


def test_feddyn_by_hand() -> None:
    # α = 0.5 on a client twice the mean size: α_k = 0.25. α_k(w − θ + h) is split between loss and decay.
    w, anchor, memory = vector(1.0, 2.0), torch.tensor([0.5, 0.0]), {"dyn.h": torch.tensor([0.25, -1.0])}
    parts: dict[str, Any] = {"parameters": w, "anchor": anchor, "memory": memory, "share": torch.tensor(2.0)}
    for quadratic in ("loss", "weight_decay"):
        at = step("feddyn", **parts, options={"dyn.alpha": 0.5, "dyn.quadratic": quadratic})
        (gradient,) = torch.autograd.grad(dynamic(at), w)
        total = gradient + decay(at)
        assert total.tolist() == pytest.approx([0.25 * 0.75, 0.25 * 1.0])
        assert (decay(at) == 0).all() == (quadratic == "loss")


def test_feddyn_remembers_and_serves() -> None:
    kept = remember(
        Finish(torch.tensor([[3.0]]), torch.tensor([[1.0]]), {"dyn.h": torch.tensor([[0.5]])}, {})
    )
    assert kept["dyn.h"].item() == 2.5
    # θ_1 = w̄ + (m/N)(w̄ − θ_0); with everyone 2w̄ − θ_0 (Acar et al. 2021)
    for m, expected in ((4, 5.0), (1, 3.5)):
        at = ServerStep(torch.tensor([3.0]), torch.tensor([1.0]), {"dyn.h": torch.zeros(1)}, m, 4, {})
        assert server(at)[0].item() == expected
