"""What the papers say must hold between methods, and along a client's path."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fedscope.checkpoints.files import load_checkpoint
from fedscope.data.augment import Pipeline, Store
from fedscope.data.datasets import Split
from fedscope.federated.flat import FlatModel
from fedscope.federated.local import LocalTrainer
from fedscope.federated.method import Batch, Client
from fedscope.federated.methods import curvature, parse
from fedscope.federated.network import Network
from fedscope.federated.tasks import LocalSettings, Task, Trained
from fedscope.models.catalogue import build
from fedscope.streams import torch_stream
from tests.federated.cases import ending, options, step
from tests.federated.runs import trained
from tests.federated.test_laws import settings_of


class Double(Pipeline):
    def train(self, store: Store, rows: Tensor, draws: Tensor) -> Tensor:
        return super().train(store, rows, draws).double()


def client(method: str, settings: LocalSettings, **given: Any) -> Trained:
    """Train one client of a small perceptron in float64."""
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (24, 1, 8, 8), generator=generator, dtype=torch.uint8)
    split = Split(images, torch.randint(0, 10, (24,), generator=generator))
    model = FlatModel(build("mlp_digits", 10, 1, torch.Generator().manual_seed(1)).double())
    trainer = LocalTrainer(
        model, split, Double((0.5,), (0.25,)), parse(method), options(method, **given), settings, lr=0.1
    )
    task = Task(torch.arange(24), torch.Generator().manual_seed(2), torch.Generator())
    return trainer.train(model.values[0].clone(), model.counters.clone(), [task], 0.1)


STEPS = LocalSettings(epochs=2, batch_size=10, momentum=0.5, weight_decay=0.01, clip=2.0)


@pytest.mark.parametrize(
    ("method", "given", "host", "host_given"),
    [
        ("feddc", {"dc_alpha": 0.3}, "fedprox", {"prox_mu": 0.3}),
        ("feddyn", {"dyn_alpha": 0.3, "dyn_quadratic": "loss"}, "fedprox", {"prox_mu": 0.3}),
        ("fedspeed", {"dyn_alpha": 0.0, "speed_rho": 0.05}, "fedsam", {"sam_rho": 0.05}),
        ("fedspeed", {"dyn_alpha": 0.2, "speed_rho": 0.0}, "feddyn", {"dyn_alpha": 0.2}),
        ("scaffold", {}, "fedavg", {}),
        ("feddc", {"dc_alpha": 0.0}, "scaffold", {}),
    ],
)
def test_with_empty_memories_it_trains_like(
    method: str, given: dict[str, Any], host: str, host_given: dict[str, Any]
) -> None:
    ours, theirs = client(method, STEPS, **given), client(host, STEPS, **host_given)
    torch.testing.assert_close(ours.values, theirs.values, rtol=0, atol=1e-6)


def test_feddc_without_strength_has_scaffolds_gradient() -> None:
    c, c_k = torch.tensor([1.0, 3.0]), torch.tensor([0.25, 2.0])
    w = torch.tensor([0.3, -2.0], requires_grad=True)
    parts = {
        "received": {"scaffold.c": c, "dc.g": c},
        "memory": {"scaffold.c_k": c_k, "dc.g_k": c_k, "dc.h": c},
    }
    gradients = []
    for method in ("scaffold", "feddc"):
        given = {"dc_alpha": 0.0} if method == "feddc" else {}
        at = step(method, w, torch.zeros(2), parts, **given)
        gradients.append(torch.autograd.grad(parse(method).anchored[0](at), w)[0])
    assert torch.equal(*gradients)


def test_scaffolds_control_is_the_mean_gradient_of_the_path() -> None:
    """Momentum, clip and decay off: c_k⁺ is the mean of the raw task gradients, whatever c and c_k were."""
    plain = LocalSettings(epochs=2, batch_size=10)
    raw: list[Tensor] = []
    record = parse("scaffold")
    size = 2410
    generator = torch.Generator().manual_seed(5)
    c, c_k = torch.randn(2, size, generator=generator, dtype=torch.float64) / 50

    split_generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (24, 1, 8, 8), generator=split_generator, dtype=torch.uint8)
    split = Split(images, torch.randint(0, 10, (24,), generator=split_generator))
    model = FlatModel(build("mlp_digits", 10, 1, torch.Generator().manual_seed(1)).double())
    trainer = LocalTrainer(model, split, Double((0.5,), (0.25,)), record, options("scaffold"), plain)
    trainer.situation.received.copy_(c)
    descend = trainer._descend

    def watched(count: int, first: bool) -> None:
        raw.append(model.gradient[0] - (c - c_k))
        descend(count, first)

    trainer._descend = watched  # type: ignore[method-assign]
    task = Task(torch.arange(24), torch.Generator().manual_seed(2), torch.Generator(), memory=c_k)
    done = trainer.train(model.values[0].clone(), model.counters.clone(), [task], 0.1)
    assert len(raw) == 6
    torch.testing.assert_close(done.memory[0], torch.stack(raw).mean(0), rtol=0, atol=1e-12)
    torch.testing.assert_close(done.uploads[0], torch.stack(raw).mean(0) - c_k, rtol=0, atol=1e-12)


def test_where_feddyn_ends_exactly_its_memory_is_the_gradient() -> None:
    """∇ℓ_k(w_k) = −α h_k(new) at the minimum of the local objective: on ½a(w − b)²."""
    a, b, alpha, theta, h = 4.0, 3.0, 0.5, 1.0, 0.25
    w = (a * b + alpha * (theta - h)) / (a + alpha)  # a(w − b) + α(w − θ + h) = 0
    point = torch.tensor([[w]])
    end = ending("feddyn", point, torch.tensor([[theta]]), memory={"dyn.h": torch.tensor([[h]])})
    new = parse("feddyn").finish[0](end)["dyn.h"].item()
    assert a * (w - b) == pytest.approx(-alpha * new)
    at = step("feddyn", point[0].requires_grad_(), torch.tensor([theta]),
              {"memory": {"dyn.h": torch.tensor([h])}}, dyn_alpha=alpha)  # fmt: skip
    (slope,) = torch.autograd.grad(parse("feddyn").anchored[0](at), at.parameters)
    assert (slope + parse("feddyn").corrections[0](at)).item() == pytest.approx(-a * (w - b))


def test_fedprox_ends_between_the_client_and_the_server() -> None:
    a, b, mu, theta = 4.0, 3.0, 2.0, 1.0
    w = torch.zeros(1)
    for _ in range(500):
        leaf = w.clone().requires_grad_()
        term = parse("fedprox").anchored[0](step("fedprox", leaf, torch.tensor([theta]), prox_mu=mu))
        w = w - 0.05 * (a * (w - b) + torch.autograd.grad(term, leaf)[0])
    assert w.item() == pytest.approx((a * b + mu * theta) / (a + mu), abs=1e-5)


def test_an_ascent_restores_the_weights_exactly() -> None:
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (20, 1, 8, 8), generator=generator, dtype=torch.uint8)
    split = Split(images, torch.randint(0, 10, (20,), generator=generator))
    model = FlatModel(build("resnet_digits", 10, 1, generator))
    record = parse("fedsam")
    trainer = LocalTrainer(
        model, split, Pipeline((0.5,), (0.25,)), record, options("fedsam"), LocalSettings(1, 20)
    )
    before = model.values[:, : model.size].clone()
    batch = Batch(Pipeline((0.5,), (0.25,)).test(images), split.labels[None])
    trainer.situation.begin([Task(torch.arange(20), generator, generator)], model.values[0].clone(), 0.1)
    model.module.train()
    trainer.objective.differentiate(batch, {}, first=True)
    assert torch.equal(model.values[:, : model.size], before)
    assert model.gradient.any()


def test_two_clients_with_the_same_batches_make_fedbn_fedavg(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their BatchNorm stays the same, and is then what FedAvg averages."""

    def alike(settings: Any, dataset: Any) -> list[Tensor]:
        return [torch.arange(60), torch.arange(60)]

    def same_stream(seed: int, purpose: str, round: int = 0, client: int = 0) -> torch.Generator:
        return torch_stream(seed, purpose, round, 0)

    monkeypatch.setattr("fedscope.federated.federation._divide", alike)
    monkeypatch.setattr("fedscope.federated.dispatch.torch_stream", same_stream)
    runs = [
        trained(
            tmp_path, settings_of(method, clients=2, model="resnet_digits", weights="uniform"), name=method
        )
        for method in ("fedbn", "fedavg")
    ]
    states = [load_checkpoint(run.final).state for run in runs]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


