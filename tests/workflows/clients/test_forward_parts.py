"""Noise, critical steps and barriers of a small round, each against gradients and losses of its own."""

import math
from collections.abc import Callable
from copy import deepcopy

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedscope.checkpoints.registry.run_registry import RunFolder
from fedscope.figures.clients.round_figures import draw
from fedscope.figures.text.client_tables import clients_tables
from fedscope.records.clients_record import ClientsRecord
from fedscope.workflows.clients.clients_request import ClientsRequest
from fedscope.workflows.clients.measure_clients import measure_clients
from fedscope.workflows.sources.problem import Problem
from fedscope.workflows.sources.problems import problems
from fedscope.workflows.sources.run_clients import RunClient

from .small import flat, targets


@pytest.fixture(scope="module")
def record(problem: Problem) -> ClientsRecord:
    return measure_clients(problem, ClientsRequest(only=("noise", "critical", "barriers")))


def _at(model: nn.Module, weights: Tensor) -> nn.Module:
    moved = deepcopy(model)
    torch.nn.utils.vector_to_parameters(weights, moved.parameters())
    return moved


def _loss(model: nn.Module, on: RunClient | Problem) -> float:
    inputs, targets = (torch.cat(side) for side in zip(*on.batches, strict=True))
    with torch.no_grad():
        return float(cross_entropy(model(inputs).double(), targets))


def _gradient(model: nn.Module, on: RunClient) -> Tensor:
    inputs, targets = (torch.cat(side) for side in zip(*on.batches, strict=True))
    loss = cross_entropy(model(inputs), targets)
    return torch.cat([g.flatten() for g in torch.autograd.grad(loss, [*model.parameters()])]).double()


def test_gradients_part_between_clients_as_plain_ones_do(
    record: ClientsRecord, problem: Problem, uploads: list[RunClient]
) -> None:
    found = record.noise
    assert found is not None
    p = torch.tensor([one.share for one in record.clients], dtype=torch.float64)
    own = torch.stack([_gradient(problem.model, client) for client in uploads])
    mean = p @ own
    apart = (own - mean).square().sum(1)
    # all rows of every client were taken: these are exact
    assert [one.value for one in found.apart] == pytest.approx(apart.tolist(), rel=1e-4)
    assert found.between.value == pytest.approx(float(p @ apart), rel=1e-4)
    assert found.between.stderr == 0
    assert found.dissimilarity.value == pytest.approx(
        float(p @ own.square().sum(1) / mean.square().sum()), rel=1e-4
    )
    # traces depend on how samples are dealt, and have an error for it
    assert found.whole.trace.value == pytest.approx(found.within.value + found.between.value, rel=1e-6)
    assert found.whole.scale.value == pytest.approx(
        found.whole.trace.value / float(mean.square().sum()), rel=1e-4
    )
    assert all(one.trace.stderr > 0 for one in found.clients)


def test_the_loss_crosses_its_start_at_the_critical_step(
    record: ClientsRecord, problem: Problem, uploads: list[RunClient], round_run: RunFolder
) -> None:
    found = record.critical
    assert found is not None
    start = problems(targets(round_run, "@1"))[0].model
    w, before = flat(start), _loss(start, problem)
    assert found.loss == pytest.approx(before, rel=1e-5)
    updates = [flat(client.model) - w for client in uploads]
    mean = sum(one.share * update for one, update in zip(record.clients, updates, strict=True))
    assert isinstance(mean, Tensor)
    for update, one in zip([mean, *updates], [found.server, *found.clients], strict=True):
        assert one.length == pytest.approx(float(update.norm()), rel=1e-5)
        assert not one.rises_at_once
        assert not one.never_rises
        assert one.sharpness == 2 / one.step
        excess: Callable[[float], float] = lambda step: _loss(_at(start, w + step * update), problem) - before  # noqa: B023, E731
        assert excess(0.97 * one.step) < 0 < excess(1.03 * one.step)


def test_barriers_are_the_largest_excess_on_each_line(
    record: ClientsRecord, problem: Problem, uploads: list[RunClient]
) -> None:
    assert record.barriers is not None
    found = record.barriers
    weights, own = [flat(c.model) for c in uploads], [_loss(c.model, problem) for c in uploads]
    for i, j in ((0, 1), (0, 2), (1, 2)):
        line = [
            _loss(_at(problem.model, torch.lerp(weights[i], weights[j], t)), problem)
            - (1 - t) * own[i] - t * own[j]
            for t in torch.linspace(0, 1, 21).tolist()
        ]  # fmt: skip
        assert found.matrix[i][j] == pytest.approx(max(*line, 0.0), abs=1e-4)
        assert found.matrix[i][j] == found.matrix[j][i]
        cosine = float(torch.cosine_similarity(weights[i], weights[j], dim=0))
        assert found.similarities[i][j] == pytest.approx(cosine, abs=1e-5)
    assert all(math.isnan(found.matrix[i][i]) for i in range(3))
    shares = [one.share for one in record.clients]
    middle = _at(problem.model, sum(p * w for p, w in zip(shares, weights, strict=True)))  # type: ignore[arg-type]
    excess = _loss(middle, problem) - sum(p * one for p, one in zip(shares, own, strict=True))
    assert found.average.value == pytest.approx(excess, abs=1e-5)


def test_the_parts_are_in_tables_pictures_and_costs(record: ClientsRecord) -> None:
    titles = [table.title for table in clients_tables(record)]
    assert titles == ["tiny@2: 3 clients – Gradient noise", "Critical steps", "Barriers", "Client by client"]
    assert set(record.passes) == {"noise", "critical", "barriers"}
    assert record.products == {"cells": 0} or not any(record.products.values())
    figure = draw([record], "matrix")
    assert [axes.get_xlabel() for axes in figure.axes].count("client") == 1
