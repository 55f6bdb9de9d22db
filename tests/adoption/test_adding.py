import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from fedscope.adoption.adding import add
from fedscope.adoption.identity import Identity, identify
from fedscope.checkpoints.file.checkpoint import load_checkpoint
from fedscope.checkpoints.file.schema import DataSpec, ModelSpec
from fedscope.checkpoints.registry.run_registry import RunRegistry
from fedscope.checkpoints.verification.verify import verify_run
from fedscope.errors import UserError
from fedscope.models.catalogue import build, outline
from fedscope.workflows.sources.problem import load
from fedscope.workflows.sources.run_clients import Participants
from fedscope.workflows.sources.samples import Source
from tests.checkpoints.published import ClientModel, FedMLResNet56


@pytest.fixture(scope="module")
def digits() -> Identity:
    return identify("resnet56_bottleneck", "digits")


def cifar() -> Identity:
    """CIFAR-10 as the registry knows it, without its files."""
    spec = ModelSpec(name="convnet_cifar", classes=10, channels=3)
    state = outline("convnet_cifar", 10, 3).state_dict(keep_vars=True)
    return Identity(((spec, state),), DataSpec(name="cifar10", train_samples=50_000, test_samples=10_000))


@pytest.mark.parametrize(("slimmable", "projection"), [(False, False), (True, False), (False, True)])
def test_fedaligns_folder(tmp_path: Path, digits: Identity, slimmable: bool, projection: bool) -> None:
    models = [FedMLResNet56(10, 1, slimmable, projection) for _ in range(3)]
    for name, model in zip(("server", "client_0", "client_1"), models, strict=True):
        torch.save(model.state_dict(), tmp_path / f"{name}.pt")
    registry = RunRegistry(tmp_path / "runs")
    run, notes = add(tmp_path, digits, registry, "theirs", known={"method": "fedalign"}, round=25)
    assert "such as" not in notes[0]
    assert notes[0].startswith("renamed ")
    final, uploads = load_checkpoint(run.final), [load_checkpoint(path) for path in run.clients()]
    assert (final.info.kind, final.info.round, final.info.model.head) == ("global", 25, projection)
    assert torch.equal(final.state["stem.0.weight"], models[0].conv1.weight)
    assert [(u.info.client, u.info.samples) for u in uploads] == [(0, None), (1, None)]
    assert torch.equal(uploads[1].state["fc.bias"], models[2].fc.bias)
    (row,) = registry.rows()
    shown = {key: row[key] for key in ("name", "status", "method", "dataset", "model", "clients", "rounds")}
    assert shown == {
        "name": "theirs", "status": "finished", "method": "fedalign", "dataset": "digits",
        "model": "resnet56_bottleneck", "clients": 2, "rounds": 25,
    }  # fmt: skip
    assert (row["partition"], row["accuracy"]) == (None, None)  # unknown, not a default
    assert registry.resolve("theirs@25") == run.final
    assert not list(verify_run(run))


def test_feddyns_folder(tmp_path: Path) -> None:
    models = {name: ClientModel(10) for name in ("50_com_cld", "100_com_sel", "100_com_all", "100_com_cld")}
    for name, model in models.items():
        torch.save(model.state_dict(), tmp_path / f"{name}.pt")
    rows = np.random.default_rng(0).normal(size=(3, 797_962)).astype(np.float32)
    np.save(tmp_path / "100_clnt_params_list.npy", rows)
    registry = RunRegistry(tmp_path / "runs")
    run, _ = add(tmp_path, cifar(), registry, "feddyn")
    for reference, name in (
        ("feddyn@50", "50_com_cld"),
        ("feddyn@100", "100_com_cld"),
        ("feddyn@all", "100_com_all"),
        ("feddyn@sel", "100_com_sel"),
    ):
        loaded = load_checkpoint(registry.resolve(reference))
        assert torch.equal(loaded.state["fc3.bias"], models[name].fc3.bias)
        assert loaded.info.round == int(name.split("_")[0])
    assert len(run.clients()) == 3
    assert not list(verify_run(run))
    last = load_checkpoint(registry.resolve("feddyn@client2")).state
    assert torch.equal(last["fc3.bias"], torch.from_numpy(rows[2, -10:]))
    assert torch.equal(last["conv1.weight"].flatten(), torch.from_numpy(rows[2, :4800]))


