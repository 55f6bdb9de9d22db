"""The rule of ``--stack auto``: which stacks are chosen for which settings, and that a run keeps them."""

import os
import signal
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import fedscope
from fedscope.checkpoints.file.checkpoint import load_checkpoint
from fedscope.checkpoints.file.settings import Settings
from fedscope.checkpoints.registry.run_registry import RunRegistry
from fedscope.cli.main import call
from fedscope.federated.methods import parse
from fedscope.federated.setup.federation import prepare
from fedscope.federated.setup.paper_presets import presets
from fedscope.federated.setup.stacking import BYTES, LEAST, MOST, PARAMETERS, VECTORS, automatic_stack
from fedscope.models import catalogue
from fedscope.workflows.train.one_run import train_run
from fedscope.workflows.train.train_request import TrainRequest, plan
from fedscope.workflows.train.train_runs import train
from tests.processes import started

MANY: dict[str, Any] = {
    "dataset": "synthetic", "model": "mlp_digits", "clients": 1000, "participation": 0.1, "batch_size": 18,
    "epochs": 1, "rounds": 11,
}  # fmt: skip
SIZES = [18] * 1000


def chosen(sizes: list[int] = SIZES, net: nn.Module | None = None, **changed: Any) -> int:
    settings = Settings.model_validate({**MANY, **changed})
    model = net or catalogue.build("mlp_digits", 10, 1, torch.Generator())
    return automatic_stack(settings, parse(settings.method), model, [range(size) for size in sizes])


@pytest.mark.parametrize(
    ("changed", "stack"),
    [
        ({}, 50),  # two workers have one each
        ({"participation": 1.0}, 63),  # 16 of them: 1,000 in equal parts of at most 64
        ({"participation": 0.032, "rounds": 50}, 16),
        ({"participation": 0.031, "rounds": 50}, 31),
        ({"participation": 0.016, "rounds": 100}, 16),
        ({"participation": 0.015, "rounds": 100}, 1),
        ({"participation": 1.0, "sampling": "all"}, 63),
        ({"clients_limit": 20, "rounds": 50}, 20),
        ({"stragglers": 0.5}, 25),  # those that do the whole work
        ({"method": "feddyn+man"}, 50),
        ({"method": "fedsam", "local_steps": 5}, 50),
        ({"method": "fedavg+mixup"}, 1),  # draws for each client
        ({"precision": "bf16"}, 1),
        ({"compile": True}, 1),
        ({"rounds": 9}, 1),  # 900 steps are over before a stack has begun
        ({"rounds": 9, "local_steps": 2}, 50),
        ({"rounds": 9, "epochs": 2}, 50),
        ({"rounds": 9, "epochs": 2, "batch_size": 9, "steps_limit": 1}, 50),
    ],
)
def test_which_stack_is_chosen(changed: dict[str, Any], stack: int) -> None:
    assert chosen(**changed) == stack


def test_clients_of_other_sizes_are_not_together() -> None:
    assert chosen([18] * 500 + [19] * 500) == 25  # of 100, some 50 of each size: two stacks of half of them
    assert chosen([10 + k % 10 for k in range(1000)]) == 1  # ten of each
    assert chosen(list(range(1, 1001))) == 1


def test_only_small_networks_of_linear_layers() -> None:
    def wide(width: int) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 10))

    largest = (PARAMETERS - 10) // 75
    assert chosen(net=wide(largest)) == 50
    assert chosen(net=wide(largest + 1)) == 1
    frozen = wide(32).requires_grad_(requires_grad=False)
    assert chosen(net=nn.Sequential(frozen, nn.Linear(10, 10))) == 50
    assert chosen(net=nn.Sequential(wide(32), nn.BatchNorm1d(10))) == 1
    assert chosen(net=nn.Sequential(nn.Conv2d(1, 1, 1), wide(32))) == 1
    counting = wide(32)
    counting.register_buffer("seen", torch.zeros((), dtype=torch.int64))
    assert chosen(net=counting) == 1
    for name in set(catalogue.NETWORKS) - {"mlp_digits"}:
        outline = catalogue.outline(name, 10, catalogue.find(name).channels)
        assert chosen(net=outline) == 1, name


def test_large_batches_keep_a_processor_busy_and_wide_ones_fill_the_memory() -> None:
    size = sum(p.numel() for p in catalogue.build("mlp_digits", 10, 1, torch.Generator()).parameters())
    most = 8_000_000 // size
    assert chosen([2 * most] * 1000, batch_size=most) == BYTES // (4 * VECTORS * (size + most * 64))
    assert chosen([2 * most] * 1000, batch_size=most + 1) == 1
    logistic = nn.Sequential(nn.Flatten(), nn.Linear(3072, 10))
    batch = 60
    stack = BYTES // (4 * VECTORS * (30730 + batch * 3072))
    assert LEAST < stack < MOST / 2 + 10
    assert chosen([batch] * 1000, net=logistic, batch_size=batch, participation=1.0) == stack


