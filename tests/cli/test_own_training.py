"""`train` with a network and data of the user's own, and what reads the runs later."""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fedscope.checkpoints.file.checkpoint import load_checkpoint
from fedscope.checkpoints.registry.run_registry import RunRegistry
from fedscope.data.sets import own_data as own_data
from fedscope.federated.setup.federation import prepare
from fedscope.own import registered
from fedscope.workflows.sources import problems, targets
from tests.cli.conftest import Command

MINE = """
import pathlib

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.drop = nn.Dropout(0.2)
        self.fc = nn.Linear(4 * 16, 3)

    def forward(self, x):
        x = self.norm(self.conv(x)).relu()
        return self.fc(self.drop(x.view(-1, 4 * 16)))


class Plain(Net):
    def __init__(self):
        super().__init__()
        self.drop = nn.Identity()


def samples(count, seed):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % 3
    return torch.randn(count, 1, 6, 6, generator=generator) + labels[:, None, None, None], labels


def clients():
    for client in range(3):
        yield samples(30 + 5 * client, client)


def train():
    return TensorDataset(*samples(90, 7))


def batches():
    return DataLoader(TensorDataset(*samples(90, 7)), batch_size=32, shuffle=True)


def counted():
    return samples(int(pathlib.Path("count.txt").read_text()), 5)


def both():
    return {"train": [samples(30, 1), samples(30, 2)], "test": samples(40, 3)}


def test():
    return tuple(part.numpy() for part in samples(40, 8))


def raw():
    x, y = samples(30, 0)
    return x.byte(), y


def words():
    return torch.randint(0, 50, (60, 5)), torch.arange(60) % 2


class Bag(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("position_ids", torch.arange(5)[None])
        self.embedding, self.position, self.out = nn.Embedding(50, 4), nn.Embedding(5, 4), nn.Linear(4, 2)

    def forward(self, ids):
        return self.out((self.embedding(ids) + self.position(self.position_ids)).mean(1))


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru, self.out = nn.GRU(6, 5, batch_first=True), nn.Linear(5, 3)

    def forward(self, x):
        return self.out(self.gru(x[:, 0])[0][:, -1])


class Pair(Net):
    def forward(self, x):
        return super().forward(x), x


class Broken(Net):
    def forward(self, x):
        return self.fc(x)
"""
QUICK = ("--rounds", "2", "--epochs", "1", "--batch-size", "10", "--threads", "1", "--registry", "runs")
FEW = ("--clients", "3")
LOOK = ("--probes", "4", "--registry", "runs")


@pytest.fixture
def mine(fedscope: Command, request: pytest.FixtureRequest) -> Iterator[Callable[[str], str]]:
    """Write the user's file under a name of its own, and return how a factory in it is called."""
    name = f"mine_{abs(hash(request.node.name)) % 10**9}"
    Path(f"{name}.py").write_text(MINE)
    before = list(sys.path)
    yield lambda factory: f"{name}:{factory}"
    sys.path[:] = before
    sys.modules.pop(name, None)


Mine = Callable[[str], str]


def module_of(reference: str) -> Path:
    return Path(reference.partition(":")[0] + ".py")


def test_clients_of_ones_own_from_training_to_the_report(fedscope: Command, mine: Mine) -> None:
    own = ("--model", mine("Net"), "--data", mine("clients"))
    done = fedscope("train", *own, *QUICK, "--name", "a", "--json")
    assert done.code == 0, done.err
    assert "20% of each client's samples are held out" in done.err
    manifest = RunRegistry(Path("runs")).run("a").manifest()
    settings = manifest.settings
    assert (settings.partition, settings.clients, manifest.data.train_samples) == ("own", 3, 84)
    assert (manifest.model.name, manifest.model.classes) == (mine("Net"), 3)
    assert len(manifest.model.source) == len(manifest.data.source) == len(manifest.data.fingerprint) == 64
    record = fedscope("hessian", "a", *LOOK, "--clients", "--json").json
    assert (record["problem"]["model"], record["problem"]["samples"]) == (mine("Net"), 84)
    assert record["cross_client"]["clients"] == 3
    assert fedscope("plot-landscape", "a", "--grid", "3", "--out", "a.png", "--registry", "runs").code == 0
    assert fedscope("report", "a", "--out", "a.html", "--registry", "runs", "--grid", "3").code == 0
    assert fedscope("runs", "verify", "--registry", "runs").code == 0


