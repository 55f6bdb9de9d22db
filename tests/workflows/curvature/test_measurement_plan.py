"""What a plan says, against what the measurement takes; and what is chosen to stay within a memory."""

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from fedscope.errors import UserError
from fedscope.records.plan_record import PlanRecord
from fedscope.workflows.curvature.hessian_command import curvature, plans
from fedscope.workflows.curvature.measurement_plan import described
from fedscope.workflows.curvature.resources import Resources, Vectors, fitting
from fedscope.workflows.requests import Request
from fedscope.workflows.sources.targets import Targets

pytestmark = pytest.mark.slow

GIB = 1 << 30
FOLDER = Path(tempfile.gettempdir())
BIG = Vectors(20_000_000, 4, 16)

FACTORIES = """
import torch
def network():
    return torch.nn.Sequential(torch.nn.Linear(12, 20), torch.nn.Tanh(), torch.nn.Linear(20, 4))
def data():
    x = torch.randn(400, 12, generator=torch.Generator().manual_seed(0))
    return [(x, x[:, :4].argmax(1))]
"""


@pytest.fixture
def targets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Targets:
    monkeypatch.setenv("FEDSCOPE_CACHE", str(tmp_path / "cache"))
    (tmp_path / "planned_net.py").write_text(FACTORIES)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(12, 20), nn.Tanh(), nn.Linear(20, 4))
    torch.save(model.state_dict(), tmp_path / "w.pt")
    return Targets(
        tmp_path / "registry",
        (str(tmp_path / "w.pt"),),
        model="planned_net:network",
        data="planned_net:data",
        threads=1,
    )


def test_a_plan_is_near_what_the_measurement_takes(targets: Targets) -> None:
    for request in (Request(), Request(top_k=2, both_ends=True, density=True)):
        (plan,) = plans(targets, request)
        (found,) = curvature(targets, request, again=True)
        record = found.record
        assert record.matvecs >= plan.products > 0
        assert plan.parameters == 12 * 20 + 20 + 20 * 4 + 4
        assert plan.samples == 400
        assert plan.memory > plan.basis.bytes
        assert plan.seconds == plan.products * plan.product_seconds
        assert PlanRecord.read(plan.to_json()) == plan
        lines = described(plan)
        assert lines[0].endswith(f"400 samples, {plan.parameters} parameters")
        assert "peak memory up to about" in lines[1]
        assert f"typically {plan.products:,} in" in lines[1]
        assert "basis of 64 rows in memory" in lines[2]


def test_the_typical_products_are_those_of_every_part(targets: Targets) -> None:
    (alone,), (blocks,), (fixed,) = (
        plans(targets, request)
        for request in (Request(), Request(layers=True, blocks=True), Request(probes=3, top_k=2))
    )
    assert (alone.products, fixed.products) == (15 + 10, 15 + 5 + 3)
    assert blocks.products == 15 + 10 + 15 * (2 + 2)  # two layers, each a block too


def test_what_is_kept_takes_no_products(targets: Targets) -> None:
    curvature(targets, Request())
    (plan,) = plans(targets, Request())
    assert (plan.reused, plan.products, plan.seconds) == (["eigenvalues", "trace"], 0, 0)
    assert described(plan)[-1].endswith("eigenvalues and trace are taken from a kept result")
    (more,) = plans(targets, Request(density=True))
    assert (more.reused, more.products) == (["eigenvalues", "trace"], 4 * 40)
    (finer,) = plans(targets, Request(tol=1e-9))
    assert finer.reused == ["trace"]


