"""Whose the clients' models are: the pairing with their own data, by every way into the registry."""

import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedscope.adoption.adding import add
from fedscope.adoption.flower import watch
from fedscope.adoption.identity import identify
from fedscope.adoption.layouts import clients_of
from fedscope.adoption.recorder import Recorder
from fedscope.checkpoints.file.checkpoint import load_checkpoint, save_checkpoint
from fedscope.checkpoints.registry.run_registry import RunFolder, RunRegistry
from fedscope.checkpoints.registry.whose import pairing_in
from fedscope.errors import UserError
from fedscope.workflows.sources.problem import load
from fedscope.workflows.sources.run_clients import Participants
from fedscope.workflows.sources.samples import Source
from tests.adoption.test_flower import Arrays, reply
from tests.adoption.test_pfl import adapter as adapter  # a fixture

CLIENTS = 12
APP = f"""
import torch
from torch import nn

def network():
    return nn.Linear(3, 2)

def clients():
    draws = torch.Generator().manual_seed(5)
    sets = [(torch.randn(20 + k, 3, generator=draws) + k, torch.arange(20 + k) % 2) for k in range({CLIENTS})]
    return {{"train": sets, "test": sets[0]}}
"""
NAMES = ("whose_app:network", "whose_app:clients")


@pytest.fixture
def app(tmp_path: Path, code: Callable[[str, str], Path]) -> Path:
    """The working directory, with ``whose_app.py`` and the server's model."""
    code("whose_app", APP)
    torch.save(filled(-1.0), tmp_path / "server.pt")
    return tmp_path


def filled(value: float) -> dict[str, Tensor]:
    return {"weight": torch.full((2, 3), value), "bias": torch.full((2,), value)}


def saved(folder: Path, form: str, clients: Iterable[int] = range(CLIENTS)) -> dict[int, Path]:
    """Save a model for each client, filled with its number, and return the files."""
    files = {client: folder / form.format(client) for client in clients}
    for client, path in files.items():
        torch.save(filled(float(client)), path)
    return files


def value(model: Mapping[str, Tensor] | nn.Module) -> float:
    state = model.state_dict() if isinstance(model, nn.Module) else model
    return float(state["bias"][0])


def paired(run: RunFolder) -> None:
    """Check that each client's model is measured on that client's own rows."""
    sets = sys.modules["whose_app"].clients()["train"]
    for client in Participants(load([run.final], Source())[0], "client", "own"):
        ((inputs, _),) = client.batches
        assert value(client.model) == client.number
        assert torch.equal(inputs, sets[client.number][0])


def refused(run: RunFolder, mend: str) -> None:
    """Check that own data are refused with the mend, and that the models can be had on common data."""
    (problem,) = load([run.final], Source())
    with pytest.raises(UserError, match=f"does not say whose data are whose; .*{mend}"):
        Participants(problem, "client", "own")
    with pytest.raises(UserError, match=mend):
        Participants(problem, "client", "own", of_round=True)
    assert len(list(Participants(problem, "client", "global"))) == len(run.clients())
    assert len(Participants(problem, "global", "own")) == CLIENTS  # one model: nothing to pair


@pytest.mark.parametrize("form", ["client_{}_model.pt", "net-Client{}.pt", "client-{}-round-12.pth"])
@pytest.mark.parametrize("named", [True, False])
def test_the_number_in_a_name_pairs_whatever_the_order(app: Path, form: str, named: bool) -> None:
    files, identity = saved(app, form), identify(*NAMES)
    given = tuple(sorted(files.values())) if named else ()
    run, notes = add(
        app / "server.pt" if named else app, identity, RunRegistry(app / "runs"), "a", clients=given
    )
    paired(run)
    first, last = form.format(0), form.format(11)
    assert notes[-1].startswith(f"clients 0 is {first}, 1 is {form.format(1)}, ")
    assert notes[-1].endswith(f"…, 11 is {last}: numbered by the number in the file's name")


def test_an_order_of_files_is_no_pairing_until_it_is_said(app: Path) -> None:
    files, registry = saved(app, "{}.pt"), RunRegistry(app / "runs")
    run, notes = add(app / "server.pt", identify(*NAMES), registry, "a", clients=[*files.values()])
    assert [load_checkpoint(path).info.samples for path in run.clients()] == [None] * CLIENTS
    assert "clients 0 is 0.pt, 1 is 1.pt" in notes[-1]
    assert "in the order of the files, which does not say whose data are whose; name the models" in notes[-1]
    refused(run, "runs add FILE --client K=FILE")
    said = clients_of([f"{client}={path}" for client, path in reversed(files.items())])
    run, notes = add(app / "server.pt", identify(*NAMES), registry, "b", clients=said)
    paired(run)
    assert [load_checkpoint(path).info.samples for path in run.clients()] == [20 + k for k in range(CLIENTS)]
    assert notes[-1].endswith("numbered by --client K=FILE")