@pytest.mark.usefixtures("at_once")
def test_workers_stacks_seeds_and_interruptions_change_no_bit(fedscope: Command, mine: Mine) -> None:
    data = ("--data", mine("clients"))
    whole = ("train", "--model", mine("Net"), *data, *QUICK)
    assert fedscope(*whole, "--name", "one").code == 0
    assert fedscope(*whole, "--name", "two", "--workers", "2").code == 0
    assert fedscope(*whole, "--rounds", "1", "--name", "cut").code == 0
    extended = fedscope("train", "--resume", "--name", "cut", "--rounds", "2", "--registry", "runs")
    assert extended.code == 0, extended.err
    hashes = {load_checkpoint(RunRegistry(Path("runs")).run(n).final).sha256 for n in ("one", "two", "cut")}
    assert len(hashes) == 1
    stacked = ("train", "--model", mine("Plain"), *data, *QUICK, "--json")
    alone = fedscope(*stacked, "--seed", "3")
    together = fedscope(*stacked, "--seed", "3", "--stack", "3")
    assert together.code == 0, together.err
    states = [load_checkpoint(Path(one.json["final"])).state for one in (alone, together)]
    for name, tensor in states[0].items():
        assert tensor.float().sub(states[1][name]).abs().max() < 1e-5, name


@pytest.mark.parametrize(
    ("data", "more", "partition", "sizes"),
    [
        ("train", FEW, "dirichlet_balanced", 72),
        ("train", (*FEW, "--test-data", "test"), "dirichlet_balanced", 90),
        ("batches", ("--partition", "iid", *FEW), "iid", 72),
        ("clients", ("--partition", "iid", "--clients", "4"), "iid", 84),
        ("both", (), "own", 60),
    ],
)
def test_what_a_factory_may_return(
    fedscope: Command, mine: Mine, data: str, more: tuple[str, ...], partition: str, sizes: int
) -> None:
    more = tuple(mine(word) if word == "test" else word for word in more)
    done = fedscope("train", "--model", mine("Net"), "--data", mine(data), *more, *QUICK, "--name", "a")
    assert done.code == 0, done.err
    manifest = RunRegistry(Path("runs")).run("a").manifest()
    assert (manifest.settings.partition, manifest.data.train_samples) == (partition, sizes)
    assert ("held out" in done.err) == (data not in ("both",) and "--test-data" not in more)
    shown = fedscope("hessian", "a", "--split", "test", *LOOK)
    assert shown.code == 0, shown.err


def test_tokens_and_networks_that_are_no_images(fedscope: Command, mine: Mine) -> None:
    words = ("--data", mine("words"), "--partition", "iid", "--clients", "3")
    assert fedscope("train", "--model", mine("Bag"), *words, *QUICK, "--name", "bag").code == 0
    assert "position_ids" in load_checkpoint(RunRegistry(Path("runs")).run("bag").final).state
    assert fedscope("hessian", "bag", *LOOK).code == 0
    gru = fedscope(
        "train", "--model", mine("Recurrent"), "--data", mine("clients"), *QUICK, "--method", "feddyn"
    )
    assert gru.code == 0, gru.err


