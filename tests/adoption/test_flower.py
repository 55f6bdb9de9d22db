import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fedscope.adoption.flower import watch
from fedscope.checkpoints.file.checkpoint import load_checkpoint
from fedscope.checkpoints.registry.run_registry import RunFolder, RunRegistry
from fedscope.cli.main import call
from fedscope.errors import UserError
from fedscope.models.catalogue import build
from tests.adoption.recipes import recipe

PYTHON = os.environ.get("FEDSCOPE_FLOWER_PYTHON", sys.executable)  # flwr and the pins exclude each other
HERE, ROOT = Path(__file__).parent, Path(__file__).parents[2]


class Arrays:
    """What the recorder uses of Flower's ArrayRecord."""

    def __init__(self, state: dict[str, Tensor]) -> None:
        self.state = state

    def to_torch_state_dict(self) -> dict[str, Tensor]:
        return self.state


def filled(value: float) -> Arrays:
    return Arrays({"weight": torch.full((2, 3), value), "bias": torch.full((2,), value)})


def reply(node: int, value: float, **metrics: float) -> Any:
    content = SimpleNamespace(array_records={"arrays": filled(value)}, metric_records={"metrics": metrics})
    return SimpleNamespace(
        has_content=lambda: True, content=content, metadata=SimpleNamespace(src_node_id=node)
    )


