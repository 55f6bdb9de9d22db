"""The clients of a small round: every part of the record against another way to it, and what is refused."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from fedscope.checkpoints.file.schema import Settings
from fedscope.checkpoints.registry.registry import Registry, Run
from fedscope.errors import UserError
from fedscope.federated.server.rounds import train
from fedscope.federated.setup.federation import open_run, prepare
from fedscope.landscape import Hessian, top_eigenpairs
from fedscope.records.clients import ClientsRecord
from fedscope.workflows.clients.checkpoints import clients
from fedscope.workflows.clients.measure import measure_clients
from fedscope.workflows.clients.parts import Measuring
from fedscope.workflows.clients.request import MEASURES, ClientsRequest, chosen
from fedscope.workflows.progress import Reporter, silent
from fedscope.workflows.sources.problem import Problem
from fedscope.workflows.sources.problems import problems
from fedscope.workflows.sources.run_clients import Client, Participants
from fedscope.workflows.sources.targets import Targets

SETTINGS = Settings(
    clients=3, rounds=2, epochs=1, model="mlp_digits", save_clients="all", keep_every=1, train_samples=300
)
LOSS = ClientsRequest(only=("loss",))


@pytest.fixture(scope="module")
def round_run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    federation = prepare(SETTINGS, {})
    found = open_run(federation, Registry(tmp_path_factory.mktemp("registry")), "tiny", resume=False)
    train(federation, found, lambda _: None)
    return found


def _targets(run: Run, which: str = "", **named: object) -> Targets:
    return Targets(run.root, (f"{run.name}{which}",), samples="all", threads=1, **named)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def problem(round_run: Run) -> Problem:
    return problems(_targets(round_run))[0]


@pytest.fixture(scope="module")
def uploads(problem: Problem) -> list[Client]:
    return list(Participants(problem, "client", "own", of_round=True))


@pytest.fixture(scope="module")
def record(problem: Problem) -> ClientsRecord:
    request = ClientsRequest(
        only=tuple(one for one in MEASURES if one != "diagonals"), top_k=2, probes=4, start=True
    )
    return measure_clients(problem, request, silent)


@pytest.fixture
def copied(round_run: Run, tmp_path: Path) -> Run:
    shutil.copytree(round_run.folder, tmp_path / "registry" / "tiny")
    return Run(tmp_path / "registry" / "tiny")


def _flat(model: nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def _loss(model: nn.Module, client: Client | Problem) -> float:
    inputs, targets = (torch.cat(side) for side in zip(*client.batches, strict=True))
    with torch.no_grad():
        return float(cross_entropy(model(inputs), targets))


def test_the_clients_are_weighted_by_their_rows(record: ClientsRecord, round_run: Run) -> None:
    counts = round_run.manifest().rows.counts  # type: ignore[union-attr]
    assert record.numbers == (0, 1, 2)
    assert [one.share for one in record.clients] == pytest.approx([count / sum(counts) for count in counts])
    assert [one.samples for one in record.clients] == list(counts)
    assert record.rows == "stored"
    assert record.converged
    assert record.start is not None
    assert record.start.round == 1


def test_the_losses_are_those_of_the_networks(
    record: ClientsRecord, problem: Problem, uploads: list[Client]
) -> None:
    table = record.of("loss")
    assert table is not None
    expected = {
        ("own", "own"): [_loss(client.model, client) for client in uploads],
        ("own", "global"): [_loss(problem.model, client) for client in uploads],
        ("global", "own"): [_loss(client.model, problem) for client in uploads],
        ("global", "global"): [_loss(problem.model, problem)] * 3,
    }
    for (function, point), values in expected.items():
        cell = table.cell(function, point)  # type: ignore[arg-type]
        assert cell is not None
        assert [one.value for one in cell.clients] == pytest.approx(values, rel=1e-5)
        assert [one.stderr_data for one in cell.clients] == [0] * 3  # all rows were taken
    gaps = [a - b for a, b in zip(expected["own", "global"], expected["own", "own"], strict=True)]
    assert [one.value for one in table.gap("averaging_own").clients] == pytest.approx(gaps, abs=1e-5)
    assert table.cell("own", "start") is not None


def test_the_curvature_is_that_of_the_operators(
    record: ClientsRecord, problem: Problem, uploads: list[Client]
) -> None:
    table = record.of("lambda_max")
    assert table is not None
    cell = table.cell("global", "own")
    assert cell is not None
    op = Hessian(uploads[1].model, cross_entropy, problem.batches)
    assert cell.clients[1].value == pytest.approx(float(top_eigenpairs(op).values[0]), rel=1e-3)
    start = table.cell("global", "start")
    assert start is not None
    assert start.mean.value > 0


def test_the_updates_are_from_the_model_that_the_round_began_with(
    record: ClientsRecord, problem: Problem, uploads: list[Client], round_run: Run
) -> None:
    start = problems(_targets(round_run, "@1"))[0]
    assert record.start is not None
    assert record.start.sha256 in (start.sha256, problems(_targets(round_run, "@2:anchor"))[0].sha256)
    assert record.alignment is not None
    for client, one in zip(uploads, record.alignment.clients, strict=True):
        update = _flat(client.model) - _flat(start.model)
        assert one.length == pytest.approx(float(update.norm()), rel=1e-5)
        u = update / update.norm()
        for batches, found in ((client.batches, one.own), (problem.batches, one.overall)):
            op = Hessian(problem.model, cross_entropy, batches)
            assert found.rayleigh.value == pytest.approx(float(u @ (op @ u)), rel=1e-4)
            vectors = top_eigenpairs(op, k=2).vectors
            assert found.share is not None
            assert found.share.value == pytest.approx(float((vectors.T @ u).square().sum()), abs=2e-3)


def test_the_cost_of_averaging_is_the_difference_of_losses(
    record: ClientsRecord, problem: Problem, uploads: list[Client]
) -> None:
    assert record.averaging is not None
    shares = [one.share for one in record.clients]
    pairs = list(zip(shares, uploads, strict=True))
    overall = sum(p * _loss(client.model, problem) for p, client in pairs) - _loss(problem.model, problem)
    own = sum(p * (_loss(client.model, client) - _loss(problem.model, client)) for p, client in pairs)
    assert record.averaging.overall.mean.measured.value == pytest.approx(overall, abs=1e-5)
    assert record.averaging.own.mean.measured.value == pytest.approx(own, abs=1e-5)
    assert abs(record.averaging.overall.mean.first.value) < 1e-6
    assert record.averaging.distance < 1e-5  # FedAvg's model is the mean
    mean = record.averaging.own.mean
    rest = mean.measured.value - mean.first.value - mean.second.value
    assert mean.remainder.value == pytest.approx(rest, abs=1e-12)


def test_overlaps_are_of_every_pair_and_the_global_model(record: ClientsRecord) -> None:
    assert record.overlap is not None
    matrix = torch.tensor(record.overlap.matrix)
    off = ~torch.eye(4, dtype=torch.bool)
    assert matrix.shape == (4, 4)
    assert bool(matrix.diagonal().isnan().all())
    torch.testing.assert_close(matrix[off], matrix.T[off])
    assert bool(((matrix[off] >= 0) & (matrix[off] <= 1)).all())
    assert bool((torch.tensor(record.overlap.low)[off] <= matrix[off] + 1e-9).all())


def test_diagonals_are_those_of_the_hessian_command(problem: Problem) -> None:
    found = measure_clients(problem, ClientsRequest(only=("diagonals",)), silent)
    assert found.cross_client is not None
    assert found.cross_client.clients == 3
    assert found.products["diagonals"] > 0
    assert not found.flatness


def test_the_same_question_is_answered_from_the_registry(
    copied: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    (first,) = clients(_targets(copied), LOSS)
    with monkeypatch.context() as patch:
        patch.setattr(Measuring, "entries", lambda _: pytest.fail("it was measured again"))
        (second,) = clients(_targets(copied), LOSS)
    assert not first.reused
    assert second.reused
    assert second.flatness == first.flatness
    shutil.copy(copied.client(1, 2), copied.client(0, 2))  # another upload: another question
    (third,) = clients(_targets(copied), LOSS)
    assert not third.reused
    assert third.clients[0].sha256 == first.clients[1].sha256


def test_without_the_anchor_it_is_said_and_the_global_model_is_taken_only_when_asked_for(copied: Run) -> None:
    copied.anchor(2).unlink()
    copied.after_round(1).unlink()
    request = ClientsRequest(only=("alignment",), top_k=1)
    with pytest.raises(UserError, match=r"began with is not in the registry.*--save-clients all"):
        clients(_targets(copied), request)
    (found,) = clients(_targets(copied), replace(request, only=("loss", "alignment")), possible=True)
    assert found.measured == ("loss",)
    assert found.alignment is None
    (found,) = clients(_targets(copied), replace(request, anchor="global"))
    assert found.start is None
    assert found.alignment is not None
    assert found.alignment.anchor == "global"
    assert clients(_targets(copied), LOSS)[0].of("loss").cell("own", "start") is None  # type: ignore[union-attr]


def test_what_has_no_clients_is_refused(copied: Run) -> None:
    with pytest.raises(UserError, match="is a client's"):
        clients(_targets(copied, "@client1"), LOSS)
    with pytest.raises(UserError, match="clients hold training rows"):
        clients(_targets(copied, split="test"), LOSS)
    shutil.rmtree(copied.folder / "clients")
    for round in (1, 2):
        shutil.rmtree(copied.folder / f"round-{round:04d}" / "clients")
    notes: list[str] = []
    copied.anchor(2).unlink()
    copied.after_round(1).unlink()
    with pytest.raises(UserError, match="train with --save-clients last"):
        clients(_targets(copied), ClientsRequest(), Reporter(note=notes.append), possible=True)
    assert notes == []  # of the alignment of updates that there are none of


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"clients": 1}, "found 1; train with --save-clients last, and with two clients or more"),
        ({"participation": 0.34, "rounds": 4}, "one client took part in round 4.*larger --participation"),
    ],
)
def test_a_round_of_one_client_is_refused_with_what_mends_it(
    settings: dict[str, object], said: str, tmp_path: Path
) -> None:
    federation = prepare(SETTINGS.model_copy(update={**settings, "save_clients": "last"}), {})
    run = open_run(federation, Registry(tmp_path), "one", resume=False)
    train(federation, run, lambda _: None)
    with pytest.raises(UserError, match=said):
        clients(_targets(run), LOSS)


def test_parts_are_named() -> None:
    assert chosen("trace,loss") == ("loss", "trace")
    assert chosen("all") == MEASURES
    with pytest.raises(UserError, match="'los'; did you mean 'loss'"):
        chosen("los")
