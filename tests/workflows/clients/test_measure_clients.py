"""The clients of a small round: every part of the record against another way to it, and what is refused."""

import shutil
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from fedscope.checkpoints.file.checkpoint import load_checkpoint, save_checkpoint
from fedscope.checkpoints.registry.run_registry import RunFolder, RunRegistry
from fedscope.errors import UserError
from fedscope.landscape import Hessian, top_eigenpairs
from fedscope.landscape.heterogeneity.one_round.at_weights import cell
from fedscope.landscape.heterogeneity.one_round.eigenspaces import overlaps
from fedscope.landscape.loss.flat_loss import FlatLoss
from fedscope.records.clients_record import ClientsRecord
from fedscope.workflows.clients.clients_request import MEASURES, ClientsRequest, chosen
from fedscope.workflows.clients.measure_clients import BATCHES, clients, measure_clients
from fedscope.workflows.clients.parts import Measuring
from fedscope.workflows.progress import Reporter
from fedscope.workflows.sources.problem import Problem
from fedscope.workflows.sources.problems import problems
from fedscope.workflows.sources.run_clients import Participants, RunClient

from .small import flat, targets, trained

LOSS = ClientsRequest(only=("loss",))


@pytest.fixture(scope="module")
def run(perceptron: RunFolder) -> RunFolder:
    return perceptron


@pytest.fixture(scope="module")
def record(problem: Problem) -> ClientsRecord:
    request = ClientsRequest(
        only=tuple(one for one in MEASURES if one != "diagonals"), top_k=2, probes=4, start=True
    )
    return measure_clients(problem, request)


@pytest.fixture
def copied(round_run: RunFolder, tmp_path: Path) -> RunFolder:
    shutil.copytree(round_run.folder, tmp_path / "registry" / "tiny")
    return RunFolder(tmp_path / "registry" / "tiny")


def _loss(model: nn.Module, client: RunClient | Problem) -> float:
    inputs, targets = (torch.cat(side) for side in zip(*client.batches, strict=True))
    with torch.no_grad():
        return float(cross_entropy(model(inputs), targets))


def test_the_clients_are_weighted_by_their_rows(record: ClientsRecord, round_run: RunFolder) -> None:
    counts = round_run.manifest().rows.counts  # type: ignore[union-attr]
    assert record.numbers == (0, 1, 2)
    assert [one.share for one in record.clients] == pytest.approx([count / sum(counts) for count in counts])
    assert [one.samples for one in record.clients] == list(counts)
    assert record.rows == "stored"
    assert record.converged
    assert record.start is not None
    assert record.start.round == 1


def test_the_losses_are_those_of_the_networks(
    record: ClientsRecord, problem: Problem, uploads: list[RunClient], round_run: RunFolder
) -> None:
    table = record.of("loss")
    assert table is not None
    start = problems(targets(round_run, "@1"))[0].model
    expected = {
        ("own", "own"): [_loss(client.model, client) for client in uploads],
        ("own", "global"): [_loss(problem.model, client) for client in uploads],
        ("global", "own"): [_loss(client.model, problem) for client in uploads],
        ("global", "global"): [_loss(problem.model, problem)] * 3,
        ("own", "start"): [_loss(start, client) for client in uploads],
        ("global", "start"): [_loss(start, problem)] * 3,
    }
    for (function, point), values in expected.items():
        cell = table.cell(function, point)  # type: ignore[arg-type]
        assert cell is not None
        assert [one.value for one in cell.clients] == pytest.approx(values, rel=1e-5)
        assert [one.stderr_data for one in cell.clients] == [0] * 3  # all rows were taken
    gaps = [a - b for a, b in zip(expected["own", "global"], expected["own", "own"], strict=True)]
    assert [one.value for one in table.gap("averaging_own").clients] == pytest.approx(gaps, abs=1e-5)


def test_the_curvature_is_that_of_the_operators(
    record: ClientsRecord, problem: Problem, uploads: list[RunClient]
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
    record: ClientsRecord, problem: Problem, uploads: list[RunClient], round_run: RunFolder
) -> None:
    start = problems(targets(round_run, "@1"))[0]
    assert record.start is not None
    assert record.start.sha256 in (start.sha256, problems(targets(round_run, "@2:anchor"))[0].sha256)
    assert record.alignment is not None
    for client, one in zip(uploads, record.alignment.clients, strict=True):
        update = flat(client.model) - flat(start.model)
        assert one.length == pytest.approx(float(update.norm()), rel=1e-5)
        u = update / update.norm()
        for batches, found in ((client.batches, one.own), (problem.batches, one.overall)):
            op = Hessian(problem.model, cross_entropy, batches)
            assert found.rayleigh.value == pytest.approx(float(u @ (op @ u)), rel=1e-4)
            vectors = top_eigenpairs(op, k=2).vectors
            assert found.share is not None
            assert found.share.value == pytest.approx(float((vectors.T @ u).square().sum()), abs=2e-3)