class Mean:
    """A strategy of messages, with a loop of its own."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    def start(self, grid: str, initial_arrays: Arrays, num_rounds: int = 3, evaluate_fn: Any = None) -> str:
        for round in range(1, num_rounds + 1):
            replies = (reply(node, round + node / 10, **{"num-examples": node}) for node in (7, 5))
            arrays, _ = self.aggregate_train(round, replies)
            if evaluate_fn:
                evaluate_fn(round, arrays)
        return grid

    def aggregate_train(self, round: int, replies: Iterable[Any]) -> tuple[Any, Any]:
        values = [r.content.array_records["arrays"].state["bias"][0].item() for r in replies]
        self.seen.append(len(values))
        return filled(sum(values) / len(values)), {"train_loss": 1.0 / round}


@pytest.mark.parametrize("clients", ["none", "last", "all"])
def test_rounds_are_registered_and_the_strategy_is_left_as_it_was(tmp_path: Path, clients: Any) -> None:
    strategy = Mean()
    watched = watch(
        strategy, "app", model=nn.Linear(3, 2), dataset="mine", registry=tmp_path, clients=clients
    )  # fmt: skip
    assert watched is strategy
    rounds: list[int] = []

    def score(round: int, _: Arrays) -> dict[str, float]:
        rounds.append(round)
        return {"accuracy": round / 4}

    scored = strategy.start("grid", filled(0), num_rounds=3, evaluate_fn=score)
    assert (scored, rounds, strategy.seen) == ("grid", [1, 2, 3], [2, 2, 2])
    registry = RunRegistry(tmp_path)
    for reference, round in (("app@1", 1), ("app@2", 2), ("app@3", 3), ("app", 3)):
        loaded = load_checkpoint(registry.resolve(reference))
        assert loaded.info.round == round
        assert loaded.state["bias"].tolist() == pytest.approx([round + 0.6] * 2)
    (row,) = registry.rows()
    shown = (row["status"], row["method"], row["model"], row["rounds"], row["done"], row["accuracy"])
    assert shown == ("finished", "Mean", "Linear", 3, 3, 0.75)
    assert [m.train_loss for m in registry.run("app").metrics()] == [1.0, 0.5, pytest.approx(1 / 3)]
    uploads = [load_checkpoint(path) for path in registry.run("app").clients(2)]
    if clients == "none":
        assert not uploads
        return
    round = 2 if clients == "all" else 3
    assert [(u.info.client, u.info.samples, u.info.round) for u in uploads] == [(0, 5, round), (1, 7, round)]
    assert uploads[1].state["bias"][0].item() == pytest.approx(round + 0.7)


def test_arrays_that_are_not_the_networks_are_told_in_the_first_round(tmp_path: Path) -> None:
    strategy = watch(Mean(), "app", model=nn.Linear(4, 2), dataset="mine", registry=tmp_path)
    with pytest.raises(UserError, match=r"round 1 .*shape"):
        strategy.start("grid", filled(0))
    assert not RunRegistry(tmp_path).rows()


def test_a_name_that_is_taken_is_counted_up(tmp_path: Path) -> None:
    for _ in range(2):
        watch(Mean(), "app", model=nn.Linear(3, 2), dataset="mine", registry=tmp_path).start("g", filled(0))
    assert {row["name"] for row in RunRegistry(tmp_path).rows()} == {"app", "app-2"}


def test_a_strategy_of_the_older_interface_is_refused_and_registered_by_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Older:
        def aggregate_fit(self, _round: int, results: Any, _failures: Any) -> tuple[Any, dict[str, float]]:
            return results, {"train_loss": 0.5}

    with pytest.raises(UserError, match=r"Older takes no messages.*flwr\.serverapp.*aggregate_fit"):
        watch(Older(), "app", model=nn.Linear(3, 2), dataset="mine", registry=tmp_path)
    parts: dict[str, dict[str, Any]] = {
        "flwr": {}, "flwr.server": {}, "flwr.server.strategy": {"FedAvg": Older},
        "flwr.common": {"parameters_to_ndarrays": list},
    }  # fmt: skip
    for name, content in parts.items():
        monkeypatch.setitem(sys.modules, name, SimpleNamespace(**content))
    monkeypatch.chdir(tmp_path)
    strategy = recipe("callbacks.md", "older_flower.py").Registered()
    state = build("mlp_digits", 10, 1, torch.Generator().manual_seed(0)).state_dict()
    sent = [tensor.numpy() for tensor in state.values()]
    assert strategy.aggregate_fit(1, sent, []) == (sent, {"train_loss": 0.5})
    assert strategy.aggregate_fit(2, None, []) == (None, {"train_loss": 0.5})
    strategy.register.finish()
    run = RunRegistry(tmp_path / "checkpoints").run("my-run")
    assert [(m.round, m.train_loss) for m in run.metrics()] == [(1, 0.5)]
    found = load_checkpoint(run.final).state
    assert all(torch.equal(found[name], tensor) for name, tensor in state.items())


@pytest.fixture(scope="module", params=["message"])
def simulated(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """The run of a real Flower simulation, three clients of digits for two rounds."""
    if subprocess.run([PYTHON, "-c", "import flwr, ray"], capture_output=True).returncode:
        pytest.skip("flwr and ray are not here; FEDSCOPE_FLOWER_PYTHON names a Python that has them")
    folder = tmp_path_factory.mktemp(request.param)
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(HERE))),
        "FLWR_HOME": str(folder / "flwr"),
        "FLWR_TELEMETRY_ENABLED": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(
        [PYTHON, str(HERE / "flower_app.py"), request.param, str(folder)],
        cwd=folder, env=environment, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return RunRegistry(folder).run(request.param)


@pytest.mark.slow
def test_a_real_simulation_is_registered(simulated: RunFolder) -> None:
    (row,) = RunRegistry(simulated.folder.parent).rows()
    assert (row["status"], row["rounds"], row["done"], row["best"]) == ("finished", 2, 2, 0.5)
    final = load_checkpoint(simulated.final)
    uploads = [load_checkpoint(path) for path in simulated.clients(2)]
    assert [u.info.client for u in uploads] == [0, 1, 2]
    assert sum(u.info.samples or 0 for u in uploads) == 1437
    first = load_checkpoint(simulated.after_round(1))
    assert (first.info.round, final.info.round) == (1, 2)
    result = simulated.folder.parent / "result.pt"  # what the strategy itself returned, by Adam on the server
    returned = torch.load(result, weights_only=True)
    assert all(torch.equal(final.state[name], returned[name]) for name in returned)


@pytest.mark.slow
def test_a_real_simulation_is_analysed(
    simulated: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    few = ("--samples", "64", "--registry", str(simulated.folder.parent), "--threads", "1")
    name = simulated.name
    assert call(("runs", "list", "--registry", str(simulated.folder.parent))) == 0
    probes = ("--probes", "4", "--clients", "--client-data", "global", "--client-probes", "4")
    assert call(("hessian", name, f"{name}@1", *few, *probes)) == 0
    assert call(("plot-landscape", f"{name}@1", name, *few, "--grid", "3")) == 0