def test_models_that_were_kept_in_an_order_can_be_named_afterwards(app: Path) -> None:
    """The way out that the refusal names: the run's own files, by their numbers."""
    files, registry = saved(app, "{}.pt", (2, 0, 1)), RunRegistry(app / "runs")
    first, _ = add(app / "server.pt", identify(*NAMES), registry, "a", clients=[*files.values()])
    kept = first.clients()
    said = {2: kept[0], 0: kept[1], 1: kept[2]}
    run, notes = add(first.final, identify(*NAMES), registry, "b", clients=said)
    paired(run)
    assert "2 is 0000.pt" in notes[-1]


def test_a_file_that_says_it_is_another_clients_is_refused(app: Path) -> None:
    run, _ = add(app, identify(*NAMES), RunRegistry(app / "runs"), "a", clients=saved(app, "{}.pt", (3, 4)))
    loaded = load_checkpoint(run.client(4))
    save_checkpoint(run.client(3), loaded.state, loaded.info)
    with pytest.raises(UserError, match=r"0003\.pt is client 3 by its name and client 4 by what it says"):
        Participants(load([run.final], Source())[0], "client", "global")


class Strategy:
    """A strategy of messages, whose replies come as they are given, round by round."""

    def __init__(self, *rounds: Any) -> None:
        self.rounds = rounds

    def start(self, grid: Any, initial_arrays: Any, num_rounds: int = 1) -> None:
        for round in range(1, num_rounds + 1):
            self.aggregate_train(round, self.rounds[round - 1])

    def aggregate_train(self, round: int, replies: Iterable[Any]) -> tuple[Any, Any]:
        return Arrays(filled(-1.0)), {}


def watched(folder: Path, *rounds: Any) -> RunFolder:
    strategy = watch(
        Strategy(*rounds), "flower", model=NAMES[0], dataset=NAMES[1], registry=folder, clients="last",
    )  # fmt: skip
    strategy.start(None, None, num_rounds=len(rounds))
    return RunRegistry(folder).run("flower")


NODES = {0: 7_310_882, 1: 1_201_113, 2: 9_000_004, 3: 4_400_213, 4: 2_777_005}  # as random as node ids are


@pytest.mark.parametrize("kind", [int, float])
def test_flowers_nodes_are_the_clients_that_they_say(app: Path, kind: type[float]) -> None:
    replies = [reply(node, client, **{"partition-id": kind(client)}) for client, node in NODES.items()]
    run = watched(app / "runs", replies)
    paired(run)
    pairing = pairing_in(run)
    assert pairing
    assert (pairing.told, pairing.sources[2]) == ("partition-id", "node 9000004")


def test_flowers_nodes_without_a_partition_are_in_no_order(app: Path) -> None:
    replies = [reply(node, client, **{"num-examples": 20 + client}) for client, node in NODES.items()]
    with pytest.warns(UserWarning, match="flower: clients are numbered in the order .*partition-id"):
        run = watched(app / "runs", replies)
    refused(run, "partition-id")
    infos = [load_checkpoint(path).info for path in run.clients()]
    assert [(one.origin, one.samples) for one in infos[:2]] == [("node 1201113", 21), ("node 2777005", 24)]


BAD: dict[str, tuple[dict[int, Any], set[int]]] = {
    "one says nothing": ({0: 0, 1: None, 2: 2}, {0, 1, 2}),
    "the last says nothing": ({0: 0, 1: 1, 2: None}, {0, 1, 2}),
    "two say the same": ({0: 1, 1: 1, 2: 2}, {0, 1, 2}),
    "no whole number": ({0: 0.5, 1: 1, 2: 2}, {0, 1, 2}),
    "below zero": ({0: -1, 1: 1, 2: 2}, {0, 1, 2}),
    "a list": ({0: [0], 1: 1, 2: 2}, {0, 1, 2}),
}


@pytest.mark.parametrize("case", BAD)
def test_a_partition_that_is_none_pairs_nothing_and_loses_nothing(app: Path, case: str) -> None:
    said, numbers = BAD[case]
    rounds = [
        [
            reply(NODES[client], client, **({} if partition is None else {"partition-id": partition}))
            for client, partition in said.items()
        ]
    ] * 2
    with pytest.warns(UserWarning, match="partition-id"):
        run = watched(app / "runs", *rounds)
    found = [load_checkpoint(path) for path in run.clients()]
    assert {one.info.client for one in found} == numbers
    assert sorted(value(one.state) for one in found) == [0, 1, 2]
    refused(run, "partition-id")


