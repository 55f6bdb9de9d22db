"""What the papers say must hold between methods, and along a client's path."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from fedscope.checkpoints.file.checkpoint import load_checkpoint
from fedscope.data.augment import Pipeline, Store
from fedscope.data.loading.datasets import Split
from fedscope.data.partition.division import Divided, Divides
from fedscope.federated.client.local_loop import LocalTrainer
from fedscope.federated.methods import curvature, parse
from fedscope.federated.record.flat import FlatModel
from fedscope.federated.record.network import Network
from fedscope.federated.record.tasks import Client, LocalSettings, Task, Trained
from fedscope.federated.record.views import Batch
from fedscope.models.catalogue import build
from fedscope.streams import torch_stream
from fedscope.task_loss import IGNORED, TaskLoss
from tests.federated.cases import ending, options, stacked, step
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
        ("feddyn+fedsam", {"sam_rho": 0.05}, "fedspeed", {"speed_rho": 0.05}),
        ("scaffold+fedsam", {}, "fedsam", {}),
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
        gradients.append(torch.autograd.grad(parse(method).parameter_terms[0](at), w)[0])
    assert torch.equal(*gradients)


@pytest.mark.parametrize(("momentum", "nesterov"), [(0.0, False), (0.9, False), (0.9, True)])
@pytest.mark.parametrize(
    ("method", "given"), [("scaffold", {}), ("scaffold", {"scaffold_apply": "after_step"}), ("feddc", {})]
)
def test_a_control_variate_is_the_mean_gradient_of_the_path(
    method: str, given: dict[str, str], momentum: float, nesterov: bool
) -> None:
    """Clip and decay off: the mean of the raw gradients, each as often as the path counts it."""
    record, chosen = parse(method), options(method, **given)
    if method == "feddc":
        chosen["dc.alpha"] = 0.0
    raw: list[Tensor] = []
    size = 2410
    generator = torch.Generator().manual_seed(5)
    c, c_k = torch.randn(2, size, generator=generator, dtype=torch.float64) / 50
    images = torch.randint(
        0, 256, (24, 1, 8, 8), generator=torch.Generator().manual_seed(0), dtype=torch.uint8
    )
    split = Split(images, torch.randint(0, 10, (24,), generator=generator))
    model = FlatModel(build("mlp_digits", 10, 1, torch.Generator().manual_seed(1)).double())
    settings = LocalSettings(epochs=2, batch_size=10, momentum=momentum, nesterov=nesterov)
    trainer = LocalTrainer(model, split, Double((0.5,), (0.25,)), record, chosen, settings)
    trainer.clients.received.copy_(c)
    descend = trainer._descend
    inside = 0.0 if given else 1.0

    def watched(count: int, first: bool) -> None:
        raw.append(model.gradient[0] - inside * (c - c_k))
        descend(count, first)

    trainer._descend = watched  # type: ignore[method-assign]
    memory = c_k if method == "scaffold" else torch.cat([torch.zeros_like(c_k), c_k])
    task = Task(torch.arange(24), torch.Generator().manual_seed(2), torch.Generator(), memory=memory)
    done = trainer.train(model.values[0].clone(), model.counters.clone(), [task], 0.1)
    assert len(raw) == 6
    powers = momentum ** torch.arange(7, dtype=torch.float64)
    weights = torch.stack([powers[: 6 - s + nesterov].sum() for s in range(6)])
    mean = (weights / weights.sum()) @ torch.stack(raw)
    torch.testing.assert_close(done.memory[0, -size:], mean, rtol=0, atol=1e-12)
    torch.testing.assert_close(done.uploads[0], mean - c_k, rtol=0, atol=1e-12)


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
    (slope,) = torch.autograd.grad(parse("feddyn").parameter_terms[0](at), at.parameters)
    assert (slope + parse("feddyn").after_clip[0](stacked(at))).item() == pytest.approx(-a * (w - b))


def test_fedprox_ends_between_the_client_and_the_server() -> None:
    a, b, mu, theta = 4.0, 3.0, 2.0, 1.0
    w = torch.zeros(1)
    for _ in range(500):
        leaf = w.clone().requires_grad_()
        term = parse("fedprox").parameter_terms[0](step("fedprox", leaf, torch.tensor([theta]), prox_mu=mu))
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
    trainer.clients.load(
        [Task(torch.arange(20), generator, generator)], model.values[0].clone(), 0.1, trainer.split.labels
    )
    model.module.train()
    trainer.objective.differentiate(batch, {}, first=True)
    assert torch.equal(model.values[:, : model.size], before)
    assert model.gradient.any()


def test_two_clients_with_the_same_batches_make_fedbn_fedavg(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their BatchNorm stays the same, and is then what FedAvg averages."""

    def alike(split: Split, settings: Divides, round: int = 1) -> Divided:
        return Divided([torch.arange(60), torch.arange(60)], torch.arange(0))

    def same_stream(seed: int, purpose: str, round: int = 0, client: int = 0) -> torch.Generator:
        return torch_stream(seed, purpose, round, 0)

    monkeypatch.setattr("fedscope.federated.setup.run_samples.divided", alike)
    monkeypatch.setattr("fedscope.federated.parallel.training_round.torch_stream", same_stream)
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
        client=lambda _: Client(y, lambda part: x[part], lambda name: torch.Generator().manual_seed(3)),
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