def test_own_networks_on_the_catalogues_data_and_the_other_way_round(fedscope: Command, mine: Mine) -> None:
    path = module_of(mine("Net"))
    path.write_text(MINE.replace("4 * 16, 3", "4 * 36, 10").replace("(-1, 4 * 16)", "(-1, 4 * 36)"))
    quick = (*QUICK, "--clients", "3", "--train-samples", "90")
    assert fedscope("train", "--model", mine("Net"), *quick, "--name", "a").code == 0
    assert fedscope("hessian", "a", *LOOK, "--samples", "50").code == 0
    other = fedscope("train", "--model", "resnet_digits", "--data", mine("clients"), *QUICK, "--name", "b")
    assert other.code == 0, other.err
    path.write_text("raise SystemExit('run')\n")
    sys.modules.pop(path.stem)
    for name in "ab":
        for command in (
            ("hessian", name, *LOOK),
            ("train", "--resume", "--name", name, "--registry", "runs"),
        ):
            refused = fedscope(*command)
            assert (refused.code, "has changed since training" in refused.err) == (2, True), refused.err


def test_the_same_code_that_makes_other_data_is_refused(fedscope: Command, mine: Mine) -> None:
    Path("count.txt").write_text("90")
    own = ("--model", mine("Net"), "--data", mine("counted"), "--partition", "iid", "--clients", "3")
    assert fedscope("train", *own, *QUICK, "--name", "a").code == 0
    assert fedscope("hessian", "a", *LOOK).code == 0
    Path("count.txt").write_text("87")
    own_data._loaded.cache_clear()  # the next command is another process
    refused = fedscope("hessian", "a", *LOOK, "--probes", "3")
    assert (refused.code, "is not the data" in refused.err) == (2, True), refused.err


