"""Rounds and clients that any program registers."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedscope.adoption.recorder import Recorder
from fedscope.checkpoints.file.checkpoint import load_checkpoint
from fedscope.checkpoints.registry.run_registry import RunRegistry
from fedscope.checkpoints.verification.verify import verify_run
from fedscope.errors import UserError
from fedscope.workflows.sources.problem import load
from fedscope.workflows.sources.run_clients import Participants
from fedscope.workflows.sources.samples import Source


def filled(value: float) -> dict[str, Tensor]:
    return {"weight": torch.full((2, 3), value), "bias": torch.full((2,), value)}


def recorder(folder: Path, **given: Any) -> Recorder:
    return Recorder("app", model=nn.Linear(3, 2), dataset="mine", source="here", registry=folder, **given)


@pytest.mark.parametrize("clients", ["none", "last", "all"])
def test_what_is_registered_passes_the_check_of_runs(tmp_path: Path, clients: Any) -> None:
    record = recorder(tmp_path, clients=clients, rounds=2, method="own")
    assert (record.run, record.newest) == (None, 0)
    for round in (1, 2):
        for client in (4, 9):
            record.upload(round, client, filled(round + client / 10), samples=client)
        record.add(round, filled(round), {"accuracy": round / 4, "loss": float("nan"), "other": 3.0})
    record.note(2, {"train_loss": 0.5})
    record.note(7, {"train_loss": 0.5})  # of no round that is registered
    run = record.run
    assert run is not None
    assert run.status(run.manifest()) == "unfinished"
    record.finish()
    assert run.status(run.manifest()) == "finished"
    assert not list(verify_run(run))
    assert [(m.accuracy, m.loss, m.train_loss) for m in run.metrics()] == [
        (0.25, None, None),
        (0.5, None, 0.5),
    ]
    found = [load_checkpoint(path).info for path in run.clients(1)]
    assert [one.client for one in found] == ([] if clients == "none" else [4, 9])
    assert {one.round for one in found} <= {1 if clients == "all" else 2}
    manifest = run.manifest()
    assert manifest.added is not None
    assert manifest.added.source == "here"
    assert (manifest.settings.method, manifest.states("method"), manifest.states("lr")) == (
        "own",
        True,
        False,
    )


def test_a_misspelt_keyword_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="takes no 'methd'; did you mean 'method'"):
        recorder(tmp_path, methd="own")


def test_scores_may_be_of_numpy_and_torch(tmp_path: Path) -> None:
    record = recorder(tmp_path)
    scores = {"accuracy": np.float32(0.5), "loss": torch.tensor([0.25]), "train_loss": None}
    record.add(1, filled(1), scores)
    record.note(1, {"train_loss": np.array(2)})
    with pytest.raises(UserError, match="accuracy 'high' is no number; give a float, or None"):
        record.note(1, {"accuracy": "high"})
    with pytest.raises(UserError, match="loss tensor"):
        record.note(1, {"loss": torch.ones(2)})
    assert record.run is not None
    (found,) = record.run.metrics()
    assert (found.accuracy, found.loss, found.train_loss) == (0.5, 0.25, 2.0)


def test_a_round_has_its_own_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter((100.0, 103.0, 105.5, 115.5))
    monkeypatch.setattr("fedscope.adoption.recorder.time.perf_counter", lambda: next(times))
    record = recorder(tmp_path)
    for round in (1, 2, 3):
        record.add(round, filled(round), {})
    assert record.run
    assert [one.seconds for one in record.run.metrics()] == [3.0, 2.5, 10.0]


def test_nameless_tensors_are_taken_in_their_order(tmp_path: Path) -> None:
    record = recorder(tmp_path)
    record.add(1, dict(zip("01", filled(3).values(), strict=True)), {})
    state = load_checkpoint(RunRegistry(tmp_path).resolve("app")).state
    assert {name: tensor.shape for name, tensor in state.items()} == {"weight": (2, 3), "bias": (2,)}


def test_clients_are_numbered_as_they_appear(tmp_path: Path) -> None:
    record = recorder(tmp_path)
    assert [record.number(1, node) for node in ("x", 77, "x", "y")] == [(n, False) for n in (0, 1, 0, 2)]


def test_tensors_of_another_network_are_refused_in_any_round(tmp_path: Path) -> None:
    record = recorder(tmp_path)
    wrong = {"weight": torch.zeros(2, 4), "bias": torch.zeros(2)}
    with pytest.raises(UserError, match="round 1"):
        record.add(1, wrong, {})
    assert not RunRegistry(tmp_path).rows()
    record.add(1, filled(1), {})
    with pytest.raises(UserError, match="round 2"):
        record.add(2, wrong, {})
    assert len(RunRegistry(tmp_path).run("app").metrics()) == 1


def test_a_run_of_named_code_needs_nothing_named_again(
    tmp_path: Path, code: Callable[[str, str], Path]
) -> None:
    code(
        "recorded_app",
        "import torch\n"
        "def network():\n    return torch.nn.Linear(3, 2)\n"
        "def clients():\n    return [(torch.ones(n, 3), torch.arange(n) % 2) for n in (10, 20)]\n",
    )
    record = Recorder(
        "app", model="recorded_app:network", dataset="recorded_app:clients", source="here",
        registry=tmp_path / "runs", clients="last",
    )  # fmt: skip
    for client in (0, 1):
        record.upload(1, client, filled(client), samples=99)
    record.add(1, filled(0.5), {})
    record.finish()
    run = record.run
    assert run is not None
    assert not list(verify_run(run))
    (problem,) = load([run.final], Source())
    found = list(Participants(problem, "client", "own"))
    assert [client.batches.samples for client in found] == [8, 16]  # a fifth is held out
    assert [client.info.samples for client in found if client.info] == [8, 16]
    with pytest.raises(UserError, match="no client 2"):
        record.upload(1, 2, filled(1))


def test_the_newest_uploads_stand_beside_those_of_every_round(tmp_path: Path) -> None:
    record = recorder(tmp_path, clients="all", rounds=2)
    for round in (1, 2):
        record.upload(round, 4, filled(float(round)), samples=0)  # of a client without a sample
        record.add(round, filled(round), {})
    store = RunRegistry(tmp_path)
    newest, first = (load_checkpoint(store.resolve(name)) for name in ("app@client4", "app@1:client4"))
    assert (newest.info.round, newest.info.samples) == (2, None)
    assert float(first.state["bias"][0]) == 1.0
