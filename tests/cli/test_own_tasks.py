"""`train --loss`: regression, segmentation, a language model of the user's own, and what measures them."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import functional_call, hessian

from fedscope.checkpoints.file.checkpoint import load_checkpoint
from fedscope.checkpoints.registry.run_registry import RunRegistry
from fedscope.data.sets import own_data as own_data
from tests.cli.conftest import Command

TASKS = """
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Dataset, TensorDataset

SEEN = []


def curve():
    g = torch.Generator().manual_seed(1)
    x = torch.rand(64, 2, generator=g)
    y = (3 * x[:, :1] * x[:, 1:]).cos()
    parts = [(x[:20], y[:20]), DataLoader(TensorDataset(x[20:50], y[20:50]), 8, shuffle=True, drop_last=True)]
    return {"train": parts, "test": (x[50:], y[50:])}


def whole():
    x = curve()["train"][0][0]
    return x, x.sum(1, keepdim=True)


def small(): return nn.Sequential(nn.Linear(2, 5), nn.Tanh(), nn.Linear(5, 1))
def square(output, target): return (output - target).square().mean()
def total(output, target): return (output - target).square().sum()
def each(output, target): return (output - target).square().mean(1)


class Pixels(Dataset):
    def __len__(self): return 24

    def __getitem__(self, row):
        SEEN.append(row)
        x = torch.rand(1, 4, 5, generator=torch.Generator().manual_seed(row))
        y = (x[0] > 0.4).long() + (x[0] > 0.8).long()
        return (x.flip(2), y.flip(1)) if torch.rand(()) < 0.5 else (x, y)


def pixels(): return {"train": Pixels(), "test": [Pixels()[row] for row in range(6)]}
def stacked():
    rows = [Pixels()[row] for row in range(6)]
    return {"train": Pixels(), "test": (torch.stack([x for x, _ in rows]), torch.stack([y for _, y in rows]))}


class Segmenter(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 3, 1)

    def forward(self, x): return {"out": self.last(self.first(x).relu())}


def by_pixel(output, target): return cross_entropy(output["out"], target)


def sentences():
    g = torch.Generator().manual_seed(2)
    tokens = torch.randint(0, 9, (40, 6), generator=g)
    return {"train": (tokens[:30, :-1], tokens[:30, 1:]), "test": (tokens[30:, :-1], tokens[30:, 1:])}