def test_one_file_with_clients_elsewhere(tmp_path: Path, digits: Identity) -> None:
    plain = build("mlp_digits", 10, 1, torch.Generator().manual_seed(0)).state_dict()
    torch.save({"state_dict": {f"model.{k}": t for k, t in plain.items()}}, tmp_path / "last.ckpt")
    save_file(plain, tmp_path / "a.safetensors")
    save_file(plain, tmp_path / "b.safetensors")
    mine = identify("mlp_digits", "digits")
    registry = RunRegistry(tmp_path / "runs")
    files = (tmp_path / "a.safetensors", tmp_path / "b.safetensors")
    run, notes = add(tmp_path / "last.ckpt", mine, registry, "one", clients=files)
    renamed, whose, equal = notes
    assert renamed == "removed the prefix state_dict.model. from 4 names"
    assert whose.startswith(
        "clients 0 is a.safetensors, 1 is b.safetensors: numbered in the order of the files"
    )
    assert equal == "the global model is that of clients 0, 1"
    assert [path.name for path in run.clients()] == ["0000.pt", "0001.pt"]
    assert run.manifest().added.notes == (renamed,)  # type: ignore[union-attr]


def test_what_does_not_fit_leaves_nothing_behind(tmp_path: Path) -> None:
    registry, mine = RunRegistry(tmp_path / "runs"), identify("mlp_digits", "digits")
    torch.save(nn.Linear(3, 2).state_dict(), tmp_path / "w.pt")
    with pytest.raises(UserError, match="does not fit the network"):
        add(tmp_path / "w.pt", mine, registry, "bad")
    torch.save(build("mlp_digits", 10, 1, torch.Generator()).state_dict(), tmp_path / "good.pt")
    with pytest.raises(UserError, match=r"w\.pt \(client 0\)"):
        add(tmp_path / "good.pt", mine, registry, "bad", clients=(tmp_path / "w.pt",))
    with pytest.raises(UserError, match=r"holds no server\.pt"):
        add(tmp_path, mine, registry, "bad")
    assert not registry.rows()
    assert not list((tmp_path / "runs").glob("bad*"))


def test_a_network_of_ones_own_is_kept_by_its_name(tmp_path: Path) -> None:
    model = nn.Linear(3, 2)
    torch.save(model.state_dict(), tmp_path / "w.pt")
    registry = RunRegistry(tmp_path / "runs")
    run, _ = add(tmp_path / "w.pt", identify(model, "my data"), registry, "own")
    info = load_checkpoint(run.final).info
    assert (info.model.name, info.model.classes, info.data.name) == ("Linear", None, "my data")


def test_flowers_folder(tmp_path: Path) -> None:
    states = [build("mlp_digits", 10, 1, torch.Generator().manual_seed(seed)).state_dict() for seed in (0, 1)]
    for round, state in zip((2, 10), states, strict=True):
        np.savez(tmp_path / f"round-{round}-weights.npz", *[tensor.numpy() for tensor in state.values()])
    registry = RunRegistry(tmp_path / "runs")
    run, notes = add(tmp_path, identify("mlp_digits", "digits"), registry, "flower")
    assert notes == (
        "named 4 arrays in the order of the network's state_dict() (in all 2 files: round-10-weights.npz, "
        "round-2-weights.npz)",
    )
    assert load_checkpoint(run.final).info.round == 10
    assert run.clients() == []
    np.savez(tmp_path / "client_3.npz", *[tensor.numpy() for tensor in states[0].values()])
    (one,) = add(tmp_path, identify("mlp_digits", "digits"), registry, "clients")[0].clients()
    assert (load_checkpoint(one).info.client, load_checkpoint(one).info.round) == (3, 10)
    for reference, state in zip(("flower@2", "flower"), states, strict=True):
        loaded = load_checkpoint(registry.resolve(reference)).state
        assert all(torch.equal(loaded[name], state[name]) for name in state)
    (tmp_path / "model_round_10.pth").touch()
    with pytest.raises(UserError, match="both of round 10"):
        add(tmp_path, identify("mlp_digits", "digits"), registry, "twice")


OWN = """
import torch
from torch import nn

def network():
    return nn.Linear(3, 2)

def clients():
    draws = torch.Generator().manual_seed(0)
    return [(torch.randn(n, 3, generator=draws), torch.arange(n) % 2) for n in (10, 20)]

def data():
    return {"train": clients(), "test": clients()[0]}

def whole():
    return {"train": clients()[1], "test": clients()[0]}

def frozen():
    model = network()
    model.weight.requires_grad_(False)
    return model
"""


@pytest.fixture
def own(tmp_path: Path, code: Callable[[str, str], Path]) -> Path:
    """A folder with ``own_of_added.py`` and ``w.pt``, the working directory."""
    code("own_of_added", OWN)
    torch.save(nn.Linear(3, 2).state_dict(), tmp_path / "w.pt")
    return tmp_path


