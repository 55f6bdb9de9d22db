"""One small run for the tests of what is measured between its clients."""

import pytest

from fedscope.checkpoints.registry.registry import Registry, Run
from fedscope.workflows.sources.problem import Problem
from fedscope.workflows.sources.problems import problems
from fedscope.workflows.sources.run_clients import Client, Participants

from .small import targets, trained


@pytest.fixture(scope="package")
def round_run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return trained(Registry(tmp_path_factory.mktemp("registry")), "tiny")


@pytest.fixture(scope="package")
def problem(round_run: Run) -> Problem:
    return problems(targets(round_run))[0]


@pytest.fixture(scope="package")
def uploads(problem: Problem) -> list[Client]:
    return list(Participants(problem, "client", "own", of_round=True))
