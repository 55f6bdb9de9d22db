"""The local step against an independent, straight-line transcription of its definition."""

import copy
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedscope.data.augment import Pipeline, Store
from fedscope.data.loading.datasets import Split
from fedscope.federated.client.local_loop import LocalTrainer
from fedscope.federated.costs.training_cost import points
from fedscope.federated.methods import parse
from fedscope.federated.record.flat import FlatModel
from fedscope.federated.record.method import Gradient, Method
from fedscope.federated.record.tasks import LocalSettings, Task
from fedscope.federated.record.views import Stack
from fedscope.models.catalogue import build
from fedscope.models.resnet import blocks
from fedscope.models.stochastic_depth import gated

PIPELINE = Pipeline((0.5,), (0.25,))
SETTINGS = LocalSettings(epochs=2, batch_size=4, momentum=0.9, nesterov=True, weight_decay=0.01, clip=0.5)
LR = 0.1


def toy() -> tuple[nn.Module, Split]:
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (12, 1, 3, 3), generator=generator, dtype=torch.uint8)
    split = Split(images, torch.randint(0, 3, (12,), generator=generator))
    model = nn.Sequential(nn.Flatten(), nn.Linear(9, 5), nn.ReLU(), nn.Linear(5, 3)).double()
    for p in model.parameters():
        nn.init.uniform_(p, -0.6, 0.6, generator=generator)
    return model, split


class Double(Pipeline):
    def train(self, store: Store, rows: Tensor, draws: Tensor) -> Tensor:
        return super().train(store, rows, draws).double()


def run(
    model: nn.Module,
    split: Split,
    rows: Tensor,
    method: str,
    settings: LocalSettings,
    lr: float = LR,
    **given: Any,
) -> float:
    """Train ``model`` in place; return the loss."""
    record = parse(method)
    options = record.values({k.replace("_", ".", 1): v for k, v in given.items()}, "paper")
    flat = FlatModel(model)
    trainer = LocalTrainer(flat, split, Double((0.5,), (0.25,)), record, options, settings)
    task = Task(rows, torch.Generator().manual_seed(1), torch.Generator().manual_seed(2))
    return trainer.train(flat.values[0].clone(), flat.counters.clone(), [task], lr).loss.item()


def by_hand(
    model: nn.Module, split: Split, rows: Tensor, mu: float, zeta: float, s: LocalSettings
) -> list[Tensor]:
    """Spell out the step: loss, terms, clip, weight decay, Nesterov momentum."""
    w1, b1, w2, b2 = (p.detach().clone() for p in model.parameters())
    theta = [t.clone() for t in (w1, b1, w2, b2)]
    images = split.images
    assert isinstance(images, Tensor)
    velocity: list[Tensor] | None = None
    order_stream = torch.Generator().manual_seed(1)
    for _ in range(s.epochs):
        order = rows[torch.randperm(len(rows), generator=order_stream)]
        for start in range(0, len(order), s.batch_size):
            batch = order[start : start + s.batch_size]
            x = ((images[batch].float() / 255 - 0.5) / 0.25).double().flatten(1)
            leaves = [t.clone().requires_grad_(True) for t in (w1, b1, w2, b2)]
            hidden = (x @ leaves[0].T + leaves[1]).clamp(min=0)
            loss = cross_entropy(hidden @ leaves[2].T + leaves[3], split.labels[batch])
            loss = loss + zeta * (hidden**2).mean()
            loss = loss + mu / 2 * sum(
                (((a - b) ** 2).sum() for a, b in zip(leaves, theta, strict=True)), torch.zeros(())
            )
            grads = torch.autograd.grad(loss, leaves)
            norm = torch.cat([g.flatten() for g in grads]).norm()
            scale = min(1.0, s.clip / (norm.item() + 1e-6)) if s.clip is not None else 1.0
            d = [g * scale + s.weight_decay * w for g, w in zip(grads, (w1, b1, w2, b2), strict=True)]
            velocity = (
                d if velocity is None else [s.momentum * v + g for v, g in zip(velocity, d, strict=True)]
            )
            d = [g + s.momentum * v for g, v in zip(d, velocity, strict=True)]
            w1, b1, w2, b2 = (w - LR * g for w, g in zip((w1, b1, w2, b2), d, strict=True))
    return [w1, b1, w2, b2]