def test_no_published_experiment_is_stacked() -> None:
    """Its clients are few or of several sizes, or its network has convolutions: its bits are as ever."""
    models = {str(preset.settings["model"]) for preset in presets().values()}
    assert "mlp_digits" not in models
    assert models <= set(catalogue.NETWORKS)


def test_the_digits_are_trained_one_by_one() -> None:
    assert prepare(Settings(), {}, choose_stack=True).settings.stack == 1


SMALL = {
    "dataset": "synthetic", "clients": 34, "partition": "iid", "train_samples": 340, "test_samples": 50,
    "batch_size": 5, "epochs": 5, "rounds": 3, "save_clients": "none", "method": "feddyn",
}  # fmt: skip


def request(folder: Path, name: str, **more: Any) -> TrainRequest:
    resume, workers = more.pop("resume", False), more.pop("workers", 1)
    settings = more if resume else {**SMALL, **more}
    return TrainRequest(
        folder, settings=settings, name=name, threads=1, device="cpu", resume=resume, workers=workers
    )


def end(folder: Path, name: str) -> tuple[int, str, list[float | None]]:
    """Return the stacks of a run, the hash of its weights, and its losses."""
    run = RunRegistry(folder).run(name)
    sha256 = load_checkpoint(run.final).sha256
    return run.manifest().settings.stack, sha256, [m.train_loss for m in run.metrics()]


def first_round_of(asked: TrainRequest) -> None:
    train_run(replace(plan(asked, "cpu", 1), until=1))


@pytest.mark.usefixtures("in_time", "at_once")
@pytest.mark.parametrize("named", [{}, {"stack": "auto", "workers": 2}])
def test_a_run_has_the_number_and_is_continued_with_it(tmp_path: Path, named: dict[str, Any]) -> None:
    train(request(tmp_path, "whole", **named))
    first_round_of(request(tmp_path, "cut", **named))
    train(request(tmp_path, "cut", resume=True, **named))
    train(request(tmp_path, "said", stack=17))
    assert end(tmp_path, "whole") == end(tmp_path, "cut") == end(tmp_path, "said")
    assert end(tmp_path, "whole")[0] == 17


def test_an_older_run_goes_on_one_by_one(tmp_path: Path) -> None:
    train(request(tmp_path, "whole", stack=1))
    first_round_of(request(tmp_path, "cut", stack=1))
    train(request(tmp_path, "cut", resume=True, rounds=3))
    assert end(tmp_path, "cut") == end(tmp_path, "whole")
    assert end(tmp_path, "cut")[0] == 1


@pytest.mark.usefixtures("at_once")
@pytest.mark.slow
def test_workers_share_the_stacks_and_change_no_bit(tmp_path: Path) -> None:
    for workers in (1, 3):
        train(request(tmp_path, f"w{workers}", workers=workers))
    assert end(tmp_path, "w1") == end(tmp_path, "w3")
    assert end(tmp_path, "w1")[0] == 17  # two stacks


@pytest.mark.usefixtures("at_once")
@pytest.mark.slow
def test_a_killed_run_goes_on_with_its_stacks(tmp_path: Path) -> None:
    words = [f"--{name.replace('_', '-')}={value}" for name, value in SMALL.items()]
    line = ["train", *words, "--rounds=30", "--threads=1", "--registry", str(tmp_path), "--name"]
    assert call([*line, "whole"]) == 0
    with started(*line, "cut") as command:
        next(text for text in command.errors if "round 2/" in text)
        os.killpg(command.pid, signal.SIGKILL)
    done = len(RunRegistry(tmp_path).run("cut").metrics())
    assert 2 <= done < 30
    assert call([*line, "cut", "--resume", "--workers", "2"]) == 0
    assert end(tmp_path, "cut") == end(tmp_path, "whole")


class Tiny(nn.Sequential):
    """A network of one's own that cannot be batched where it draws."""

    def __init__(self, *more: nn.Module) -> None:
        super().__init__(nn.Flatten(), nn.Linear(64, 8), *more, nn.Linear(8, 10))


def test_a_network_of_ones_own_is_tried(tmp_path: Path) -> None:
    for name, more, stack in (("plain", [nn.Tanh()], 17), ("drops", [nn.Dropout()], 1)):
        settings: dict[str, Any] = {**SMALL, "name": name, "rounds": 2, "epochs": 10, "method": "fedavg"}
        run = fedscope.train(
            model=partial(Tiny, *more), registry=tmp_path, device="cpu", threads=1, **settings
        )
        assert RunRegistry(tmp_path).run(run.name).manifest().settings.stack == stack
