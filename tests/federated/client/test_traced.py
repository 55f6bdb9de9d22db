"""Traced functions: the bits of the functions themselves, also where they change their arguments."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from fedscope.data.augment import Pipeline
from fedscope.data.loading.datasets import Split
from fedscope.federated.client import traced
from fedscope.federated.client.local_loop import LocalTrainer
from fedscope.federated.client.traced import Traced
from fedscope.federated.methods import parse
from fedscope.federated.record.flat import FlatModel
from fedscope.federated.record.tasks import LocalSettings, Task, Trained
from fedscope.models.catalogue import build


def test_a_set_of_shapes_is_traced_once() -> None:
    calls: list[torch.Size] = []

    def total(x: Tensor, more: list[Tensor]) -> Tensor:
        calls.append(x.shape)
        return x.sum() + more[0].sum()

    run = Traced(total)
    for count in (2, 3, 2, 2, 2, 3):
        x = torch.arange(float(count))
        assert run(x, [x]) == 2 * x.sum()
    assert [shape[0] for shape in calls] == [2, 3]
    assert run(torch.ones(3), [torch.ones(2)]) == 5  # other shapes in a list are other shapes
    assert len(calls) == 3


def test_only_so_many_shapes_are_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traced, "MOST", 1)
    calls = 0

    def double(x: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        return 2 * x

    run = Traced(double)
    for _ in range(4):
        for x in (torch.ones(2), torch.ones(3)):
            assert torch.equal(run(x), 2 * x)
    assert calls == 1 + 4
    transposed = torch.arange(4.0).view(2, 2)
    assert torch.equal(run(transposed), 2 * transposed)
    assert torch.equal(run(transposed.T), 2 * transposed.T)


def test_arguments_change_once_in_every_call() -> None:
    """BatchNorm's running statistics, which a trace moves on copies, and a counter."""
    norm = nn.BatchNorm1d(4)
    rows = torch.randn(5, 3, 8, 4, generator=torch.Generator().manual_seed(0))

    def loss(weight: Tensor, mean: Tensor, var: Tensor, x: Tensor, count: Tensor) -> Tensor:
        tensors = {"weight": weight, "running_mean": mean, "running_var": var, "num_batches_tracked": count}
        normalised: Tensor = functional_call(norm, tensors, (x,))
        return normalised.square().sum() * weight.sum()

    plain = vmap(grad(loss), in_dims=(0, 0, 0, 0, None))
    ends = []
    for run in (plain, Traced(plain)):
        weight, mean, var = torch.ones(3, 4), torch.zeros(3, 4), torch.ones(3, 4)
        count = torch.zeros((), dtype=torch.int64)
        for x in rows:
            weight = weight - 1e-3 * run(weight, mean, var, x, count)
        ends.append([weight, mean, var, count])
    assert all(torch.equal(a, b) for a, b in zip(*ends, strict=True))
    assert ends[1][3] == len(rows)


def _trained(method: str, settings: LocalSettings, sizes: tuple[int, ...], stack: int) -> list[Trained]:
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (60, 1, 8, 8), generator=generator, dtype=torch.uint8)
    split = Split(images, torch.randint(0, 10, (60,), generator=generator))
    flat = FlatModel(build("mlp_digits", 10, 1, torch.Generator().manual_seed(1)), stack)
    record = parse(method)
    options = record.values({}, "paper")
    trainer = LocalTrainer(flat, split, Pipeline((0.5,), (0.25,)), record, options, settings, classes=10)
    start, counters = flat.values[0].clone(), flat.counters.clone()

    def tasks(size: int) -> Iterator[Task]:
        for client in range(stack):
            rows = torch.arange(client, client + size)
            yield Task(rows, torch.Generator().manual_seed(client), torch.Generator())

    return [trainer.train(start, counters, list(tasks(size)), 0.1) for size in sizes]


@pytest.mark.parametrize("method", ["fedavg", "fedprox", "scaffold", "feddyn", "fedsam", "feddyn+man"])
def test_a_traced_step_has_the_bits_of_the_step(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = LocalSettings(2, 4, weight_decay=1e-3, clip=5.0)
    sizes = (10, 10, 8)  # three batches, the last ragged; only whole ones
    fast = _trained(method, settings, sizes, 3)
    monkeypatch.setattr(traced.Traced, "__call__", lambda self, *args: self._function(*args))
    for quick, slow in zip(fast, _trained(method, settings, sizes, 3), strict=True):
        for name, after, before in zip("vmucl", quick.parts, slow.parts, strict=False):
            assert torch.equal(after, before), name
        assert torch.equal(quick.observed, slow.observed)


def test_a_network_of_ones_own_is_not_traced() -> None:
    """It may do another thing in every pass."""
    passes = 0

    class Alternating(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            nonlocal passes
            passes += 1
            logits: Tensor = super().forward(x.flatten(1))
            return logits if passes % 2 else -logits

    split = Split(torch.rand(8, 1, 2, 2), torch.arange(8) % 2)
    flat, record = FlatModel(Alternating(4, 2), 2, channels_last=False), parse("fedavg")
    trainer = LocalTrainer(flat, split, Pipeline((), ()), record, {}, LocalSettings(6, 4), draws=True)
    tasks = [
        Task(torch.arange(4 * k, 4 * k + 4), torch.Generator(), torch.Generator(), random=_stream)
        for k in range(2)
    ]
    trainer.train(flat.values[0].clone(), flat.counters.clone(), tasks, 0.1)
    assert passes == 6


def _stream(_name: str) -> torch.Generator:
    return torch.Generator()
