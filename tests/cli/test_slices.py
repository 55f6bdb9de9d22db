"""`fedscope plot-landscape` through several networks, from the registry to the record."""

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy

from fedscope.checkpoints.file.checkpoint import load_checkpoint, save_checkpoint
from fedscope.checkpoints.file.settings import Settings
from fedscope.checkpoints.registry.run_registry import RunFolder, RunRegistry
from fedscope.federated.server.run_rounds import train
from fedscope.federated.setup.federation import open_run, prepare
from fedscope.landscape import GaussNewton, Hessian, top_eigenpairs
from fedscope.workflows.sources.problem import load
from fedscope.workflows.sources.samples import Source

from .conftest import Command

FEW = ("--samples", "64", "--threads", "1")
KEPT = Settings(
    clients=4, rounds=3, epochs=1, train_samples=200, test_samples=50, keep_every=1, save_clients="all",
    participation=0.75,
)  # fmt: skip


@pytest.fixture(scope="module")
def kept(run: RunFolder) -> Iterator[RunFolder]:
    """A run that kept all its rounds and uploads of three of four clients, beside `tiny` for these tests."""
    federation, registry = prepare(KEPT, {}), RunRegistry(run.folder.parent)
    found = open_run(federation, registry, "kept", resume=False)
    train(federation, found, lambda _: None)
    yield found
    registry.delete(found)


@pytest.fixture
def landscape(fedscope: Command, kept: RunFolder) -> Any:
    """Return what computes the record of some arguments, without drawing it."""

    def record(kind: str, *arguments: str) -> Any:
        done = fedscope("plot-landscape", *arguments, "--directions", kind, *FEW, "--json", "r.json")
        assert done.code == 0, done.err
        return json.loads(Path("r.json").read_text()), done.err

    return record


def weights(path: Path) -> torch.Tensor:
    """A network's trainable parameters, from its file alone."""
    state = load_checkpoint(path).state
    return torch.cat([t.double().flatten() for name, t in state.items() if "running" not in name and t.ndim])


def loss_of(path: Path, on: Path) -> float:
    """A network's loss on the samples of another's run."""
    network, other = load([path, on], Source(samples=64))
    with torch.no_grad():
        sums = [float(cross_entropy(network.model(x), y, reduction="sum")) for x, y in other.batches]
    return sum(sums) / 64


def test_a_trajectory_of_kept_rounds(landscape: Any, kept: RunFolder) -> None:
    record, err = landscape("pca", "kept", "--grid", "3x4")
    assert [mark["label"] for mark in record["marks"]] == ["round 1", "round 2", "round 3"]
    assert [entry["round"] for entry in record["networks"]] == [1, 2, 3]
    assert (record["path"], record["checkpoint"]["round"], record["points"]) == (True, 3, 12)
    assert [len(record["loss"]), len(record["loss"][0])] == [3, 4]
    assert record["center_loss"] == pytest.approx(loss_of(kept.final, kept.final), rel=1e-5)
    assert max(mark["distance"] for mark in record["marks"]) < 1e-12  # three points span the plane
    assert "distances of 3 networks from the plane" in err
    start = torch.tensor(record["marks"][0]["at"])
    assert float(start.norm()) == pytest.approx(
        float((weights(kept.after_round(1)) - weights(kept.final)).norm())
    )
    same, _ = landscape("pca", "kept@1", "kept@2", "kept@3", "--grid", "3x4")
    assert same["loss"] == record["loss"]


def test_the_clients_of_a_round(landscape: Any, kept: RunFolder) -> None:
    record, _ = landscape("clients", "kept@2", "--grid", "3")
    uploads = sorted((kept.folder / "round-0002" / "clients").iterdir())
    assert len(uploads) == 3
    assert [mark["label"] for mark in record["marks"]] == ["global"] + [
        f"client {int(p.stem)}" for p in uploads
    ]
    assert {entry["round"] for entry in record["networks"]} == {2}
    assert record["marks"][0] == {"label": "global", "at": [0, 0], "distance": 0}
    drifts = torch.stack([weights(path) for path in uploads]) - weights(kept.after_round(2))
    for mark, drift in zip(record["marks"][1:], drifts, strict=True):  # Pythagoras
        reach = torch.tensor([*mark["at"], mark["distance"]]).norm()
        assert float(reach) == pytest.approx(float(drift.norm()), rel=1e-6)