def test_code_is_run_unasked_only_where_it_is_what_it_was(
    fedscope: Command, mine: Mine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = ("--model", mine("Plain"), "--data", mine("clients"))
    assert fedscope("train", *own, *QUICK, "--name", "a").code == 0
    path = module_of(mine("Net"))
    before = RunRegistry(Path("runs")).run("a").manifest().model.source[:8]
    path.write_text(MINE + "\nprint('run')\n")
    sys.modules.pop(path.stem)
    for command in (("hessian", "a", *LOOK), ("train", "--resume", "--name", "a", "--registry", "runs")):
        refused = fedscope(*command)
        assert (refused.code, "run" in refused.out.split()) == (2, False)
        assert f"has changed since training ({before} then" in refused.err
    named = fedscope("hessian", "a", *own, *LOOK)
    assert (named.code, "has changed since training" in " ".join(named.err.split())) == (0, True), named.err
    for harmless in (
        ("runs", "list"), ("runs", "show", "a"), ("runs", "verify"), ("runs", "diff", "a", "a"),
        ("runs", "export", "a", "--out", "a.pt"), ("runs", "push", "a", "place"),
        ("runs", "delete", "a", "--yes"), ("runs", "pull", "a", "place"), ("runs", "rebuild"),
        ("plot-runs", "a", "--out", "a.svg"),
    ):  # fmt: skip
        sys.modules.pop(path.stem, None)
        done = fedscope(*harmless, "--registry", "runs")
        assert done.code == 0, (harmless, done.err)
        assert path.stem not in sys.modules
    path.rename("elsewhere.py")
    lost = fedscope("hessian", "a", *LOOK)
    assert (lost.code, "is not to be found from" in lost.err) == (2, True)
    away = tmp_path / "away"
    away.mkdir()
    Path("elsewhere.py").rename(away / path.name)
    monkeypatch.syspath_prepend(str(away))
    outside = fedscope("hessian", "a", *LOOK)
    assert (outside.code, "is code outside of this folder" in outside.err) == (2, True)


@pytest.mark.parametrize(
    ("model", "data", "more", "said"),
    [
        ("Pair", "clients", (), "returned tuple; training needs logits (2, 3 or more)"),
        ("Broken", "clients", (), "fails on the first samples: RuntimeError"),
        ("Net", "raw", (), "inputs are torch.uint8; the network gets them as they are"),
        ("Net", "clients", ("--clients", "5"), "the data are 3 clients', not 5; leave --clients out"),
        (
            "Net",
            "train",
            ("--partition", "own"),
            "partition own is for --data MODULE:FACTORY",
        ),
        ("Net", "clients", ("--method", "fedavg+man"), "man reads the outputs of nn.ReLU modules"),
        ("Net", "clients", ("--method", "moon"), "moon trains a network with a projection head"),
        ("Net", "clients", ("--method", "fedalign"), "fedalign runs parts of a residual network"),
        ("Net", "clients", ("--method", "stochdepth"), "stochdepth drops residual blocks"),
        ("Net", "clients", ("--augmentation", "man"), "leave --augmentation out"),
        ("Net", "clients", ("--stack", "3"), "cannot be trained as a stack"),
        ("Net", "Net", (), "Net is no (inputs, targets), torch Dataset or DataLoader"),
        ("nothing", "clients", (), "has no 'nothing'"),
    ],
)
def test_what_is_refused(
    fedscope: Command, mine: Mine, model: str, data: str, more: tuple[str, ...], said: str
) -> None:
    done = fedscope("train", "--model", mine(model), "--data", mine(data), *QUICK, *more)
    assert (done.code, said in done.err) == (2, True), done.err


def test_data_of_ones_own_need_a_network(fedscope: Command, mine: Mine) -> None:
    done = fedscope("train", "--data", mine("clients"), *QUICK)
    assert (done.code, "needs a --model: MODULE:FACTORY" in done.err) == (2, True)
    done = fedscope("train", "--test-data", mine("test"), *QUICK)
    assert (done.code, "digits has test data" in done.err) == (2, True)


def test_a_seed_decides_the_weights_and_nothing_else_is_seeded(fedscope: Command, mine: Mine) -> None:
    import torch

    from fedscope.checkpoints.file.settings import Settings

    def first(seed: int) -> torch.Tensor:
        own = {"model": mine("Net"), "dataset": mine("clients"), "partition": "own", "clients": 3}
        return next(prepare(Settings(seed=seed, **own), {}).model.parameters()).flatten()[:5].clone()

    before = torch.get_rng_state()
    same, other = first(0), first(1)
    assert torch.equal(same, first(0))
    assert not torch.equal(same, other)
    assert torch.equal(before, torch.get_rng_state())


def test_names_that_other_packages_register(
    fedscope: Command, mine: Mine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = tmp_path / "site" / "theirs-1.dist-info"
    record.mkdir(parents=True)
    (record / "METADATA").write_text("Name: theirs\nVersion: 1\n")
    points = (
        f"[fedscope.models]\ntheirnet = {mine('Net')}\n[fedscope.datasets]\ntheirdata = {mine('clients')}\n"
    )
    (record / "entry_points.txt").write_text(points)
    module_of(mine("Net")).rename(tmp_path / "site" / module_of(mine("Net")).name)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    registered.cache_clear()
    try:
        assert fedscope("models", "list", "--json").json[-1] == {"name": "theirnet", "factory": mine("Net")}
        assert fedscope("data", "list", "--json").json[-1] == {
            "name": "theirdata",
            "factory": mine("clients"),
        }
        assert "theirnet" in fedscope("models", "list").out
        done = fedscope("train", "--model", "theirnet", "--data", "theirdata", *QUICK, "--name", "a")
        assert done.code == 0, done.err
        assert fedscope("hessian", "a", *LOOK).code == 0
        assert "did you mean 'theirnet'" in fedscope("train", "--model", "theirne", *QUICK).err
    finally:
        registered.cache_clear()


def test_naming_a_runs_own_code_again_leaves_the_number_of_samples(
    fedscope: Command, mine: Mine, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = ("--model", mine("Plain"), "--data", mine("clients"))
    assert fedscope("train", *own, *QUICK, "--name", "a").code == 0
    for module in (problems, targets):
        monkeypatch.setattr(module, "SAMPLES", 16)
    for named in ((), own[2:], own):
        done = fedscope("hessian", "a", *named, "--probes", "2", "--registry", "runs", "--json", "r.json")
        assert done.code == 0, done.err
        assert json.loads(Path("r.json").read_text())["problem"]["samples"] == 16