@pytest.mark.parametrize(
    ("method", "given", "mu", "zeta"),
    [
        ("fedavg", {}, 0.0, 0.0),
        ("fedprox", {"prox_mu": "0.7"}, 0.7, 0.0),
        ("man", {"man_zeta": "0.3"}, 0.0, 0.3),
        ("fedprox+man", {"prox_mu": "0.7", "man_zeta": "0.3"}, 0.7, 0.3),
    ],
)
def test_against_the_definition(method: str, given: dict[str, str], mu: float, zeta: float) -> None:
    model, split = toy()
    rows = torch.tensor([0, 2, 3, 5, 6, 7, 8, 9, 10, 11])  # batches of 4, 4, 2: the ragged one is used
    expected = by_hand(model, split, rows, mu, zeta, SETTINGS)
    run(model, split, rows, method, SETTINGS, LR, **given)
    for p, w in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(p.detach(), w, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("kind", "peer"), [("adam", torch.optim.Adam), ("adamw", torch.optim.AdamW)])
@pytest.mark.parametrize("beta1", [0.0, 0.8])
def test_adam_is_pytorchs(kind: Any, peer: Any, beta1: float) -> None:
    model, split = toy()
    other, order = copy.deepcopy(model), torch.Generator().manual_seed(1)
    settings = replace(
        SETTINGS, momentum=0.0, nesterov=False, optimizer=kind, beta1=beta1, beta2=0.95, eps=1e-3
    )
    optimizer = peer(other.parameters(), LR, betas=(beta1, 0.95), eps=1e-3, weight_decay=0.01)
    for _ in range(2):
        for batch in torch.randperm(12, generator=order).split(4):
            optimizer.zero_grad()
            inputs = Double((0.5,), (0.25,)).test(split.images, batch).double()
            cross_entropy(other(inputs), split.labels[batch]).backward()
            nn.utils.clip_grad_norm_(other.parameters(), 0.5)
            optimizer.step()
    run(model, split, torch.arange(12), "fedavg", settings)
    for p, w in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(p, w, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    ("steps", "sizes"), [(1, [5]), (3, [5, 5, 2]), (7, [5, 5, 2, 5, 5, 2, 5])]
)  # fmt: skip
def test_a_budget_of_steps_goes_on_through_the_shuffled_data(steps: int, sizes: list[int]) -> None:
    """So many batches, of passes that are each a permutation; two whole passes are two epochs."""
    model, split = toy()
    seen: list[Tensor] = []

    class Watching(Double):
        def train(self, store: Store, rows: Tensor, draws: Tensor) -> Tensor:
            seen.append(rows)
            return super().train(store, rows, draws)

    def trained(settings: LocalSettings) -> Tensor:
        flat = FlatModel(copy.deepcopy(model))
        trainer = LocalTrainer(flat, split, Watching((0.5,), (0.25,)), parse("fedavg"), {}, settings)
        task = Task(torch.arange(12), torch.Generator().manual_seed(1), torch.Generator())
        return trainer.train(flat.values[0].clone(), flat.counters.clone(), [task], LR).values

    trained(LocalSettings(9, 5, local_steps=steps))
    assert [len(rows) for rows in seen] == sizes
    assert all(sorted(torch.cat(seen[p : p + 3]).tolist()) == list(range(12)) for p in range(0, steps - 2, 3))
    assert torch.equal(trained(LocalSettings(9, 5, local_steps=6)), trained(LocalSettings(2, 5)))


