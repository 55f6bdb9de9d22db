"""One small run for the tests of what is measured between its clients."""

import pytest

from fedscope.checkpoints.registry.registry import Registry, Run
from fedscope.federated.server.rounds import train
from fedscope.federated.setup.federation import open_run, prepare
from fedscope.workflows.sources.problem import Problem
from fedscope.workflows.sources.problems import problems
from fedscope.workflows.sources.run_clients import Client, Participants

from .small import SETTINGS, targets


@pytest.fixture(scope="package")
def round_run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    federation = prepare(SETTINGS, {})
    found = open_run(federation, Registry(tmp_path_factory.mktemp("registry")), "tiny", resume=False)
    train(federation, found, lambda _: None)
    return found


@pytest.fixture(scope="package")
def problem(round_run: Run) -> Problem:
    return problems(targets(round_run))[0]


@pytest.fixture(scope="package")
def uploads(problem: Problem) -> list[Client]:
    return list(Participants(problem, "client", "own", of_round=True))
