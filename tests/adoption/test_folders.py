"""Folders as programs leave them, and what `runs add` says of each file."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedscope.adoption.adding import add
from fedscope.adoption.identity import identify, read_partition
from fedscope.adoption.layouts import look
from fedscope.checkpoints.file.checkpoint import load_checkpoint
from fedscope.checkpoints.registry.run_registry import RunRegistry
from fedscope.checkpoints.verification.verify import verify_run
from fedscope.errors import UserError
from fedscope.models.catalogue import build
from fedscope.workflows.sources.problem import load
from fedscope.workflows.sources.run_clients import Participants
from fedscope.workflows.sources.samples import Source

SHARED = "modopt.model."


def weights(value: float) -> dict[str, Tensor]:
    return {"weight": torch.full((2, 3), value), "bias": torch.full((2,), value)}


def under(prefix: str, value: float) -> dict[str, Tensor]:
    return {f"{prefix}{name}": tensor for name, tensor in weights(value).items()}


def written(folder: Path, names: Iterable[str]) -> None:
    """Write a file under each name, its weights all equal to its place in ``names``."""
    for place, name in enumerate(names):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        with (folder / name).open("wb") as file:
            torch.save(weights(place), file)


FLUKE = [
    "r0010_server.pth",
    "r0009_server.pth",
    "r0010_client_0.pth",
    "r0009_client_0.pth",
    "r0010_client_1.pth",
]
APP = "server/simulate_job/app_server"
FLGO = "fedavg_Mcnn_R20_B64.0_E5_LR0.1_LOG"
FOLDERS = {  # files, the newest first; round; earlier rounds; clients
    "fluke 0.8.1": (FLUKE, 10, {9: FLUKE[1]}, {0: FLUKE[2], 1: FLUKE[4]}),
    "fluke 0.8.1, saved once": (["server.pth", "client_0.pth"], None, {}, {0: "client_0.pth"}),
    "NVFlare 2.9.0": ([f"{APP}/FL_global_model.pt", f"{APP}/best_FL_global_model.pt"], None, {}, {}),
    "NVFlare 2.9.0, below": (["app_server/FL_global_model.pt"], None, {}, {}),
    "Plato 1.41": ([f"checkpoint_lenet5_{r}.pth" for r in (10, 2)], 10, {2: "checkpoint_lenet5_2.pth"}, {}),
    "FLGo 0.4.4": ([f"{FLGO}.20", f"{FLGO}.5"], 20, {5: f"{FLGO}.5"}, {}),
    "pfl 0.6.0": (["checkpoint.pt", "central_optimizer.pt"], None, {}, {}),
    "Flower 1.42": (["model_round_3.pth", "round-3-client-1.npz"], 3, {}, {1: "round-3-client-1.npz"}),
}  # fmt: skip


@pytest.mark.parametrize("program", FOLDERS)
def test_a_programs_folder_is_recognised(program: str, tmp_path: Path) -> None:
    names, round, kept, clients = FOLDERS[program]
    written(tmp_path, names)
    (tmp_path / "federation.json").write_text("{}")
    found = look(tmp_path)
    assert (found.final, found.round) == (tmp_path / names[0], round)
    assert found.kept == {number: tmp_path / name for number, name in kept.items()}
    assert found.clients == {number: tmp_path / name for number, name in clients.items()}


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (
            [f"checkpoint_Client{k}_2026-01-01-10-20-3{k}.pth" for k in (1, 2)],
            r"models of clients alone \(Client1, Client2\), as APPFL keeps them: .*--client K=FILE",
        ),
        ([".metadata", "__0_0.distcp"], "torch.distributed.checkpoint.*dcp_to_torch"),
        (["checkpoint_a_1.pth", "checkpoint_b_2.pth"], "rounds of several trainings; name one file"),
        (["r1_server.pth", "r01_server.pth"], "are both of round 1; name one file"),
        (["checkpoint.pt"], "nor what else `fedscope runs add --help` names"),
    ],
)
def test_another_folder_is_refused_with_the_way_out(names: list[str], said: str, tmp_path: Path) -> None:
    written(tmp_path, names)
    with pytest.raises(UserError, match=said):
        look(tmp_path)


def personalised(folder: Path) -> Path:
    for client in (0, 1):
        torch.save({"modopt": {"model": weights(5)}, "personalized_modopt": {"model": weights(client)}},
                   folder / f"r0003_client_{client}.pth")  # fmt: skip
    torch.save({"model": weights(9)}, folder / "r0003_server.pth")
    return folder


def test_clients_have_an_entry_of_their_own_and_every_change_is_told(tmp_path: Path) -> None:
    folder, registry, mine = (
        personalised(tmp_path),
        RunRegistry(tmp_path / "runs"),
        identify(nn.Linear(3, 2), "mine"),
    )
    with pytest.raises(UserError, match=r"client 0.* choose one with --client-entry, such as .* modopt"):
        add(folder, mine, registry, "which")
    run, notes = add(folder, mine, registry, "fluke", client_entry="personalized_modopt")
    assert load_checkpoint(run.final).state["bias"].tolist() == [9, 9]
    assert [load_checkpoint(path).state["bias"].tolist() for path in run.clients()] == [[0, 0], [1, 1]]
    assert notes[:3] == (
        "removed the prefix model. from 2 names",
        "removed the prefix personalized_modopt.model. from 2 names (in 2 of 3 files: client 0, client 1)",
        f"left out 2 other tensors: {SHARED}weight, {SHARED}bias (in 2 of 3 files: client 0, client 1)",
    )
    assert run.manifest().added.notes == notes[:3]  # type: ignore[union-attr]
    assert not list(verify_run(run))


def test_what_stands_beside_the_newest_model_is_told(tmp_path: Path) -> None:
    written(tmp_path, ["FL_global_model.pt", "best_FL_global_model.pt"])
    _, notes = add(tmp_path, identify(nn.Linear(3, 2), "mine"), RunRegistry(tmp_path / "runs"), "nv")
    assert notes == ("left out best_FL_global_model.pt: name that file to register it",)


def test_statistics_that_lack_or_never_saw_a_sample_are_told(tmp_path: Path) -> None:
    state = build("resnet_digits", 10, 1, torch.Generator().manual_seed(0)).state_dict()
    torch.save(state, tmp_path / "new.pt")
    torch.save(
        {k: t for k, t in state.items() if "running" not in k and "num_" not in k}, tmp_path / "bare.pt"
    )
    registry, digits = RunRegistry(tmp_path / "runs"), identify("resnet_digits", "digits")
    _, notes = add(tmp_path / "new.pt", digits, registry, "new")
    assert notes[0].startswith("BatchNorm never saw a sample (stem.1.running_mean, ")
    assert "measure with --bn recalibrate" in notes[0]
    with pytest.raises(UserError, match="or take --bn recalibrate"):
        add(tmp_path / "bare.pt", digits, registry, "bare")
    run, notes = add(tmp_path / "bare.pt", digits, registry, "bare", bn="recalibrate")
    assert notes[0] == "no statistics of BatchNorm are there, and --bn recalibrate reads none"
    assert "never saw a sample" in notes[1]
    (told,) = load([run.final], Source(samples=16))[0].told
    assert "BatchNorm never saw a sample" in told


Save = Callable[[Path, list[list[int]]], object]
FORMS: dict[str, Save] = {
    "rows.json": lambda path, rows: path.write_text(json.dumps(dict(enumerate(rows)))),
    "list.json": lambda path, rows: path.write_text(str(rows)),
    "named.json": lambda path, rows: path.write_text(json.dumps({f"Client{k}": rows[k] for k in (1, 0)})),
    "rows.npz": lambda path, rows: np.savez(path, *map(np.array, rows)),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMS)
def test_the_rows_of_another_programs_clients(name: str, tmp_path: Path) -> None:
    FORMS[name](tmp_path / name, [[3, 1, 4], [0, 9]])
    found = read_partition(tmp_path / name, 10)
    assert [held.tolist() for held in found.clients] == [[3, 1, 4], [0, 9]]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[0, 10]]", "client 0 has row 10; those of the training set are 0 to 9"),
        ("[[0], [-1]]", "client 1 has row -1"),
        ('{"1": [0], "2": [1]}', "2 clients whose numbers are not 0 to 1"),
        ('{"a": [0]}', "1 clients whose numbers are not 0 to 0"),
        ('{"0": [0], "00": [1]}', "2 clients whose numbers"),
        ("[[0.5]]", "not a list of whole numbers"),
        ("[[[0]]]", "not a list of whole numbers"),
        ('[["x"]]', "client 0 has no list of rows"),
        ("[]", "is no partition"),
        ("3", "is no partition"),
        ("{", "is no JSON"),
    ],
)
def test_what_is_no_partition_is_refused(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "rows.json").write_text(text)
    with pytest.raises(UserError, match=said):
        read_partition(tmp_path / "rows.json", 10)
    with pytest.raises(UserError, match="no such file"):
        read_partition(tmp_path / "none.json", 10)


def test_clients_of_another_partition_are_measured_on_their_own_rows(tmp_path: Path) -> None:
    rows = [[*range(0, 40)], [*range(30, 90)]]
    (tmp_path / "rows.json").write_text(str(rows))
    for name in ("server", "client_0", "client_1"):
        state = build("mlp_digits", 10, 1, torch.Generator().manual_seed(len(name))).state_dict()
        torch.save(state, tmp_path / f"{name}.pt")
    digits = identify("mlp_digits", "digits", partition=tmp_path / "rows.json")
    run, notes = add(tmp_path, digits, RunRegistry(tmp_path / "runs"), "theirs")
    assert notes[0] == "rows.json gives 2 clients 90 of 1,437 training rows, 10 of them more than once"
    assert not list(verify_run(run))
    problem = load([run.final], Source())[0]
    clients = list(Participants(problem, "client", "own"))
    assert [client.rows.tolist() for client in clients] == rows  # type: ignore[union-attr]
    assert [load_checkpoint(path).info.samples for path in run.clients()] == [40, 60]
    with pytest.raises(UserError, match="--rows needs data that can be read"):
        identify(nn.Linear(3, 2), "mine", partition=tmp_path / "rows.json")