def test_the_cost_of_averaging_is_the_difference_of_losses(
    record: ClientsRecord, problem: Problem, uploads: list[RunClient]
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


def test_with_their_own_statistics_the_uploads_have_their_own_losses(tmp_path: Path) -> None:
    """BatchNorm's statistics of FedAvg's model are the mean of the uploads'."""
    changed = {"model": "resnet_digits", "train_samples": 60, "rounds": 1, "batch_size": 5, "lr": 0.2}
    run = trained(RunRegistry(tmp_path), "norm", changed)
    (problem,) = problems(targets(run))
    record = measure_clients(problem, ClientsRequest(only=("drift",)))
    shares = [one.share for one in record.clients]
    models = [client.model.eval() for client in Participants(problem, "client", "own", of_round=True)]
    after = sum(p * _loss(model, problem) for p, model in zip(shares, models, strict=True))
    found = record.averaging
    assert found is not None
    assert found.own_buffers is not None
    assert found.own_buffers.value == pytest.approx(after - _loss(problem.model.eval(), problem), abs=2e-5)
    assert abs(found.own_buffers.value - found.overall.mean.measured.value) > 5e-4


def test_recalibrated_statistics_are_of_one_batching(tmp_path: Path) -> None:
    changed = {"model": "resnet_digits", "train_samples": 60, "rounds": 1, "batch_size": 5, "lr": 0.2}
    run = trained(RunRegistry(tmp_path), "norm", changed)
    (problem,) = problems(targets(run))
    record = measure_clients(problem, ClientsRequest(only=("drift",), bn="recalibrate"))
    models = [client.model for client in Participants(problem, "client", "own", of_round=True)]
    shares = [one.share for one in record.clients]

    def loss(model: nn.Module) -> float:
        found = FlatLoss(model, cross_entropy, problem.batches, bn="recalibrate")
        return found.value(found.center)

    after = sum(p * loss(model) for p, model in zip(shares, models, strict=True))
    assert record.averaging is not None
    assert record.averaging.own_buffers is not None
    assert record.averaging.own_buffers.value == pytest.approx(after - loss(problem.model), abs=2e-5)


def test_overlaps_are_of_every_pair_and_the_global_model(record: ClientsRecord) -> None:
    assert record.overlap is not None
    matrix = torch.tensor(record.overlap.matrix)
    off = ~torch.eye(4, dtype=torch.bool)
    assert matrix.shape == (4, 4)
    assert bool(matrix.diagonal().isnan().all())
    torch.testing.assert_close(matrix[off], matrix.T[off])
    assert bool(((matrix[off] >= 0) & (matrix[off] <= 1)).all())
    assert bool((torch.tensor(record.overlap.low)[off] <= matrix[off] + 1e-9).all())


def test_overlaps_have_the_errors_of_each_hessian_at_its_own_weights(round_run: RunFolder) -> None:
    (few,) = problems(replace(targets(round_run), samples=48))
    found = measure_clients(few, ClientsRequest(only=("overlap",), top_k=1)).overlap
    own = [(client.model, client.batches) for client in Participants(few, "client", "own", of_round=True)]
    operators = [
        Hessian(model, cross_entropy, batches, deal=BATCHES)
        for model, batches in (*own, (few.model, few.batches))
    ]
    spaces = [
        cell(op, str(i), quantities=(), k=1, seed=few.source.seed).space for i, op in enumerate(operators)
    ]
    expected, _ = overlaps(operators, [space for space in spaces if space])
    assert found is not None
    for i, row in enumerate(expected):
        for j, one in enumerate(row):
            if one is not None:
                assert one.stderr_data > 0
                assert found.stderr[i][j] == pytest.approx(one.stderr_data, rel=1e-3)


def test_diagonals_are_those_of_the_hessian_command(problem: Problem) -> None:
    found = measure_clients(problem, ClientsRequest(only=("diagonals",)))
    assert found.cross_client is not None
    assert found.cross_client.clients == 3
    assert found.products["diagonals"] > 0
    assert not found.flatness


def test_the_same_question_is_answered_from_the_registry(
    copied: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    (first,) = clients(targets(copied), LOSS)
    with monkeypatch.context() as patch:
        patch.setattr(Measuring, "entries", lambda _: pytest.fail("it was measured again"))
        (second,) = clients(targets(copied), LOSS)
    assert not first.reused
    assert second.reused
    assert second.flatness == first.flatness
    upload, info = load_checkpoint(copied.client(1, 2)), load_checkpoint(copied.client(0, 2)).info
    save_checkpoint(copied.client(0, 2), upload.state, info)  # another upload: another question
    (third,) = clients(targets(copied), LOSS)
    assert not third.reused
    assert third.clients[0].sha256 == first.clients[1].sha256


@pytest.mark.parametrize(
    "change",
    [{"anchor": "global"}, {"bn": "batch"}, {"top_k": 2}, {"tol": 0.1}, {"probes": 4}, {"start": True}],
)
def test_another_question_is_not_answered_from_the_registry(
    copied: RunFolder, change: dict[str, Any]
) -> None:
    clients(targets(copied), LOSS)
    assert not clients(targets(copied), replace(LOSS, **change))[0].reused


def test_a_round_that_began_elsewhere_is_another_question(copied: RunFolder) -> None:
    (first,) = clients(targets(copied), LOSS)
    for path in (copied.anchor(2), copied.after_round(1)):
        shutil.copy(copied.initial, path)
    (second,) = clients(targets(copied), LOSS)
    assert not second.reused
    starts = [one.of("loss").cell("own", "start").mean.value for one in (first, second)]  # type: ignore[union-attr]
    assert starts[0] < starts[1]


def test_a_round_began_with_the_result_of_the_round_before(copied: RunFolder) -> None:
    for round in (1, 2):
        copied.anchor(round).unlink(missing_ok=True)
    for which, before in (("", copied.after_round(1)), ("@1", copied.initial)):
        (found,) = clients(targets(copied, which), LOSS)
        assert found.start is not None
        assert found.start.sha256 == load_checkpoint(before).sha256


def test_a_method_that_weights_uploads_alike_has_equal_shares(tmp_path: Path) -> None:
    changed = {"method": "scaffold", "rounds": 1}
    run = trained(RunRegistry(tmp_path), "alike", changed)
    record = measure_clients(problems(targets(run))[0], ClientsRequest(only=("loss", "drift")))
    assert len({one.samples for one in record.clients}) > 1
    assert [one.share for one in record.clients] == pytest.approx([1 / 3] * 3)
    assert record.averaging is not None
    assert record.averaging.distance < 1e-5  # so did the server


def test_without_the_anchor_it_is_said_and_the_global_model_is_taken_only_when_asked_for(
    copied: RunFolder,
) -> None:
    copied.anchor(2).unlink()
    copied.after_round(1).unlink()
    request = ClientsRequest(only=("alignment",), top_k=1)
    with pytest.raises(UserError, match=r"began with is not in the registry.*--save-clients all"):
        clients(targets(copied), request)
    (found,) = clients(targets(copied), replace(request, only=("loss", "alignment")), possible=True)
    assert found.measured == ("loss",)
    assert found.alignment is None
    (found,) = clients(targets(copied), replace(request, anchor="global"))
    assert found.start is None
    assert found.alignment is not None
    assert found.alignment.anchor == "global"
    assert clients(targets(copied), LOSS)[0].of("loss").cell("own", "start") is None  # type: ignore[union-attr]


def test_what_has_no_clients_is_refused(copied: RunFolder) -> None:
    with pytest.raises(UserError, match="is a client's"):
        clients(targets(copied, "@client1"), LOSS)
    with pytest.raises(UserError, match="clients hold training rows"):
        clients(targets(copied, split="test"), LOSS)
    shutil.rmtree(copied.folder / "clients")
    for round in (1, 2):
        shutil.rmtree(copied.folder / f"round-{round:04d}" / "clients")
    notes: list[str] = []
    copied.anchor(2).unlink()
    copied.after_round(1).unlink()
    with pytest.raises(UserError, match="train with --save-clients last"):
        clients(targets(copied), ClientsRequest(), Reporter(note=notes.append), possible=True)
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
    run = trained(RunRegistry(tmp_path), "one", {**settings, "save_clients": "last"})
    with pytest.raises(UserError, match=said):
        clients(targets(run), LOSS)


def test_parts_are_named() -> None:
    assert chosen("trace,loss") == ("loss", "trace")
    assert chosen("all") == MEASURES
    with pytest.raises(UserError, match="'los'; did you mean 'loss'"):
        chosen("los")


def test_a_server_that_does_not_take_the_mean_is_measured_about_the_mean(tmp_path: Path) -> None:
    """The expansion is at the mean of the uploads, of which no first-order term is left."""
    run = trained(RunRegistry(tmp_path), "half", {"method": "fedavgm", "rounds": 1}, {"avgm.gamma": "0.5"})
    (problem,) = problems(targets(run))
    found = measure_clients(problem, ClientsRequest(only=("drift",))).averaging
    assert found is not None
    assert found.distance > 0.1
    assert abs(found.overall.mean.first.value) < 1e-6
    models = [client.model for client in Participants(problem, "client", "own", of_round=True)]
    mean = deepcopy(problem.model)
    shares = [one.share for one in measure_clients(problem, LOSS).clients]
    weights = sum(p * flat(model) for p, model in zip(shares, models, strict=True))
    torch.nn.utils.vector_to_parameters(weights, mean.parameters())  # type: ignore[arg-type]
    after = sum(p * _loss(model, problem) for p, model in zip(shares, models, strict=True))
    assert found.overall.mean.measured.value == pytest.approx(after - _loss(mean, problem), abs=1e-5)