def test_the_fisher_information_of_text_by_hand() -> None:
    """Of a table of next tokens: gradients Σ_t (p_t − e_t)/n̄ in the rows of the inputs, padding left out."""
    draw, flat = torch.Generator().manual_seed(0), FlatModel(nn.Embedding(3, 3).double())
    x, y = torch.randint(3, (2, 6, 4), generator=draw)
    y[:3, 2:] = IGNORED
    loss = TaskLoss(tokens=3.0)
    end = ending(
        "fedcurv", flat.values, flat.values, values=flat.values, batch_size=4,
        network=Network(flat, bf16=False, loss=loss), given={"fisher": "model"},
        client=lambda _: Client(y, lambda part: x[part], lambda name: torch.Generator().manual_seed(3)),
    )  # fmt: skip
    chance = flat.values.view(3, 3)[x].softmax(-1)
    drawn = torch.multinomial(chance.view(24, 3), 1, generator=torch.Generator().manual_seed(3)).view(6, 4)
    error = (chance - nn.functional.one_hot(drawn, 3)) * (y != IGNORED)[..., None] / 3
    gradients = nn.functional.one_hot(x, 3).double().transpose(1, 2) @ error  # (6, input, output)
    torch.testing.assert_close(curvature.fisher(end, 0), gradients.square().mean(0).flatten())


@pytest.mark.parametrize(
    ("method", "given"),
    [("scaffold", {"scaffold_option": "I"}), ("fedcurv", {"fisher": "model", "fisher_batch": True})],
)
def test_a_pass_after_training_holds_a_batch_at_a_time(method: str, given: dict[str, Any]) -> None:
    """No tensor grows with the client, and a sum of gradients never holds one per sample."""
    model = FlatModel(build("mlp_digits", 10, 1, torch.Generator().manual_seed(1)))
    w = model.values[:, : model.size]

    def largest(samples: int) -> int:
        images, labels = torch.zeros(samples, 1, 8, 8), torch.zeros(samples, dtype=torch.int64)
        client = Client(labels, lambda part: images[part].clone(), lambda _: torch.Generator())
        end = ending(
            method, w, w, values=model.values, start=model.values, batch_size=16, client=lambda _: client,
            network=Network(model, bf16=False), memory={"scaffold.c_k": w}, given=given,
        )  # fmt: skip
        seen = Largest()
        with seen:
            parse(method).finish[0](end)
        return seen.numbers

    assert largest(64) <= largest(480) <= 2 * model.size < 480 * 64


class Largest(TorchDispatchMode):
    """Keeps the size of the largest tensor that an operation returns."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.numbers = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        self.numbers = max([self.numbers, *(t.numel() for t in tree_leaves(found) if isinstance(t, Tensor))])
        return found


def test_a_gradient_over_a_batch_is_the_sum_of_its_samples() -> None:
    """To 1e-6 of its size, with BatchNorm's running statistics and weights in single precision."""
    model = FlatModel(build("resnet_digits", 10, 1, torch.Generator().manual_seed(1)))
    network, generator = Network(model, bf16=False), torch.Generator().manual_seed(2)
    images = torch.randn(40, 1, 8, 8, generator=generator)
    labels = torch.randint(0, 10, (40,), generator=generator)
    each = torch.cat(list(network.gradients(model.values[0], images, labels))).sum(0)
    whole = network.gradient(model.values[0], images, labels)
    assert (whole - each).norm() < 1e-6 * each.norm()
