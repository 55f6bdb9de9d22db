from pathlib import Path

import pytest
import torch

from fedscope.checkpoints.file.settings import Settings
from fedscope.federated.client.state import ClientState
from fedscope.federated.methods import parse
from fedscope.federated.parallel.memory import Memory
from fedscope.federated.record.flat import FlatModel
from fedscope.federated.record.tasks import Task
from fedscope.federated.setup.federation import prepare
from tests.federated.runs import trained

SMALL = Settings(
    clients=3, rounds=2, epochs=1, train_samples=150, test_samples=100, batch_size=20, model="resnet_digits",
    alpha=1.0, threads=1, save_clients="none",
)  # fmt: skip


def clients_of(settings: Settings) -> ClientState:
    method = parse(settings.method)
    return ClientState(FlatModel(prepare(settings, {}).model), method, method.values({}, "paper"))


@pytest.mark.parametrize("host", ["feddc", "fedgf", "fedgloss", "fedsmoo", "fedtoga", "fedwmsam"])
def test_no_vector_of_a_method_acts_on_personal_batchnorm(tmp_path: Path, host: str) -> None:
    settings = SMALL.model_copy(update={"method": f"fedbn+{host}"})
    run, method, clients = trained(tmp_path, settings), parse(settings.method), clients_of(settings)
    memory = Memory.after(run.folder / "state", clients.memory.width, 2)
    remembered = memory.recall(0)
    assert remembered is not None
    own = clients.personal[clients.personal < clients.model.size]
    held = ((method.server_state, memory.server(2)), (method.memory, clients.memory.split(remembered)))
    for vectors, values in held:
        for name in (vector.name for vector in vectors if vector.scope == "parameters"):
            assert values[name].any()
            assert not values[name][own].any()


def test_a_clients_old_model_has_the_batchnorm_of_its_start() -> None:
    clients, rows = clients_of(SMALL.model_copy(update={"method": "fedbn+fedlesam"})), torch.arange(4)
    task = Task(rows, torch.Generator(), torch.Generator(), memory=10 + torch.arange(clients.memory.width))
    clients.load([task], clients.initial, 0.1, rows)
    at = clients.stack(1, first_of_epoch=True)
    same = (at.memory["lesam.received"] == at.anchor)[0].nonzero()[:, 0]
    assert same.tolist() == clients.personal[clients.personal < clients.model.size].tolist()


def test_a_random_start_is_moons_alone() -> None:
    settings = SMALL.model_copy(update={"method": "moon+fedlesam", "head": True})
    federation = prepare(settings, {"moon.first": "random"})
    clients, rows = clients_of(settings), torch.arange(4)
    own = federation.own_start(0)
    assert own is not None
    task = Task(rows, torch.Generator(), torch.Generator(), initial=lambda: own)
    clients.load([task], clients.initial + 1, 0.1, rows)
    memory = clients.memory.split(clients.remembered[0])
    assert torch.equal(memory["moon.previous"], own)
    assert torch.equal(memory["lesam.received"], clients.initial[: clients.model.size])