def test_a_line_meets_its_ends_and_tells_its_barrier(landscape: Any, kept: RunFolder) -> None:
    record, err = landscape("line", "kept@1", "tiny@client0", "--grid", "11")
    values, loss = record["axes"][0]["values"], record["loss"]
    assert len(record["axes"]) == 1
    first, last = values.index(0), values.index(1)
    client = kept.folder.parent / "tiny" / "clients" / "0000.pt"
    for place, path in ((first, kept.after_round(1)), (last, client)):
        assert loss[place] == pytest.approx(loss_of(path, on=kept.after_round(1)), rel=1e-5)
    excess = [
        value - ((1 - share) * loss[first] + share * loss[last])
        for share, value in zip(values[first : last + 1], loss[first : last + 1], strict=True)
    ]
    assert record["barrier"]["height"] == pytest.approx(max(excess))
    assert "barrier between the ends" in err
    assert [mark["label"] for mark in record["marks"]] == ["kept@1", "tiny@client0"]


def test_three_points(landscape: Any) -> None:
    record, _ = landscape("points", "kept", "kept@client0", "tiny", "--grid", "3", "--span", "0.5")
    assert [mark["label"] for mark in record["marks"]] == ["kept@3", "kept@client0", "tiny@2"]
    assert max(mark["distance"] for mark in record["marks"]) < 1e-12
    assert record["barrier"] is record["curvature"] is record["surface_curvature"] is None
    assert len(record["step_curvature"]["values"]) == 2


@pytest.mark.parametrize(("kind", "operator"), [("eigen", Hessian), ("ggn", GaussNewton)])
def test_the_curvature_stands_beside_the_eigenvalues(
    landscape: Any, run: RunFolder, kind: str, operator: type[Hessian | GaussNewton]
) -> None:
    record, err = landscape(kind, "tiny", "--grid", "3", "--span", "0.1")
    assert (record["directions"], record["marks"], record["networks"]) == (kind, [], [])
    values, seen = record["curvature"], record["surface_curvature"]
    (problem,) = load([run.final], Source(samples=64))
    pairs = top_eigenpairs(operator(problem.model, problem.loss_fn, problem.batches), tol=1e-4)
    assert values[0] == pytest.approx(float(pairs.values[0]), rel=1e-4)
    assert values[0] > values[1] > 0
    of = "" if kind == "eigen" else "Gauss–Newton "
    assert f"{seen[0]:.4g}, {seen[1]:.4g} ({of}λ₁ = {values[0]:.4g}, λ₂ = {values[1]:.4g})" in err
    if kind == "eigen":
        assert seen == pytest.approx(values, rel=0.01)
    loss, h = record["loss"], record["step_curvature"]["steps"][0]
    second = (loss[0][1] - 2 * loss[1][1] + loss[2][1]) / h**2
    assert record["step_curvature"]["values"][0] == pytest.approx(second, rel=1e-3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("line", "kept@1"), "line takes 2 checkpoints, not 1: such as RUN RUN@client0"),
        (("points", "kept@1", "kept@2"), "points takes 3 checkpoints, not 2"),
        (("line", "kept", "kept@3"), "have the same weights, and no direction between them"),
        (("line", "kept@1", "kept@2", "--grid", "5x5"), "5x5 points does not fit 1 axes"),
        (("pca", "tiny"), "run 'tiny' kept 0 of its rounds, too few for a trajectory"),
        (("pca", "kept@1"), "needs three networks or more, and here are 1"),
        (("clients", "kept@client0"), "is a client's; name the global model"),
        (("clients", "tiny@best", "kept@9"), "holds no @9 (round-0009.pt)"),
    ],
)
def test_what_the_user_can_mend_is_one_line(
    fedscope: Command, kept: RunFolder, arguments: tuple[str, ...], message: str
) -> None:
    kind, *rest = arguments
    done = fedscope("plot-landscape", *rest, "--directions", kind, *FEW)
    errors = [line for line in done.err.splitlines() if line.startswith("Error: ")]
    assert (done.code, len(errors)) == (2, 1)
    assert message in errors[0]


def altered(run: RunFolder, path: Path, *, bias: float = 0.0, keep: float = 1.0) -> Path:
    """Write a copy of the run's network with another bias, and another depth in its description."""
    checkpoint = load_checkpoint(run.final)
    state, info = copy.deepcopy(checkpoint.state), checkpoint.info
    state["fc.bias"][0] = bias
    spec = info.model.model_copy(update={"keep": keep})
    save_checkpoint(path, state, info.model_copy(update={"model": spec}))
    return path


