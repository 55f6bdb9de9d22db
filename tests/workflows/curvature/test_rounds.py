"""λ_max along the rounds of a run: fewer products, and no value taken for certified that is not."""

from dataclasses import replace
from pathlib import Path

import pytest

from fedscope.checkpoints.file.settings import Settings
from fedscope.checkpoints.registry.run_folder import RunFolder
from fedscope.checkpoints.registry.run_registry import RunRegistry
from fedscope.errors import UserError
from fedscope.federated.server.run_rounds import train
from fedscope.federated.setup.federation import open_run, prepare
from fedscope.workflows.curvature.hessian_command import curvature
from fedscope.workflows.requests import Request
from fedscope.workflows.sources.chosen_rounds import along
from fedscope.workflows.sources.targets import Targets

pytestmark = pytest.mark.slow

PROBES = 2  # of the trace of each record
REQUEST = Request(probes=PROBES)


@pytest.fixture(scope="module")
def rounds(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A run of 14 rounds, each of which was kept."""
    registry = RunRegistry(tmp_path_factory.mktemp("registry"))
    federation = prepare(
        Settings(clients=3, rounds=14, epochs=1, lr=0.02, keep_every=1, model="mlp_digits"), {}
    )
    run = open_run(federation, registry, "rounds", resume=False)
    train(federation, run, lambda _: None)
    return run


def _targets(run: RunFolder) -> Targets:
    return Targets(run.root, (run.name,), samples=64, batch_size=32, threads=1)


def test_rounds_take_half_of_the_products_of_separate_measurements(rounds: RunFolder) -> None:
    targets = along(_targets(rounds), "7:14:1")
    assert targets.checkpoints == tuple(f"rounds@{round}" for round in range(7, 15))
    warm = [one.record for one in curvature(targets, replace(REQUEST, warm=True))]
    cold = [one.record for one in curvature(targets, REQUEST)]
    assert [one.lambda_max.certified for one in warm] == [True] + [False] * 7
    assert all(one.converged for one in warm)
    assert all(one.lambda_max.certified and one.converged for one in cold)  # not what warm starts left
    assert cold[0].reused
    products = [sum(one.matvecs - PROBES for one in records) for records in (warm, cold)]
    assert products[0] <= products[1] / 2
    for one, other in zip(warm, cold, strict=True):
        assert one.lambda_max.value == pytest.approx(other.lambda_max.value, rel=REQUEST.tol)
    again = [one.record for one in curvature(targets, replace(REQUEST, warm=True))]
    assert all(one.reused for one in again)


def test_all_rounds_are_those_that_were_kept(rounds: RunFolder, run: RunFolder) -> None:
    targets = _targets(rounds)
    assert along(targets, "all").checkpoints == along(targets, "1:14").checkpoints
    with pytest.raises(UserError, match=r"kept a checkpoint of 1 rounds, --rounds all takes 2 to 500"):
        along(replace(targets, registry=run.root, checkpoints=(run.name,)), "all")
    with pytest.raises(UserError, match="takes FIRST:LAST:STEP"):
        along(targets, "some")


def test_each_run_begins_at_random(rounds: RunFolder, tmp_path: Path) -> None:
    names = ("rounds@13", "rounds@14", str(rounds.initial))
    other = tmp_path / "initial.pt"
    other.write_bytes(rounds.initial.read_bytes())  # of no run
    targets = replace(_targets(rounds), registry=rounds.root, checkpoints=(*names[:2], str(other)))
    found = curvature(targets, replace(REQUEST, warm=True), again=True)
    assert [one.record.lambda_max.certified for one in found] == [True, False, True]
