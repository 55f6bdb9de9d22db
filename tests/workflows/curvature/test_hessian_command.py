"""The curvature of checkpoints, as scripts and notebooks ask for it."""

from dataclasses import replace
from pathlib import Path

import pytest

from fedscope.checkpoints.registry.run_registry import RunFolder
from fedscope.errors import UserError
from fedscope.records.hessian_record import HessianRecord
from fedscope.workflows.curvature.hessian_command import curvature
from fedscope.workflows.requests import CrossClientRequest, Request
from fedscope.workflows.sources.targets import Targets


def test_records_of_several_checkpoints_and_what_is_kept_of_them(run: RunFolder, tmp_path: Path) -> None:
    files = tuple(str(run.folder / name) for name in ("initial.pt", "final.pt"))
    targets = Targets(tmp_path / "registry", files, samples=32, batch_size=16, threads=1)
    found = curvature(targets, Request(probes=2, tol=0.5))
    assert [one.record.checkpoint.round for one in found] == [0, 2]
    assert [one.record.problem.samples for one in found] == [32, 32]
    assert all(one.kept and one.kept.is_file() for one in found)
    again = curvature(targets, Request(probes=2, tol=0.5))
    assert [one.record.reused for one in again] == [True, True]
    assert [one.record.lambda_max for one in again] == [one.record.lambda_max for one in found]


def test_more_is_measured_beside_what_is_kept_by_the_same_version(run: RunFolder, tmp_path: Path) -> None:
    targets = Targets(tmp_path / "registry", (str(run.final),), samples=24, batch_size=8, threads=1)
    few = Request(top_k=2, probes=2, tol=0.5, versions={"fedscope": "1"})

    def asked(request: Request) -> HessianRecord:
        return curvature(targets, request)[0].record

    first, fewer = asked(few), asked(replace(few, top_k=1))
    more = asked(replace(few, probes=3))
    other, same = (
        asked(replace(few, tol=tol, versions={"fedscope": v})) for v, tol in (("2", 0.6), ("1", 0.7))
    )
    assert (first.converged, fewer.reused, more.reused) == (True, True, False)
    assert (other.reused, same.reused) == (False, True)
    assert more.eigenvalues == first.eigenvalues
    assert more.matvecs > first.matvecs > 0


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (Request(reading="code", density=True), "use --reading paper"),
        (Request(engine="pyhessian", top_k=2), "drop --density, --clients, --top-k"),
        (Request(cross_client=CrossClientRequest(overlap=2)), "add --clients"),
        (Request(engine="pyhessian", layers=True), "are for fedscope's own estimators"),
        (Request(engine="power", both_ends=True), "own estimators; drop --engine power"),
        (Request(reading="code", both_ends=True), "own estimators; drop --reading code"),
        (Request(engine="power", density=True), "drop --density and --clients"),
        (Request(engine="power", clients=True), "drop --density and --clients"),
        (Request(engine="power", reading="code"), "drop --engine power"),
    ],
)
def test_a_request_that_cannot_be_is_refused_before_anything_is_read(request_: Request, message: str) -> None:
    with pytest.raises(UserError, match=message):
        curvature(Targets(Path("nowhere"), ("nothing",)), request_)
