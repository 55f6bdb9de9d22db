"""A plain loop whose rounds are registered."""

import json
from pathlib import Path

import pytest
import torch
from torch import nn

from fedscope.adoption.recorder import Recorder, State
from fedscope.checkpoints.file.checkpoint import load_checkpoint
from fedscope.checkpoints.registry.run_registry import RunRegistry
from fedscope.cli.main import call


def network(value: float) -> nn.Module:
    model = nn.Linear(3, 2)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(value)
    return model


def test_rounds_count_themselves_and_the_end_finishes_the_run(tmp_path: Path) -> None:
    with Recorder(
        "loop", model=nn.Linear(3, 2), dataset="mine", registry=tmp_path, clients="last"
    ) as register:
        for t in (1, 2):
            uploads: dict[int, State] = {8: network(t + 0.8), 2: network(t + 0.2).state_dict()}
            register.round(network(t), {"accuracy": t / 4}, clients=uploads, samples={2: 20})
    assert register.run is not None
    assert [m.accuracy for m in register.run.metrics()] == [0.25, 0.5]
    registry = RunRegistry(tmp_path)
    for reference, value in (("loop@1", 1), ("loop", 2), ("loop@client2", 2.2), ("loop@client8", 2.8)):
        loaded = load_checkpoint(registry.resolve(reference))
        assert loaded.state["bias"].tolist() == pytest.approx([value] * 2)
    assert [load_checkpoint(path).info.samples for path in register.run.clients()] == [20, None]
    assert call(["runs", "verify", "loop", "--registry", str(tmp_path)]) == 0


def test_what_is_there_at_an_exception_stays_unfinished(tmp_path: Path) -> None:
    with (
        pytest.raises(ZeroDivisionError),
        Recorder("loop", model=nn.Linear(3, 2), dataset="mine", registry=tmp_path) as register,
    ):
        register.round(network(1))
        raise ZeroDivisionError
    (row,) = RunRegistry(tmp_path).rows()
    assert (row["status"], row["done"]) == ("unfinished", 1)


def test_without_a_context_finish_ends_it(tmp_path: Path) -> None:
    register = Recorder("loop", model=nn.Linear(3, 2), dataset="mine", registry=tmp_path)
    register.finish()  # nothing is there yet
    register.round(network(1))
    register.finish()
    (row,) = RunRegistry(tmp_path).rows()
    assert row["status"] == "finished"


def test_a_network_of_one_s_own_keeps_the_names_of_its_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where a folder of the run's name lies in the working directory."""
    with Recorder(
        "loop", model=nn.Linear(3, 2), dataset="mine", registry=tmp_path / "runs", method="mine"
    ) as register:
        register.round(network(1))
        register.round(network(2))
    monkeypatch.chdir(tmp_path)
    Path("loop").mkdir()
    Path("mine_of_loop.py").write_text(MINE)
    command = ["hessian", "loop@1", "loop", "--model", "mine_of_loop:model", "--data", "mine_of_loop:data"]
    assert call([*command, "--registry", "runs", "--json", "found.json"]) == 0
    found = [one for one in json.loads(Path("found.json").read_text()) if "problem" in one]
    weights = [one["checkpoint"] for one in found]
    about = [(w["run"], w["round"], one["problem"]["method"]) for w, one in zip(weights, found, strict=True)]
    assert about == [("loop", 1, "mine"), ("loop", 2, "mine")]
    assert "loop@1" in capsys.readouterr().out


MINE = """
import torch
from torch import nn


def model():
    return nn.Linear(3, 2)


def data():
    yield torch.randn(8, 3, generator=torch.Generator().manual_seed(0)), torch.arange(8) % 2
"""
