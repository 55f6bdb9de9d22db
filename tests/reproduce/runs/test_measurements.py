"""What a measure is of, and what it is called."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedscope.checkpoints.file.checkpoint import versions
from fedscope.checkpoints.file.layout import ANALYSIS
from fedscope.checkpoints.file.settings import Settings
from fedscope.checkpoints.registry.run_registry import RunFolder
from fedscope.choices import ProductsName
from fedscope.records.hessian_record import HessianRecord
from fedscope.records.outcomes import OutcomesRecord
from fedscope.reproduce.recipes.measures import Measure
from fedscope.reproduce.runs.measurements import cached_result, compute, content, uploads
from fedscope.workflows.curvature import measure_curvature
from fedscope.workflows.curvature.measure_curvature import _measured, measure
from fedscope.workflows.requests import Request
from fedscope.workflows.sources.problem import load
from fedscope.workflows.sources.samples import Source
from fedscope.workflows.study import Session
from tests.federated.runs import trained


@pytest.fixture(scope="module")
def run(perceptron: RunFolder) -> RunFolder:
    return perceptron


def test_uploads_are_of_measures_that_compare_clients(run: RunFolder) -> None:
    assert uploads(run.final, Measure("hessian")) == {}
    found = uploads(run.final, Measure("hessian", clients=True))
    assert found == {path.name: content(path) for path in run.clients()}
    assert found


def test_what_a_round_did_is_measured_of_those_that_took_part(tmp_path: Path) -> None:
    settings = Settings(clients=5, participation=0.4, rounds=3, epochs=1, save_clients="last")
    run = trained(tmp_path, settings)
    part = {run.client(number).name for number in run.metrics()[-1].clients or ()}
    assert len(part) == 2 < len(run.clients())
    one_round = Measure("clients", samples=8, only=("loss",))
    assert set(uploads(run.final, one_round)) == part
    assert len(uploads(run.final, Measure("hessian", clients=True))) == len(run.clients())
    compute(run.final, one_round, tmp_path, None, "cpu", lambda _: None)
    assert cached_result(tmp_path, run.final, one_round)


def test_a_measure_is_told_in_a_few_words() -> None:
    assert Measure("hessian").summary() == "hessian on all training samples"
    assert Measure("hessian", samples=1024).summary() == "hessian on 1,024 training samples"
    assert "up to 512" in Measure("hessian", samples=512, clients=True).summary()
    assert "41 × 41" in Measure("landscape").summary()
    assert Measure("outcomes", split="test").summary() == "outcomes on all test samples"
    assert Measure("hessian").top_k == 1
    theirs = Measure("hessian", split="test", engine="power", normalisation="fedgloss_measured")
    said = "hessian on all test samples, by power iteration of 20 steps, normalised as fedgloss_measured"
    assert theirs.summary() == said


PLAIN = Measure("hessian", samples=24, batch_size=8, tol=0.1, probes=2)
OTHERS = {
    "test": replace(PLAIN, split="test"),
    "draw": replace(PLAIN, draw=1),
    "augmented": replace(PLAIN, augment=True),
    "pyhessian": replace(PLAIN, engine="pyhessian", probes=None),
    "power": replace(PLAIN, engine="power"),
    "normalised": replace(PLAIN, normalisation="none"),
}


@pytest.fixture(scope="module")
def measured(run: RunFolder, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the run, measured in every other way than :data:`PLAIN`."""
    registry = tmp_path_factory.mktemp("measured")
    folder = registry / run.name
    shutil.copytree(run.folder, folder)
    for wanted in OTHERS.values():
        compute(folder / "final.pt", wanted, registry, None, "cpu", lambda _: None)
    return folder / "final.pt"


@pytest.mark.parametrize("name", OTHERS)
def test_a_measure_is_of_its_split_draw_and_engine(measured: Path, name: str) -> None:
    wanted = OTHERS[name]
    record = cached_result(measured.parent.parent, measured, wanted)
    assert isinstance(record, HessianRecord)
    about = record.problem.to_json()
    assert (about["split"], about["seed"], about["engine"]) == (wanted.split, wanted.draw, wanted.engine)
    assert about.get("augmented", False) is wanted.augment
    assert about.get("normalisation") == wanted.normalisation


def _measures(path: Path, wanted: Measure, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Compute a measure; return whether anything of it had to be measured."""
    made = list[object]()

    def noted(*given: Any) -> Any:
        made.append(given)
        return _measured(*given)

    with monkeypatch.context() as patch:
        patch.setattr(measure_curvature, "_measured", noted)
        compute(path, wanted, path.parent.parent, None, "cpu", lambda _: None)
    return bool(made)


def test_no_other_measure_answers_for_a_plain_one(measured: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    registry, plain = measured.parent.parent, replace(PLAIN, probes=3)
    assert cached_result(registry, measured, plain) is None
    assert _measures(measured, plain, monkeypatch)
    for fewer in (replace(plain, model="server"), replace(plain, model="server", probes=2)):
        assert cached_result(registry, measured, fewer) is None
        assert not _measures(measured, fewer, monkeypatch)  # known by its content, under another name
        found = cached_result(registry, measured, fewer)
        assert isinstance(found, HessianRecord)
        assert found.trace
        assert found.trace.probes == 3
    assert _measures(measured, replace(plain, model="server", probes=4), monkeypatch)


def test_rows_held_out_are_no_samples_that_a_command_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of all samples: those of the training split that the clients hold."""
    settings = Settings(
        model="mlp_digits", clients=2, rounds=1, epochs=1, train_samples=64, test_samples=16, batch_size=16,
        validation=0.25, partition="iid", alpha=None,
    )  # fmt: skip
    run = trained(tmp_path, settings)
    (problem,) = load([run.final], Source(batch_size=8))
    assert problem.batches.samples == 48
    measure(problem, Request(tol=0.1, probes=2, versions=versions()), Session(keep=tmp_path / ANALYSIS))
    every = replace(PLAIN, samples=None)
    assert not _measures(run.final, every, monkeypatch)
    found = cached_result(tmp_path, run.final, every)
    assert isinstance(found, HessianRecord)
    assert found.problem.samples == 48


@pytest.mark.parametrize(("products", "anew"), [("finite-differences", True), ("exact", False)])
def test_products_by_finite_differences_answer_for_no_exact_measure(
    run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, products: ProductsName, anew: bool
) -> None:
    folder = tmp_path / run.name
    shutil.copytree(run.folder, folder)
    (problem,) = load([folder / "final.pt"], Source(samples=24, batch_size=8))
    request = Request(tol=0.5, probes=2, products=products, versions=versions())
    measure(problem, request, Session(keep=tmp_path / ANALYSIS))
    assert _measures(folder / "final.pt", replace(PLAIN, tol=0.5), monkeypatch) == anew


def test_the_answers_on_the_test_samples_are_the_network_s(run: RunFolder, tmp_path: Path) -> None:
    folder = tmp_path / run.name
    shutil.copytree(run.folder, folder)
    wanted = Measure("outcomes", split="test")
    assert cached_result(tmp_path, folder / "final.pt", wanted) is None
    compute(folder / "final.pt", wanted, tmp_path, None, "cpu", lambda _: None)
    found = cached_result(tmp_path, folder / "final.pt", wanted)
    assert isinstance(found, OutcomesRecord)
    last = run.metrics()[-1]
    assert found.accuracy == pytest.approx(last.accuracy, abs=1e-12)
    assert found.problem.split == "test"