def test_clients_own_data_are_the_runs_rows(own: Path) -> None:
    registry, files = RunRegistry(own / "runs"), dict.fromkeys((0, 1), own / "w.pt")
    identity = identify("own_of_added:network", "own_of_added:data")
    run, notes = add(own / "w.pt", identity, registry, "own", clients=files)
    assert notes[0] == "own_of_added:data makes a data set for each of 2 clients"
    assert notes[1] == f"clients 0 is {own / 'w.pt'}, 1 is {own / 'w.pt'}: numbered by --client K=FILE"
    info = load_checkpoint(run.final).info
    assert (info.model.classes, info.data.train_samples, info.data.test_samples) == (2, 30, 10)
    assert (info.settings.partition, info.settings.clients) == ("own", 2)
    assert [load_checkpoint(path).info.samples for path in run.clients()] == [10, 20]
    assert not list(verify_run(run))
    problem = load([run.final], Source())[0]  # with neither network nor data named
    client = list(Participants(problem, "client", "own"))[1]
    ((inputs, targets),) = client.batches
    assert torch.equal(inputs, sys.modules["own_of_added"].clients()[1][0])
    assert targets.tolist() == [row % 2 for row in range(20)]
    frozen, _ = add(own / "w.pt", identify("own_of_added:frozen", "own_of_added:data"), registry, "frozen")
    (left_out,) = load([frozen.final], Source())[0].notes
    assert left_out == "left out 6 parameters that require no gradient; 2 are analysed"
    with pytest.raises(UserError, match="has 2 clients from 0 up, and no client 2"):
        add(own / "w.pt", identity, registry, "three", clients=files | {2: own / "w.pt"})
    assert not (own / "runs" / "three").exists()


def test_a_clients_file_that_says_its_number_is_that_client(own: Path) -> None:
    state = nn.Linear(3, 2).state_dict()
    for name in ("client_1.pt", "client-0.npz", "client_7.pt", "other.pt"):
        if name.endswith(".npz"):
            np.savez(own / name, *[tensor.numpy() for tensor in state.values()])
        else:
            torch.save(state, own / name)
    registry, identity = RunRegistry(own / "runs"), identify("own_of_added:network", "own_of_added:data")
    for name, files, numbers in (
        ("turned", ("client_1.pt", "client-0.npz"), [0, 1]),
        ("some", ("client_1.pt",), [1]),
    ):
        run, _ = add(own / "w.pt", identity, registry, name, clients=tuple(own / file for file in files))
        infos = [load_checkpoint(path).info for path in run.clients()]
        assert [(one.client, one.samples) for one in infos] == [(n, (10, 20)[n]) for n in numbers]
    with pytest.raises(UserError, match=r"client_1\.pt has a client's number.*other\.pt has none"):
        add(own / "w.pt", identity, registry, "mixed", clients=(own / "client_1.pt", own / "other.pt"))
    plain, two = identify("own_of_added:network", "mine"), (own / "client_1.pt", own / "client_7.pt")
    run, _ = add(own / "w.pt", plain, registry, "far", clients=two)
    assert [load_checkpoint(path).info.client for path in run.clients()] == [1, 7]
    assert not run.manifest().states("clients")
    assert not list(verify_run(run))


def test_own_data_in_one_piece_and_what_is_held_out(own: Path) -> None:
    registry = RunRegistry(own / "runs")
    run, _ = add(own / "w.pt", identify("own_of_added:network", "own_of_added:whole"), registry, "whole")
    assert run.manifest().rows is None
    assert not run.manifest().states("partition")
    with pytest.raises(UserError, match=r"added run.*--dataset MODULE:FACTORY"):
        Participants(load([run.final], Source())[0], "global", "own")
    held = identify("own_of_added:network", "own_of_added:clients")
    assert held.data.test_samples == 6
    assert "20% of each client's samples are held out" in held.notes[1]
    tested = identify("own_of_added:network", "own_of_added:clients", test_data="own_of_added:whole")
    assert (tested.data.train_samples, tested.data.test_samples, len(tested.notes)) == (30, 20, 1)
    run, _ = add(own / "w.pt", tested, registry, "tested")
    assert load([run.final], Source(split="test"))[0].batches.samples == 20
    with pytest.raises(UserError, match="--test-data is for data of your own"):
        identify("mlp_digits", "digits", test_data="own_of_added:whole")


def test_a_network_that_fails_on_the_data_is_refused(own: Path) -> None:
    with pytest.raises(UserError, match=r"fails on the first samples: .*; name the data that it takes"):
        identify("own_of_added:network", "digits")


def test_weights_that_are_not_finite_are_told_and_a_round_that_is_unknown_is_not_zero(tmp_path: Path) -> None:
    state = build("mlp_digits", 10, 1, torch.Generator()).state_dict()
    next(iter(state.values()))[0] = float("nan")
    torch.save(state, tmp_path / "w.pt")
    registry = RunRegistry(tmp_path / "runs")
    _, notes = add(tmp_path / "w.pt", identify("mlp_digits", "digits"), registry, "nan", round=7)
    assert "the weights are not finite" in notes[-1]
    (row,) = registry.rows()
    assert (row["rounds"], row["done"]) == (7, None)