def test_networks_that_cannot_be_compared(fedscope: Command, kept: RunFolder, tmp_path: Path) -> None:
    deeper = altered(kept, tmp_path / "deep.pt", keep=0.5)
    done = fedscope("plot-landscape", "kept@1", str(deeper), "--directions", "line", *FEW)
    assert (done.code, "are of another network each" in done.err) == (2, True)
    broken = altered(kept, tmp_path / "broken.pt", bias=float("nan"))
    done = fedscope("plot-landscape", "kept@1", str(broken), "--directions", "line", *FEW)
    assert (done.code, "not finite; leave it out, or take an earlier round" in done.err) == (2, True)
    done = fedscope("plot-landscape", str(broken), *FEW, "--grid", "3")
    assert (done.code, "weights that are not finite: fc.bias (1 of " in done.err) == (2, True)
    vast = altered(kept, tmp_path / "vast.pt", bias=3e38)
    done = fedscope("plot-landscape", str(vast), *FEW, "--grid", "3")
    assert (done.code, "the loss of " in done.err, "vast.pt is inf in batch 1 of" in done.err) == (
        2,
        True,
        True,
    )


def test_uploads_of_another_round_are_not_drawn_around_this_one(
    fedscope: Command, kept: RunFolder, tmp_path: Path
) -> None:
    beside = RunFolder(tmp_path / "moved")
    beside.folder.mkdir()
    (beside.folder / "final.pt").write_bytes(kept.after_round(1).read_bytes())
    (beside.folder / "clients").mkdir()
    for upload in (kept.folder / "round-0003" / "clients").iterdir():
        (beside.folder / "clients" / upload.name).write_bytes(upload.read_bytes())
    done = fedscope("plot-landscape", str(beside.final), "--directions", "clients", *FEW)
    assert (done.code, "no client's model of round 1" in done.err) == (2, True)
    assert "are of round 3" in done.err


OWN = """
import torch
def model():
    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2))
    net[2].bias.requires_grad_(False)
    return net
def data():
    return [(torch.eye(3), torch.tensor([0, 1, 1]))]
"""


def test_networks_of_ones_own(landscape: Any, fedscope: Command, tmp_path: Path) -> None:
    (tmp_path / "linear_own.py").write_text(OWN)
    torch.manual_seed(0)
    scope: dict[str, Any] = {}
    exec(OWN, scope)
    states = [scope["model"]().state_dict() for _ in range(3)]
    for i, state in enumerate(states):
        state["2.bias"] = torch.ones(2) if i < 2 else torch.zeros(2)
        torch.save(state, f"w{i}.pt")
    own = ("--model", "linear_own:model", "--data", "linear_own:data", "--grid", "5")
    record, _ = landscape("line", "w0.pt", "w1.pt", *own)
    assert [mark["label"] for mark in record["marks"]] == ["w0", "w1"]
    done = fedscope("plot-landscape", "w0.pt", "w2.pt", "--directions", "line", *own)
    assert (done.code, "w2.pt: the networks differ in 2.bias, a frozen parameter" in done.err) == (2, True)


def test_local_steps_need_no_upload_and_an_upload_says_how_to_keep_it(fedscope: Command) -> None:
    line = "train --name inside --rounds 2 --clients 2 --local-steps 4 --keep-steps 2:0:1 --threads 1"
    made = fedscope(*line.split())
    assert made.code == 0, made.err
    small = ("--samples", "32", "--threads", "1")
    measured = fedscope(
        "hessian", "inside@1:client0", "--local-steps", "all", "--top-k", "1", "--probes", "2", *small
    )
    assert measured.code == 0, measured.err
    assert "name RUN@ROUND:clientK:stepS for that" in measured.err
    sharp = fedscope("sharpness", "inside@1:client0", "--local-steps", "all", "--only", "fisher_rao", *small)
    assert sharp.code == 0, sharp.err
    drawn = fedscope("plot-landscape", "inside@1:client0", "--directions", "pca", "--grid", "3", *small)
    assert drawn.code == 0, drawn.err
    asked = fedscope("hessian", "inside@1:client0")
    assert asked.code == 2
    assert "holds no @1:client0" in asked.err
    assert "@1:client0:step2" in asked.err
    assert "--save-clients all" in asked.err
    none = fedscope("hessian", "inside@2:client0", "--local-steps", "all")
    assert none.code == 2
    assert "no model inside the local training of inside@2:client0 was kept" in none.err
    assert "--keep-steps 1:0:2" in none.err