def test_a_measurement_within_a_memory_is_the_same_and_says_what_is_chosen(
    targets: Targets, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fedscope.workflows.progress import Reporter

    said: list[str] = []
    (within,) = curvature(targets, Request(), Reporter(note=said.append), memory=4 * GIB)
    (free,) = curvature(targets, Request(), again=True)
    assert within.record.lambda_max.value == pytest.approx(free.record.lambda_max.value, rel=1e-6)
    assert [line for line in said if "basis of" in line and "in memory" in line]
    apart: list[int] = []
    monkeypatch.setattr("fedscope.process.reuse_freed_memory", lambda most=0: apart.append(most))
    (plan,) = plans(targets, Request(), memory=4 * GIB)
    assert apart[-1] == 32 << 20  # larger blocks are freed at once
    assert (plan.limit, plan.basis.place) == (4 * GIB, "memory")


@pytest.mark.parametrize(("least", "calls"), [(1, [1]), (1 << 30, [])])
def test_large_vectors_are_freed_at_once_within_no_memory_too(
    targets: Targets, least: int, calls: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    apart: list[int] = []
    monkeypatch.setattr("fedscope.process.reuse_freed_memory", lambda most=0: apart.append(most))
    monkeypatch.setattr("fedscope.workflows.curvature.resources._APART", least)
    plans(targets, Request())
    assert [most for most in apart if most] == calls


@pytest.mark.parametrize(("samples", "batches"), [(3, 3), (96, 16)])
def test_few_samples_are_as_few_batches(
    targets: Targets, samples: int, batches: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[int] = []

    def fitted(memory: int, base: int, vectors: Vectors, **choices: Any) -> Resources:
        counted.append(vectors.batches)
        return fitting(memory, base, vectors, **choices)

    monkeypatch.setattr("fedscope.workflows.curvature.resources.fitting", fitted)
    plans(replace(targets, samples=samples), Request(), memory=16 * GIB)
    assert counted == [batches]


def test_what_has_no_plan_is_refused(targets: Targets) -> None:
    for request in (Request(engine="pyhessian"), Request(reading="code"), Request(clients=True)):
        with pytest.raises(UserError, match="--dry-run and --memory are for fedscope's own"):
            plans(targets, request, memory=GIB)
        with pytest.raises(UserError, match="--dry-run and --memory are for fedscope's own"):
            curvature(targets, request, memory=GIB)


def _chosen(
    memory: float,
    *,
    free: float = 1e15,
    monkeypatch: pytest.MonkeyPatch,
) -> Resources:
    usage = type("Usage", (), {"free": free})
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage)
    return fitting(int(memory * GIB), GIB // 2, BIG, pairs=1)


def test_the_storage_goes_down_a_ladder(monkeypatch: pytest.MonkeyPatch) -> None:
    """64 rows of 20 million numbers take 5 GiB."""
    roomy = _chosen(32, monkeypatch=monkeypatch)
    assert (roomy.basis_folder, roomy.rows, roomy.block) == (None, 64, 8)
    filed = _chosen(6, monkeypatch=monkeypatch)
    assert (filed.basis_folder, filed.rows) == (FOLDER, 64)
    restarted = _chosen(5, free=0, monkeypatch=monkeypatch)
    assert restarted.basis_folder is None
    assert restarted.rows is not None
    assert 22 <= restarted.rows < 64
    room = 2 * (41 + BIG.batches) * 4 * BIG.n  # for two bases, and the batches' products
    short = _chosen(5, free=room, monkeypatch=monkeypatch)
    assert short == restarted
    assert (roomy.trace_rows, filed.trace_rows, restarted.trace_rows) == (64, 0, 0)
    for found in (roomy, filed, restarted):
        assert found.graphs is not None
        assert found.rows is not None
        taken = (
            GIB // 2
            + 8 * BIG.n
            + found.graphs
            + BIG.basis(found.rows, in_file=found.basis_folder is not None)
        )
        assert taken + max(BIG.step(), BIG.probes(found.block or 1)) <= 32 * GIB


def test_processes_choose_the_same(targets: Targets, tmp_path: Path) -> None:
    own = ["--model", "planned_net:network", "--data", "planned_net:data"]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"]
    command = [*torchrun, "-m", "fedscope", "hessian", "w.pt", *own, "--threads", "1"]
    command += ["--memory", "4G", "--json", "shared.json"]
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "in memory" in done.stderr
    shared = json.loads((tmp_path / "shared.json").read_text())
    (alone,) = curvature(targets, Request(), again=True, memory=4 * GIB)
    assert shared["lambda_max"]["value"] == pytest.approx(alone.record.lambda_max.value, rel=1e-5)
    assert alone.record.trace
    assert shared["trace"]["value"] == pytest.approx(alone.record.trace.value, rel=1e-4)


def test_too_little_says_how_much_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    said = "--memory 1G is too little for 20,000,000 parameters beside the 512M of .*: give "
    with pytest.raises(UserError, match=said) as told:
        _chosen(1, free=0, monkeypatch=monkeypatch)
    needed = float(str(told.value).split("give ")[1].split("G")[0])
    assert _chosen(needed + 0.06, free=0, monkeypatch=monkeypatch).rows in (22, 23, 24)


def test_what_is_taken_before_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    usage = type("Usage", (), {"free": 0})
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage)
    said = "beside the 20G of program, network and samples: .*fewer --samples, or a block of --parameters"
    with pytest.raises(UserError, match=said):
        fitting(20 * GIB, 20 * GIB, BIG, pairs=1)


def test_rows_of_a_basis_are_counted() -> None:
    vectors = Vectors(1000, 4, 0)
    assert vectors.basis(40) == vectors.basis(40, in_file=True) == 4000 * 49
    assert Vectors(10**9, 4, 0).basis(40, in_file=True) == 64 << 20
