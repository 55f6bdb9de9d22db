"""Sharpness of checkpoints: the library's own numbers, each kept by itself, with the gap beside them."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, mse_loss

from fedscope.checkpoints.registry.run_registry import RunFolder
from fedscope.choices import ReadingName, SplitName
from fedscope.errors import UserError
from fedscope.landscape import Batches, Hessian, top_eigenpairs, trace
from fedscope.landscape.sharpness.average_case import average_sharpness, low_pass_loss
from fedscope.landscape.sharpness.fisher_rao import fisher_rao_norm
from fedscope.landscape.sharpness.relative_flatness import largest_relative_flatness, last_linear
from fedscope.landscape.sharpness.searches import AutoPGD, OneStep, Search, Vertices
from fedscope.landscape.sharpness.worst_case import worst_case_sharpness
from fedscope.records.sharpness_record import SharpnessRecord
from fedscope.streams import key
from fedscope.workflows.progress import Reporter
from fedscope.workflows.sharpness import measure_sharpness
from fedscope.workflows.sharpness.measure_sharpness import gap_entry, measure, sharpness
from fedscope.workflows.sharpness.quantities import _LargestEigenvalue
from fedscope.workflows.sharpness.sharpness_request import QUANTITIES, USUAL, SharpnessRequest, check_request
from fedscope.workflows.sources.problem import Problem, load
from fedscope.workflows.sources.samples import Source
from fedscope.workflows.sources.targets import Targets
from fedscope.workflows.study import Session

FEW = SharpnessRequest(only=("average_l2", "fisher_rao"), pairs=2, versions={"fedscope": "1"})


@pytest.fixture(scope="module")
def run(perceptron: RunFolder) -> RunFolder:
    return perceptron


def targets_of(run: RunFolder, folder: Path) -> Targets:
    return Targets(folder / "registry", (str(run.final),), samples=48, batch_size=16, threads=1)


def own_problem(loss: Any = cross_entropy) -> Problem:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3)).double()
    y: torch.Tensor = torch.arange(40) % 3
    targets = y if loss is cross_entropy else torch.randn(40, 3).double()
    batches = Batches(torch.randn(40, 4).double(), targets, 8)
    source = Source(data="mine:data", dtype=torch.float64)
    return Problem(net, loss, batches, source, Path("a.pt"), "0" * 64, None)


def test_every_quantity_is_the_librarys_own() -> None:
    problem = own_problem()
    request = SharpnessRequest(only=("all",), pairs=2, m=10, steps=3)
    record = measure(problem, request)
    assert [one.name for one in record.quantities] == list(QUANTITIES)
    values = {one.name: one.value for one in record.quantities}
    batches = problem.batches.dealt(16, 0)
    given = (problem.model, cross_entropy, batches)
    op = Hessian(*given)

    def seed(name: str) -> int:
        return key(0, f"sharpness {name}")

    expected = {
        "worst_l2": worst_case_sharpness(*given, rho=0.5, m=10, search=AutoPGD(3)).value,
        "adaptive_average_linf": average_sharpness(
            *given, rho=0.1, p=float("inf"), adaptive=True, pairs=2, seed=seed("adaptive_average_linf")
        ).value,
        "low_pass": low_pass_loss(*given, pairs=2, seed=seed("low_pass")).value,
        "fisher_rao_empirical": fisher_rao_norm(*given, labels="empirical").value,
        "relative_flatness_max": largest_relative_flatness(Hessian(*given, parameters=["2.weight"])).value,
        "lambda_max": float(top_eigenpairs(op).values[0]),
        "trace": trace(op, rtol=0.05, seed=seed("trace")).value,
    }
    pairs = top_eigenpairs(op, seed=seed("lambda_max"))
    largest = record.quantity("lambda_max")
    assert largest
    assert pairs.samples is not None
    assert largest.stderr_data == pytest.approx(float(pairs.stderr_data[0]), rel=1e-3)
    assert largest.population_interval == pytest.approx(pairs.interval(), rel=1e-3)
    residual = float(pairs.residuals[0])
    assert largest.interval == pytest.approx((largest.value - residual, largest.value + residual))
    assert last_linear(problem.model) == "2.weight"
    for name, value in expected.items():
        assert values[name] == pytest.approx(value, rel=1e-3), name
    worst = record.quantity("worst_l2")
    assert worst
    assert worst.gradients == 4
    assert worst.batch_sizes == (10, 10, 10, 10)
    assert worst.settings == {
        "bn": "eval", "rho": 0.5, "m": 10, "steps": 3, "reading": "paper", "normalize_logits": False,
    }  # fmt: skip
    flat = record.quantity("relative_flatness")
    assert flat
    assert flat.settings == {"bn": "eval", "layer": "2.weight"}
    assert record.quantity("nothing") is None


@pytest.mark.parametrize("reading", ["paper", "code"])
def test_worst_cases_are_of_the_logits_and_the_search_that_were_asked_for(reading: ReadingName) -> None:
    problem, only = own_problem(), ("worst_l2", "adaptive_worst_linf", "sam", "average_l2")
    request = SharpnessRequest(only=only, pairs=2, m=10, steps=5, rho=0.1, reading=reading)
    plain, normalized = (measure(problem, replace(request, normalize_logits=on)) for on in (False, True))
    given = (problem.model, cross_entropy, problem.batches.dealt(16, 0))
    searches: dict[str, Search] = {
        "worst_l2": AutoPGD(5, reading),
        "adaptive_worst_linf": AutoPGD(5, "code"),
        "sam": OneStep(),
    }
    if reading == "paper":
        searches["adaptive_worst_linf"] = Vertices(5)
    for name in only:
        one, other = plain.quantity(name), normalized.quantity(name)
        assert one
        assert other
        assert other.value != pytest.approx(one.value, rel=1e-2)
        if name in searches:
            quantity = QUANTITIES[name]
            ball: dict[str, Any] = {"rho": 0.1, "p": quantity.p, "adaptive": quantity.adaptive, "m": 10}
            expected = worst_case_sharpness(*given, **ball, search=searches[name], normalize_logits=True)
            assert other.value == pytest.approx(expected.value, rel=1e-6)
        box = name == "adaptive_worst_linf" and reading == "paper"
        assert one.settings.get("search") == ("vertices" if box else None)


def test_what_was_measured_is_not_measured_again(
    run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    targets = targets_of(run, tmp_path)
    (first,) = sharpness(targets, FEW)
    assert not first.reused
    with monkeypatch.context() as patch:
        patch.setattr(
            "fedscope.workflows.sharpness.quantities.average_sharpness", lambda *_, **__: pytest.fail("again")
        )
        (second,) = sharpness(targets, FEW)
        (more,) = sharpness(targets, replace(FEW, only=("average_l2", "sam")))
    assert second.reused
    assert [one.to_json() for one in second.quantities] == [one.to_json() for one in first.quantities]
    assert not more.reused
    assert [one.name for one in more.quantities] == ["average_l2", "sam"]
    (other,) = sharpness(targets, replace(FEW, pairs=3))
    average = [record.quantity("average_l2") for record in (first, other)]
    assert [len(one.draws) for one in average if one] == [2, 3]
    assert not sharpness(targets, FEW, again=True)[0].reused


def test_the_gap_is_between_the_two_splits(run: RunFolder, tmp_path: Path) -> None:
    targets = targets_of(run, tmp_path)
    (record,) = sharpness(targets, replace(FEW, only=("fisher_rao",), gap=True))
    gap = record.gap
    assert gap
    levels, variances = [], []
    splits: tuple[SplitName, ...] = ("train", "test")
    for split in splits:
        (problem,) = load([run.final], Source(samples=48, split=split, batch_size=16))
        x, y = (torch.cat(side) for side in zip(*problem.batches, strict=True))
        with torch.no_grad():
            outputs = problem.model(x)
        each = cross_entropy(outputs, y, reduction="none")
        dealt = problem.batches.dealt(16, problem.source.seed)
        assert dealt.sizes == (8,) * 6  # by which the errors are told
        parts = each[dealt.order].view(6, 8).mean(1)
        assert problem.batches.population
        variances.append(float(parts.var()) / 6 * (1 - 48 / problem.batches.population))
        levels.append((float(cross_entropy(outputs, y)), float((outputs.argmax(1) == y).double().mean())))
    (loss, accuracy), (test_loss, test_accuracy) = levels
    assert gap.loss == pytest.approx(test_loss - loss, abs=1e-5)
    assert gap.accuracy == pytest.approx(accuracy - test_accuracy, abs=1e-6)
    assert gap.against("gap") == gap.loss
    assert gap.against("accuracy") == gap.accuracy
    assert gap.stderr == pytest.approx(sum(variances) ** 0.5, rel=1e-4)
    assert 5 <= gap.dof <= 10
    (again,) = sharpness(targets, replace(FEW, only=("fisher_rao",), gap=True))
    assert again.reused
    assert again.gap == gap
    assert sharpness(replace(targets, split="test"), replace(FEW, gap=True))[0].gap is None
    assert measure_sharpness.tested([own_problem()], targets) == [None]


def test_another_test_split_is_another_gap(tmp_path: Path) -> None:
    problem, request = own_problem(), SharpnessRequest(only=("fisher_rao",), gap=True)
    x, y = (torch.cat(side) for side in zip(*problem.batches, strict=True))
    tests = [replace(problem, batches=Batches(x[part], y[part], 8)) for part in (slice(16), slice(16, 40))]
    gaps = [measure(problem, request, Session(keep=tmp_path), test=test).gap for test in tests]
    assert [gap.test_samples for gap in gaps if gap] == [16, 24]


def test_the_residual_is_in_the_interval_of_the_largest_eigenvalue() -> None:
    problem = own_problem()
    pairs = top_eigenpairs(Hessian(problem.model, cross_entropy, problem.batches))
    found = _LargestEigenvalue(replace(pairs, residuals=torch.tensor([0.25]).double()))
    assert found.interval() == (found.value - 0.25, found.value + 0.25)


def test_the_gap_between_whole_splits_has_no_error() -> None:
    """Even if each is one batch, which tells none."""
    problem = own_problem()
    x, y = (torch.cat(side) for side in zip(*problem.batches, strict=True))
    few = [
        replace(problem, batches=Batches(x[part], y[part], 8, population=8))
        for part in (slice(8), slice(8, 16))
    ]
    found = gap_entry(few[0], few[1], "eval")
    assert (found["stderr"], found["dof"]) == (0.0, None)
    drawn = [replace(one, batches=Batches(*one.batches[0], 8, population=80)) for one in few]
    assert math.isnan(gap_entry(drawn[0], drawn[1], "eval")["stderr"])


def test_what_a_network_does_not_have_is_left_out_unless_it_is_named() -> None:
    notes: list[str] = []
    problem = own_problem(loss=lambda outputs, y: (outputs - y).abs().mean())
    record = measure(problem, SharpnessRequest(pairs=2), Session(Reporter(note=notes.append)))
    assert [one.name for one in record.quantities] == [name for name in USUAL if name != "fisher_rao"]
    assert len(notes) == 1
    assert "no Fisher–Rao" in notes[0]
    with pytest.raises(UserError, match="no labels can be drawn"):
        measure(problem, SharpnessRequest(only=("fisher_rao",)))


def test_a_squared_loss_has_a_true_fisher_information() -> None:
    record = measure(own_problem(mse_loss), SharpnessRequest(only=("fisher_rao",)))
    assert isinstance(record, SharpnessRecord)
    assert record.quantities[0].value > 0


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (SharpnessRequest(only=("averag_l2",)), "did you mean"),
        (SharpnessRequest(only=("trace",), rho=1.0), "has a radius"),
        (SharpnessRequest(only=("trace",), layer="fc.weight"), "--layer is of relative flatness"),
    ],
)
def test_a_request_that_cannot_be_is_refused(request_: SharpnessRequest, message: str) -> None:
    with pytest.raises(UserError, match=message):
        check_request(request_)