@pytest.mark.parametrize(
    ("settings", "fewer"),
    [
        (LocalSettings(4, 5), LocalSettings(2, 5)),
        (LocalSettings(1, 5, local_steps=9), LocalSettings(1, 5, local_steps=2)),
    ],
)
def test_a_straggler_makes_the_first_of_the_steps(settings: LocalSettings, fewer: LocalSettings) -> None:
    ends = []
    for local, work in ((settings, 2), (fewer, None)):
        model, split = toy()
        flat = FlatModel(model)
        trainer = LocalTrainer(flat, split, Double((0.5,), (0.25,)), parse("fedavg"), {}, local)
        task = Task(torch.arange(12), torch.Generator().manual_seed(1), torch.Generator(), work=work)
        ends.append(trainer.train(flat.values[0].clone(), flat.counters.clone(), [task], LR))
    assert torch.equal(ends[0].values, ends[1].values)
    assert ends[0].gradients.item() == (6 if fewer.local_steps is None else 2)


def test_the_first_step_of_fedprox_is_fedavgs() -> None:
    plain, split = toy()
    other, one = copy.deepcopy(plain), LocalSettings(epochs=1, batch_size=12)
    run(plain, split, torch.arange(12), "fedavg", one)
    run(other, split, torch.arange(12), "fedprox", one, prox_mu="100")
    assert all(torch.equal(a, b) for a, b in zip(plain.parameters(), other.parameters(), strict=True))


def test_a_larger_mu_moves_less() -> None:
    moved = []
    for mu in ("0", "0.1", "1", "5"):
        model, split = toy()
        before = torch.cat([p.detach().flatten() for p in model.parameters()])
        run(model, split, torch.arange(12), "fedprox", LocalSettings(5, 4), lr=0.05, prox_mu=mu)
        moved.append((torch.cat([p.detach().flatten() for p in model.parameters()]) - before).norm().item())
    assert moved == sorted(moved, reverse=True)
    assert moved[0] > 2 * moved[-1]


def test_rate_zero_leaves_the_weights() -> None:
    model, split = toy()
    before = copy.deepcopy(model)
    loss = run(model, split, torch.arange(12), "fedavg", LocalSettings(1, 12), lr=0.0)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), before.parameters(), strict=True))
    inputs = Double((0.5,), (0.25,)).test(split.images).double()
    assert loss == pytest.approx(cross_entropy(model(inputs), split.labels).item())