class Language(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.mix, self.out = nn.Embedding(9, 4), nn.GRU(4, 5, batch_first=True), nn.Linear(5, 9)

    def forward(self, tokens): return self.out(self.mix(self.embed(tokens))[0])


def by_token(output, target): return cross_entropy(output.transpose(1, 2), target)


def classes(): return torch.rand(60, 2, generator=torch.Generator().manual_seed(3)), torch.arange(60) % 3
def three(): return nn.Linear(2, 3)
def focal(output, target):
    p = output.softmax(1).gather(1, target[:, None])[:, 0]
    return -((1 - p) ** 2 * p.log()).mean()
"""
QUICK = ("--epochs", "2", "--batch-size", "8", "--threads", "1", "--registry", "runs")
CASES = {
    "regression": ("small", "curve", "square", ()),
    "segmentation": ("Segmenter", "stacked", "by_pixel", ("--partition", "iid", "--clients", "2")),
    "language": ("Language", "sentences", "by_token", ("--partition", "quantity_skew", "--clients", "2")),
}


@pytest.fixture
def tasks(fedscope: Command) -> Iterator[Any]:
    """Write the user's file, and return its module."""
    Path("tasks_of_mine.py").write_text(TASKS)
    before = list(sys.path)
    sys.path.insert(0, str(Path.cwd()))
    import tasks_of_mine  # type: ignore[import-not-found]

    own_data.forget()
    yield tasks_of_mine
    sys.path[:] = before
    sys.modules.pop("tasks_of_mine")


def _own(model: str, data: str, loss: str) -> tuple[str, ...]:
    flags = zip(("--model", "--data", "--loss"), (model, data, loss), strict=True)
    return tuple(word for flag, name in flags for word in (flag, f"tasks_of_mine:{name}"))


def _dense(model: torch.nn.Module, state: dict[str, Tensor], loss: Any, x: Tensor, y: Tensor) -> Tensor:
    """Return the eigenvalues of the dense Hessian in float64."""
    model.load_state_dict(state)
    model.double()
    shapes = {name: p.shape for name, p in model.named_parameters()}
    w = torch.cat([p.detach().flatten() for p in model.parameters()])

    def of(w: Tensor) -> Tensor:
        parts = w.split([shape.numel() for shape in shapes.values()])
        own = {name: part.view(shapes[name]) for name, part in zip(shapes, parts, strict=True)}
        value: Tensor = loss(functional_call(model, own, (x.double() if x.is_floating_point() else x,)), y)
        return value

    values: Tensor = torch.linalg.eigvalsh(hessian(of)(w))
    return values


@pytest.mark.parametrize("task", CASES)
@pytest.mark.parametrize("method", ["fedavg", "feddyn"])
def test_a_task_of_ones_own_is_trained_resumed_and_measured(
    fedscope: Command, tasks: Any, task: str, method: str
) -> None:
    model, data, loss, more = CASES[task]
    start = ("train", *_own(model, data, loss), *more, *QUICK, "--method", method)
    done = fedscope(*start, "--rounds", "3", "--name", "whole", "--json")
    assert done.code == 0, done.err
    assert (done.json["accuracy"], done.json["best_accuracy"]) == (None, None)
    assert fedscope(*start, "--rounds", "2", "--name", "cut").code == 0
    resumed = fedscope("train", "--resume", "--name", "cut", "--rounds", "3", "--registry", "runs")
    assert resumed.code == 0, resumed.err
    assert "test loss" in resumed.out
    runs = [RunRegistry(Path("runs")).run(name) for name in ("whole", "cut")]
    hashes = {load_checkpoint(run.final).sha256 for run in runs}
    assert len(hashes) == 1
    losses = [one.loss for one in runs[0].metrics()]
    assert done.json["loss"] == losses[-1]
    assert load_checkpoint(runs[0].best).info.round == 1 + losses.index(min(losses))  # type: ignore[type-var]
    unnamed, named = ("hessian", "whole", "--probes", "4", "--registry", "runs", "--json", "-"), loss
    first = fedscope(*unnamed)
    assert first.code == 0, first.err
    again = fedscope(*unnamed, "--loss", f"tasks_of_mine:{named}")
    assert again.code == 0, again.err
    assert first.json["problem"]["loss"] == f"tasks_of_mine:{named}"
    assert first.json["lambda_max"]["value"] == again.json["lambda_max"]["value"]
    if task == "segmentation":
        assert "one draw of them" in " ".join(first.json["problem"]["notes"])
        return
    train = getattr(tasks, data)()["train"]
    if task == "regression":
        parts = [part if isinstance(part, tuple) else part.dataset.tensors for part in train]
        train = tuple(torch.cat(side) for side in zip(*parts, strict=True))
    x, y = train
    values = _dense(getattr(tasks, model)(), load_checkpoint(runs[0].final).state, getattr(tasks, loss), x, y)
    assert first.json["problem"]["samples"] == len(x)
    assert first.json["lambda_max"]["value"] == pytest.approx(float(values[-1]), rel=2e-3)


@pytest.mark.usefixtures("at_once")
def test_random_rows_are_drawn_anew_with_the_same_bits_on_workers_and_after_a_stop(
    fedscope: Command, tasks: Any
) -> None:
    model, data, loss, more = CASES["segmentation"]
    start = ("train", *_own(model, data, loss), *more, *QUICK)
    done = fedscope(*start, "--rounds", "2", "--name", "one")
    assert done.code == 0, done.err
    assert "inputs are drawn anew in every epoch" in done.err
    tasks.SEEN.clear()
    assert fedscope(*start, "--rounds", "2", "--name", "again").code == 0
    assert len(tasks.SEEN) >= 2 * 2 * 24
    assert fedscope(*start, "--rounds", "2", "--name", "two", "--workers", "2").code == 0
    assert fedscope(*start, "--rounds", "1", "--name", "cut").code == 0
    assert fedscope("train", "--resume", "--name", "cut", "--rounds", "2", "--registry", "runs").code == 0
    names = ("one", "again", "two", "cut")
    assert len({load_checkpoint(RunRegistry(Path("runs")).run(name).final).sha256 for name in names}) == 1


def test_a_loss_between_logits_and_classes_keeps_accuracy_and_every_method(
    fedscope: Command, tasks: Any
) -> None:
    own = _own("three", "classes", "focal")
    done = fedscope("train", *own, *QUICK, "--rounds", "2", "--clients", "2", "--name", "a", "--json")
    assert done.code == 0, done.err
    assert 0 <= done.json["accuracy"] <= 1
    assert "loss" not in done.json
    other = fedscope("train", *own, *QUICK, "--rounds", "1", "--clients", "2", "--method", "fedntd")
    assert other.code == 0, other.err


def test_seeds_of_a_task_without_classes_are_summed_up_by_their_loss(fedscope: Command, tasks: Any) -> None:
    own = _own("small", "curve", "square")
    done = fedscope("train", *own, *QUICK, "--rounds", "1", "--seeds", "0,1", "--name", "a")
    assert done.code == 0, done.err
    losses = [RunRegistry(Path("runs")).run(f"a-s{seed}").metrics()[-1].loss or 0 for seed in (0, 1)]
    assert f"{sum(losses) / 2:.4g} ± {abs(losses[0] - losses[1]) / 2**0.5:.4g}" in done.out
    assert "test loss" in done.out


@pytest.mark.parametrize(
    ("own", "more", "said"),
    [
        (("small", "curve", "total"), (), "--loss is a sum over samples"),
        (("small", "curve", "each"), (), "--loss returned a tensor (2,); it"),
        (("small", "curve", "absent"), (), "tasks_of_mine has no 'absent'"),
        (("small", "curve", "square"), ("--method", "fedntd"), "are no logits of classes; choose a method"),
        (("small", "curve", "square"), ("--method", "fedlc"), "are no logits of classes"),
        (("small", "curve", "square"), ("--method", "fedavg+man"), "are no logits of classes"),
        (("small", "curve", "square"), ("--method", "fedcurv", "--set", "fisher=model"), "are no logits"),
        (("small", "curve", "square"), ("--target", "0.5"), "--target is an accuracy"),
        (("small", "whole", "square"), ("--test-data", "tasks_of_mine:whole"), "use --partition iid"),
        (("small", "curve", "square"), ("--model", "lenet5"), "lenet5 is a classifier"),
    ],
)
def test_what_has_no_meaning_is_refused_in_one_line(
    fedscope: Command, tasks: Any, own: tuple[str, str, str], more: tuple[str, ...], said: str
) -> None:
    done = fedscope("train", *_own(*own), *QUICK, *more)
    assert (done.code, said in done.err, "Traceback" in done.err) == (2, True, False), done.err
    assert not list(Path("runs").glob("*/manifest.json"))


def test_a_loss_that_changed_is_not_run_unnamed(fedscope: Command, tasks: Any) -> None:
    Path("losses_of_mine.py").write_text("def square(o, y): return (o - y).square().mean()\n")
    own = (*_own("small", "curve", "square")[:4], "--loss", "losses_of_mine:square")
    assert fedscope("train", *own, *QUICK, "--rounds", "1", "--name", "a").code == 0
    look = ("hessian", "a", "--probes", "2", "--registry", "runs", "--json", "r.json")
    assert fedscope(*look).code == 0
    Path("losses_of_mine.py").write_text("def square(o, y): return 2 * (o - y).square().mean()\n")
    sys.modules.pop("losses_of_mine")
    refused = fedscope(*look, "--recompute")
    assert (refused.code, "losses_of_mine:square has changed since training" in refused.err) == (2, True)
    before = json.loads(Path("r.json").read_text())["lambda_max"]["value"]
    named = fedscope(*look, "--recompute", "--loss", "losses_of_mine:square")
    assert named.code == 0, named.err
    assert json.loads(Path("r.json").read_text())["lambda_max"]["value"] == pytest.approx(
        2 * before, rel=1e-3
    )
    torch_loss = (*_own("small", "curve", "square")[:4], "--loss", "torch.nn.functional:mse_loss")
    assert fedscope("train", *torch_loss, *QUICK, "--rounds", "1", "--name", "b").code == 0
    assert fedscope("hessian", "b", "--probes", "2", "--registry", "runs").code == 0