def test_a_node_that_comes_back_under_another_id_is_still_its_partition(app: Path) -> None:
    first = [reply(NODES[client], client, **{"partition-id": client}) for client in (0, 1)]
    second = [reply(10 + client, client, **{"partition-id": client}) for client in (1, 0)]
    run = watched(app / "runs", first, second)
    paired(run)
    assert len(run.clients()) == 2


def test_a_number_given_by_order_is_not_another_nodes_partition(app: Path) -> None:
    record = Recorder("app", model=nn.Linear(3, 2), dataset="mine", source="here", registry=app / "runs")
    assert record.number(1, "a") == (0, False)
    assert record.number(1, "b", 0) == (1, False)  # 0 is taken by a, whose number nobody told
    assert record.number(1, "c", "4") == (4, True)
    assert record.number(2, "d", 4.0) == (4, True)  # c has gone
    assert record.number(2, "c", 4) == (2, False)
    assert record.number(2, "a", 0) == (0, True)


def test_pfls_users_are_clients_by_their_number_alone(adapter: Any, app: Path) -> None:
    for users, told in ((("2", "0"), "user"), (("2", "eve"), "users"), (("2", "02"), "users")):
        trained = nn.Linear(3, 2)
        nn.init.zeros_(trained.bias)
        register = adapter.RegisterIterations(
            f"run{''.join(users)}", model=NAMES[0], dataset=NAMES[1], registry=app / "runs", clients="last"
        )
        register.on_train_begin(model=SimpleNamespace(pytorch_model=trained))

        def upload(user: str, register: Any = register) -> None:
            update = {"bias": torch.full((2,), float(user) if user.isdecimal() else 9.0)}
            context = SimpleNamespace(user_id=user, num_datapoints=7)
            register.postprocess_one_user(stats=update, user_context=context)

        upload(users[0])
        if told == "user":
            upload(users[1])
        else:
            with pytest.warns(UserWarning, match="pfl's users appeared.*from 0, as ids"):
                upload(users[1])
        register.after_central_iteration([], SimpleNamespace(pytorch_model=trained), central_iteration=0)
        register.on_train_end(model=None)
        assert len(register.recorder.run.clients()) == 2
        if told == "user":
            paired(register.recorder.run)
        else:
            refused(register.recorder.run, "from 0, as ids")


def test_a_loop_tells_the_numbers_itself(app: Path) -> None:
    with Recorder(
        "loop", model=NAMES[0], dataset=NAMES[1], registry=app / "runs", clients="last"
    ) as register:
        with pytest.raises(UserError, match="a client's number is a whole number from 0, not 'site-1'"):
            register.round(filled(0), clients={"site-1": filled(1)})  # type: ignore[dict-item]
        with pytest.raises(UserError, match="not -1"):
            register.round(filled(0), clients={-1: filled(1)})
        register.round(filled(0), clients={4: filled(4), 1: filled(1)})
    assert register.run
    paired(register.run)
    pairing = pairing_in(register.run)
    assert pairing
    assert pairing.lines == ["clients 1, 4: numbered as the training loop numbered them"]


def test_rows_of_an_array_are_told_by_their_place(app: Path) -> None:
    table = torch.stack([torch.full((8,), float(k)) for k in range(CLIENTS)])
    np.save(app / "rows.npy", table.numpy())
    server, registry = app / "server.pt", RunRegistry(app / "runs")
    run, notes = add(server, identify(*NAMES), registry, "a", clients=(app / "rows.npy",))
    paired(run)
    assert "0 is row 0 of rows.npy" in notes[-1]
    np.save(app / "one.npy", table[3].numpy())
    run, _ = add(server, identify(*NAMES), registry, "b", clients={3: app / "one.npy", 0: server})
    assert value(load_checkpoint(run.client(3)).state) == 3


def test_equal_models_are_told_by_their_content(app: Path) -> None:
    for client, filling in enumerate((-1.0, 3.0, 5.0, 3.0, -1.0, 7.0)):
        torch.save(filled(filling), app / f"client_{client}.pt")
    run, notes = add(app, identify(*NAMES), RunRegistry(app / "runs"), "a")
    assert notes[-1] == "clients 1, 3 have equal models; the global model is that of clients 0, 4"
    origin = Participants(load([run.final], Source())[0], "client", "own").origin()
    pairing = pairing_in(run)
    assert pairing
    assert origin.pairing == pairing.to_json()
    assert (pairing.equal, pairing.as_global) == (((1, 3),), (0, 4))


def test_data_of_fewer_clients_than_models(app: Path) -> None:
    files, identity = saved(app, "client_{}.pt", range(CLIENTS + 1)), identify(*NAMES)
    with pytest.raises(UserError, match=f"has {CLIENTS} clients from 0 up, and no client {CLIENTS}"):
        add(app / "server.pt", identity, RunRegistry(app / "runs"), "a", clients=[*files.values()])
    assert not (app / "runs" / "a").exists()
