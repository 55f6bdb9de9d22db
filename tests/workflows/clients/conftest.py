"""One small run for the tests of what is measured between its clients."""

import pytest

from fedscope.checkpoints.registry.run_registry import RunFolder, RunRegistry
from fedscope.workflows.sources.problem import Problem
from fedscope.workflows.sources.problems import problems
from fedscope.workflows.sources.run_clients import Participants, RunClient

from .small import targets, trained


@pytest.fixture(scope="package")
def round_run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return trained(RunRegistry(tmp_path_factory.mktemp("registry")), "tiny")


@pytest.fixture(scope="package")
def problem(round_run: RunFolder) -> Problem:
    return problems(targets(round_run))[0]


@pytest.fixture(scope="package")
def uploads(problem: Problem) -> list[RunClient]:
    return list(Participants(problem, "client", "own", of_round=True))