@pytest.mark.parametrize(("labels", "batch"), [("empirical", False), ("model", False), ("empirical", True)])
def test_the_fisher_information_by_hand(labels: str, batch: bool) -> None:
    """Of softmax regression on scalars, from its closed form: gradients (p − e_y)x."""
    model = FlatModel(nn.Linear(1, 2, bias=False).double())
    model.values[0] = torch.tensor([0.3, -0.4], dtype=torch.float64)
    x = torch.linspace(-1, 2, 40, dtype=torch.float64)[:, None]
    y = (torch.arange(40) % 3 == 0).long()
    end = ending(
        "fedcurv", model.values[:, :2], model.values[:, :2], values=model.values, batch_size=8,
        network=Network(model, bf16=False),
        client=lambda _: Client(x, y, lambda name: torch.Generator().manual_seed(3)),
        given={"fisher": labels, "fisher_batch": batch},
    )  # fmt: skip
    chance = (x @ model.values[:, :2]).softmax(1)
    if labels == "model":
        y = torch.multinomial(chance, 1, generator=torch.Generator().manual_seed(3))[:, 0]
    gradients = (chance - nn.functional.one_hot(y, 2)) * x
    squares = gradients.view(5, 8, 2).mean(1).square() if batch else gradients.square()
    found = curvature.fisher(end, 0)
    assert (found >= 0).all()
    torch.testing.assert_close(found, squares.mean(0))
