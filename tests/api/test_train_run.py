"""Training from Python: names, and what a notebook holds."""

from pathlib import Path
from typing import get_type_hints

import pytest
import torch
from torch import Tensor, nn

import fedscope
from fedscope.api.train_run import TrainSettings
from fedscope.checkpoints.file.checkpoint import load_checkpoint
from fedscope.checkpoints.file.settings import Settings
from fedscope.errors import UserError
from fedscope.own import SESSION

INPUTS = torch.randn(120, 3, generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(120) % 4
ELSEWHERE = {"loss", "method", "options", "model", "test_data", "device", "threads"}  # arguments of their own


def _net() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 4))


def _clients() -> list[tuple[Tensor, Tensor]]:
    return [(INPUTS[:50], LABELS[:50]), (INPUTS[50:], LABELS[50:])]


def test_every_setting_of_a_run_can_be_given() -> None:
    assert set(get_type_hints(TrainSettings)) | ELSEWHERE == set(Settings.model_fields)


def test_settings_and_options_are_those_of_the_command(tmp_path: Path) -> None:
    run = fedscope.train(
        method="fedprox", options={"prox.mu": 0.5}, rounds=1, clients=2, train_samples=60, lr=0.02,
        test_samples=20, registry=tmp_path,
    )  # fmt: skip
    assert (run.name, run.state, run.settings["lr"]) == ("fedprox-digits", "finished", 0.02)
    assert run.settings["options"]["prox.mu"] == 0.5
    assert [one["round"] for one in run.metrics] == [1]
    assert run.accuracy == run.metrics[-1]["accuracy"]
    more = fedscope.train(name=run.name, resume=True, rounds=2, registry=tmp_path)
    assert len(more.metrics) == 2


def test_a_network_and_data_of_a_session_are_trained_and_measured_there(tmp_path: Path) -> None:
    run = fedscope.train(model=_net_of_a_notebook(), data=_clients(), rounds=2, name="own", registry=tmp_path)
    assert run.settings["partition"] == "own"
    found = fedscope.measure(run, samples=32, clients=True, probes=4)
    assert found.clients
    assert found.clients.clients == 2


def _net_of_a_notebook() -> type[nn.Module]:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = _net()

        def forward(self, inputs: Tensor) -> Tensor:
            found: Tensor = self.layers(inputs)
            return found

    Net.__module__ = "__main__"
    return Net


def test_a_module_is_where_training_begins(tmp_path: Path) -> None:
    model = _net()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    run = fedscope.train(
        model=model, data=(INPUTS, LABELS), partition="iid", clients=2, rounds=1, lr=0.0, weight_decay=0.0,
        registry=tmp_path,
    )  # fmt: skip
    state = load_checkpoint(run.folder / "final.pt").state
    assert all(torch.equal(state[name], tensor) for name, tensor in before.items())
    assert all(torch.equal(model.state_dict()[name], tensor) for name, tensor in before.items())


def test_an_object_of_another_session_is_refused_with_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = fedscope.train(model=_net(), data=(INPUTS, LABELS), partition="iid", rounds=1, registry=tmp_path)
    monkeypatch.delitem(__import__("sys").modules, SESSION)
    with pytest.raises(UserError, match="session that has ended; give it again"):
        fedscope.measure(run)
    again = fedscope.measure(run.folder / "final.pt", model=_net, data=(INPUTS, LABELS))
    assert again.lambda_max.value > 0


def test_what_cannot_be_done_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="model cannot be sent"):
        fedscope.train(model=_net(), data=(INPUTS, LABELS), workers=2, registry=tmp_path)
    with pytest.raises(UserError, match="fedavg"):
        fedscope.train(method="fedavgg", registry=tmp_path)
    with pytest.raises(UserError, match="alpha has no effect"):
        fedscope.train(partition="iid", alpha=0.1, registry=tmp_path)
    with pytest.raises(UserError, match="diverged in round 1, and is kept"):
        fedscope.train(lr=1e30, rounds=1, clients=2, train_samples=60, registry=tmp_path)
    assert "fedavg-digits" in fedscope.Registry(tmp_path)


def test_data_of_a_function_are_those_that_it_returns_now(tmp_path: Path) -> None:
    scale = 1.0

    def data() -> list[tuple[Tensor, Tensor]]:
        return [(scale * INPUTS[:50], LABELS[:50]), (scale * INPUTS[50:], LABELS[50:])]

    first = fedscope.train(model=_net, data=data, rounds=1, name="a", registry=tmp_path)
    scale = 5.0
    second = fedscope.train(model=_net, data=data, rounds=1, name="b", registry=tmp_path)
    prints = [
        load_checkpoint(tmp_path / run.name / "final.pt").info.data.fingerprint for run in (first, second)
    ]
    assert len(set(prints)) == 2


def test_a_loss_of_a_session_is_trained_with_and_measured(tmp_path: Path) -> None:
    x = torch.rand(60, 2, generator=torch.Generator().manual_seed(0))
    data = {"train": [(x[:20], x[:20].sum(1)), (x[20:50], x[20:50].sum(1))], "test": (x[50:], x[50:].sum(1))}

    def gap(output: Tensor, target: Tensor) -> Tensor:
        return (output[:, 0] - target).square().mean()

    torch.manual_seed(0)
    model = nn.Linear(2, 1)
    run = fedscope.train(
        model=model,
        data=data,
        loss=gap,
        method="feddyn",
        rounds=2,
        batch_size=8,
        name="gap",
        registry=tmp_path,
    )
    assert run.accuracy is None
    assert [one["accuracy"] for one in run.metrics] == [None, None]
    found = fedscope.measure(run, probes=2)
    inputs = torch.cat([x[:50], torch.ones(50, 1)], 1).double()
    exact = float(torch.linalg.eigvalsh(2 * inputs.T @ inputs / 50)[-1])
    assert found.lambda_max.value == pytest.approx(exact, rel=1e-4)
    with pytest.raises(UserError, match="takes no 'losses'"):
        fedscope.measure(run, losses=gap)  # type: ignore[call-arg]