@pytest.mark.parametrize("name", ["mlp_digits", "resnet_digits"])
@pytest.mark.parametrize("method", ["fedavg", "feddyn+man"])
@pytest.mark.parametrize("settings", [SETTINGS, LocalSettings(1, 4, optimizer="adamw", local_steps=5)])
def test_a_stack_is_its_clients_one_by_one(name: str, method: str, settings: LocalSettings) -> None:
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (60, 1, 8, 8), generator=generator, dtype=torch.uint8)
    split = Split(images, torch.randint(0, 10, (60,), generator=generator))
    record = parse(method)
    options = record.values({}, "paper")
    results = []
    for stack in (1, 3):
        flat = FlatModel(build(name, 10, 1, torch.Generator().manual_seed(1)).double(), stack)
        trainer = LocalTrainer(flat, split, Double((0.5,), (0.25,)), record, options, settings)
        memory = torch.linspace(-1, 1, trainer.clients.memory.width, dtype=torch.float64)
        tasks = [
            Task(
                torch.arange(20 * k, 20 * k + 10), torch.Generator().manual_seed(k), torch.Generator(),
                relative_size=k + 0.5, memory=memory * k if record.memory else None,
            )
            for k in range(3)
        ]  # fmt: skip
        start, counters = flat.values[0].clone(), flat.counters.clone()
        done = [trainer.train(start, counters, tasks[k : k + stack], LR) for k in range(0, 3, stack)]
        results.append(
            (
                torch.cat([d.values for d in done]),
                torch.cat([d.memory for d in done]),
                torch.cat([d.loss for d in done]),
                done[-1].counters,
            )
        )
    for alone, stacked in zip(*results, strict=True):
        torch.testing.assert_close(stacked, alone, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("given", [{"momentum": 0.9}, {"optimizer": "adam", "eps": 1e-4}])
def test_a_clients_momentum_may_outlive_the_round(given: dict[str, Any]) -> None:
    """Two rounds of one full-batch step each are then two steps of one round."""
    ends = []
    for epochs, state in ((2, "round"), (1, "client"), (1, "round")):
        model, split = toy()
        flat, record = FlatModel(model), parse("fedavg")
        settings = LocalSettings(epochs, 12, optimizer_state=state, **given)  # type: ignore[arg-type]
        trainer = LocalTrainer(flat, split, Double((0.5,), (0.25,)), record, {}, settings)
        start, memory = flat.values[0].clone(), None
        for _ in range(3 - epochs):
            task = Task(torch.arange(12), torch.Generator(), torch.Generator(), memory=memory)
            done = trainer.train(start, flat.counters.clone(), [task], LR)
            start, memory = done.values[0], done.memory[0]
        ends.append(start)
    torch.testing.assert_close(ends[1], ends[0], rtol=1e-12, atol=1e-12)
    assert not torch.allclose(ends[2], ends[0])


@pytest.mark.parametrize(("size", "steps", "used"), [(64, 2, 64), (70, 2, 64), (20, 1, 20), (32, 1, 32)])
def test_dropping_the_last_batch_keeps_at_least_one(size: int, steps: int, used: int) -> None:
    settings = LocalSettings(1, 32, drop_last=True)
    assert (settings.steps(size), settings.used(size)) == (steps, used)
    whole = LocalSettings(1, 32)
    assert (whole.steps(size), whole.used(size)) == (-(-size // 32), size)


def test_the_samples_that_are_not_used_are_not_seen() -> None:
    model, split = toy()
    flat = FlatModel(model)
    settings = LocalSettings(1, 5, drop_last=True)
    seen: list[int] = []

    class Counting(Double):
        def train(self, store: Store, rows: Tensor, draws: Tensor) -> Tensor:
            seen.append(len(rows))
            return super().train(store, rows, draws)

    trainer = LocalTrainer(flat, split, Counting((0.5,), (0.25,)), parse("fedavg"), {}, settings)
    task = Task(torch.arange(12), torch.Generator(), torch.Generator())
    trainer.train(flat.values[0].clone(), flat.counters.clone(), [task], LR)
    assert seen == [5, 5]


def test_a_stack_is_clients_of_one_size() -> None:
    model, split = toy()
    flat = FlatModel(model, 2)
    trainer = LocalTrainer(flat, split, Double((0.5,), (0.25,)), parse("fedavg"), {}, SETTINGS)
    tasks = [Task(torch.arange(n), torch.Generator(), torch.Generator()) for n in (3, 4)]
    with pytest.raises(ValueError, match="of one size and work"):
        trainer.train(flat.values[0].clone(), flat.counters.clone(), tasks, LR)


def test_bf16_is_near_fp32_and_not_it() -> None:
    ends = []
    for precision in ("fp32", "bf16"):
        generator = torch.Generator().manual_seed(0)
        split = Split(
            torch.randint(0, 256, (64, 1, 8, 8), generator=generator, dtype=torch.uint8),
            torch.randint(0, 10, (64,), generator=generator),
        )
        flat = FlatModel(build("mlp_digits", 10, 1, torch.Generator().manual_seed(1)))
        settings = LocalSettings(2, 16, precision=precision)
        record = parse("man")
        trainer = LocalTrainer(
            flat, split, Pipeline((0.5,), (0.25,)), record, record.values({}, "paper"), settings
        )
        task = Task(torch.arange(64), torch.Generator(), torch.Generator())
        ends.append(trainer.train(flat.values[0].clone(), flat.counters.clone(), [task], 0.05).values)
        assert ends[-1].dtype == torch.float32
    moved = (ends[0] - ends[1]).norm() / ends[0].norm()
    assert 0 < moved < 0.01


def reused(gradient: Gradient, step: Stack) -> Tensor:
    """An ascent along the last step's gradient: one gradient a step, as FedLESAM along the server's."""
    return gradient(step.parameters + (0.1 if step.last_gradient is None else 0.1 * step.last_gradient))


def lazy(gradient: Gradient, step: Stack) -> Tensor:
    """An ascent that is computed in the first step of an epoch only."""
    return (
        gradient(step.parameters + gradient(step.parameters))
        if step.first_of_epoch
        else reused(gradient, step)
    )


@pytest.mark.parametrize("stack", [1, 2])
@pytest.mark.parametrize(
    ("method", "count", "per_step"),
    [
        (parse("fedavg"), 6, 1),
        (parse("fedsam"), 12, 2),
        (parse("fedspeed"), 12, 2),
        (Method("one", "", "", gradient_at=reused, last_gradient=True), 6, 1),
        (Method("lazy", "", "", gradient_at=lazy, last_gradient=True), 8, 1),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_gradients_are_counted_where_they_are_computed(
    method: Method, count: int, per_step: int, stack: int
) -> None:
    model, split = toy()
    flat = FlatModel(model, stack)
    options = method.values({}, "paper")
    trainer = LocalTrainer(flat, split, Double((0.5,), (0.25,)), method, options, SETTINGS)
    start = flat.values[0].clone()
    for _ in range(2):
        tasks = [Task(torch.arange(12), torch.Generator(), torch.Generator()) for _ in range(stack)]
        done = trainer.train(start, flat.counters.clone(), tasks, LR)
        assert done.gradients.tolist() == [count] * stack
    assert len(points(method, trainer.clients)) == per_step


def test_a_dropped_branch_decays_and_coasts() -> None:
    """As with PyTorch 1.8's ``zero_grad()``, which leaves zeros; one that leaves none lets a branch rest."""
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (24, 1, 8, 8), generator=generator, dtype=torch.uint8)
    split = Split(images, torch.randint(0, 10, (24,), generator=generator))
    record, settings = parse("stochdepth"), LocalSettings(3, 8, momentum=0.9, nesterov=True, weight_decay=0.1)
    gates = [[not step or bool((step + block) % 3) for block in range(9)] for step in range(9)]

    def network() -> nn.Module:
        return build("resnet_digits", 10, 1, torch.Generator().manual_seed(1), keep=0.5).double()

    flat = FlatModel(network())
    count = len(blocks(flat.module))
    drawn = iter(gates)
    draws = {"stochdepth": lambda *_: next(drawn)[:count]}
    trainer = LocalTrainer(
        flat, split, Double((0.5,), (0.25,)), replace(record, draws=draws),
        record.values({}, "paper"), settings,
    )  # fmt: skip
    task = Task(
        torch.arange(24), torch.Generator().manual_seed(1), torch.Generator(),
        random=lambda _: torch.Generator(),
    )  # fmt: skip
    ours = trainer.train(flat.values[0].clone(), flat.counters.clone(), [task], LR).values[0, : flat.size]

    def by_torch(*, none: bool) -> Tensor:
        theirs, order = network().train(), torch.Generator().manual_seed(1)
        sgd = torch.optim.SGD(theirs.parameters(), LR, 0.9, weight_decay=0.1, nesterov=True)
        steps = [rows for _ in range(3) for rows in torch.randperm(24, generator=order).split(8)]
        for rows, gate in zip(steps, gates, strict=True):
            sgd.zero_grad(set_to_none=none)
            with gated(theirs, gate[:count]):
                loss = cross_entropy(
                    theirs(Double((0.5,), (0.25,)).test(images, rows).double()), split.labels[rows]
                )
            loss.backward()
            sgd.step()
        return FlatModel(theirs).values[0, : flat.size]

    torch.testing.assert_close(ours, by_torch(none=False), rtol=0, atol=1e-12)
    assert (ours - by_torch(none=True)).norm() > 0.01 * ours.norm()
