"""What a request costs beside its products."""

from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from torch import Tensor, nn

from fedscope.checkpoints.registry.run_registry import RunFolder
from fedscope.choices import ProductsName
from fedscope.errors import UserError
from fedscope.figures.text.hessian_table import hessian_table
from fedscope.landscape.loss import flat_loss
from fedscope.landscape.loss.batches import Batches
from fedscope.landscape.loss.batchnorm import frozen_copy
from fedscope.landscape.loss.flat_loss import SAMPLE
from fedscope.landscape.operators.monte_carlo_fisher import MonteCarloFisher
from fedscope.streams import key
from fedscope.workflows.curvature.measure_curvature import curvature_of, measure
from fedscope.workflows.curvature.resources import Resources
from fedscope.workflows.requests import Request, check_request
from fedscope.workflows.sources.problem import load
from fedscope.workflows.sources.samples import Source
from fedscope.workflows.study import Session

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def run(perceptron: RunFolder) -> RunFolder:
    return perceptron


def test_a_request_copies_the_network_once_and_a_kept_result_costs_one_pass(
    run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The result's name takes every sample's loss, and a product with a few of them."""
    copies, passed = [], []

    def counted(model: nn.Module, **options: object) -> nn.Module:
        copies.append(model)
        copied = frozen_copy(model, **options)  # type: ignore[arg-type]

        def seen(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            passed.append(len(inputs[0]))

        copied.register_forward_pre_hook(seen)
        return copied

    monkeypatch.setattr(flat_loss, "frozen_copy", counted)
    (problem,) = load([run.final], Source(samples=512, batch_size=128))
    request = Request(density=True, probes=2, tol=0.5)
    first = measure(problem, request, Session(keep=tmp_path / "kept"))
    assert len(copies) == 1
    passed.clear()
    again = measure(problem, request, Session(keep=tmp_path / "kept"))
    assert (again.reused, again.lambda_max) == (True, first.lambda_max)
    assert len(copies) == 2
    assert [count for count in passed if count > SAMPLE] == [24, 16] + [
        32
    ] * 17  # a trial of the loss, that of each batch, and a product


def test_labels_of_the_fisher_matrix_are_drawn_by_the_samples_seed(run: RunFolder) -> None:
    """They are the same in every call, and others by another seed."""
    for seed in (3, 4):
        (problem,) = load([run.final], Source(samples=32, batch_size=16, seed=seed))
        request = Request(operator="mcfisher")
        found = [
            curvature_of(problem, request, None, Resources())(problem.model, problem.batches)
            for _ in range(2)
        ]
        drawn, default = (
            MonteCarloFisher(problem.model, problem.loss_fn, problem.batches, seed=given)
            for given in (key(seed, "labels"), None)
        )
        v = torch.randn(drawn.shape[0], generator=torch.Generator().manual_seed(0))
        for op in found:
            torch.testing.assert_close(op @ v, drawn @ v)
        assert not torch.allclose(drawn @ v, default @ v, rtol=1e-2)


def test_finite_differences_are_said_and_answer_for_themselves_alone(run: RunFolder, tmp_path: Path) -> None:
    (problem,) = load([run.final], Source(samples=64, batch_size=16))
    exact, differences = (Request(probes=4, tol=1e-2, products=way) for way in get_args(ProductsName))
    first = measure(problem, exact, Session(keep=tmp_path / "kept"))
    assert first.trace
    assert (first.problem.products, first.step, first.trace.product_error) == (None, None, 0)
    assert "products" not in first.to_json()["problem"]
    found = measure(problem, differences, Session(keep=tmp_path / "kept"))
    assert (found.reused, found.problem.products) == (False, "finite-differences")
    assert found.step
    assert found.step > 0
    assert found.trace
    assert 0 < found.trace.product_error < 0.1 * abs(found.trace.value)
    assert abs(found.trace.value - first.trace.value) <= found.trace.product_error
    assert found.converged
    apart = abs(found.lambda_max.value - first.lambda_max.value)
    assert 0 < apart <= found.lambda_max.residual + first.lambda_max.residual
    for request, reused in ((exact, first), (differences, found)):
        again = measure(problem, request, Session(keep=tmp_path / "kept"))
        assert (again.reused, again.lambda_max) == (True, reused.lambda_max)
    assert "finite differences" in " ".join(hessian_table([found]).notes)
    assert "finite differences" not in " ".join(hessian_table([first]).notes)


@pytest.mark.parametrize("other", [{"operator": "ggn"}, {"engine": "pyhessian"}, {"reading": "code"}])
def test_finite_differences_are_of_the_own_hessian(other: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="own Hessian"):
        check_request(Request(products="finite-differences", **other), parallel=False)


def test_a_kept_result_answers_for_its_own_samples_alone(run: RunFolder, tmp_path: Path) -> None:
    """Equal weights do not say which rows a run used, nor does their number."""
    (problem,) = load([run.final], Source(samples=64))
    request = Request(probes=2, tol=0.1)
    first = measure(problem, request, Session(keep=tmp_path))
    inputs, targets = (torch.cat(part) for part in zip(*problem.batches, strict=True))
    others = Batches(inputs.flip(2), targets, population=problem.batches.population)
    second = measure(replace(problem, batches=others), request, Session(keep=tmp_path))
    assert not second.reused
    assert second.lambda_max.value != first.lambda_max.value
    assert measure(problem, request, Session(keep=tmp_path)).reused


def test_layers_are_of_the_parameters_that_are_asked_for(run: RunFolder) -> None:
    (problem,) = load([run.final], Source(samples=64))
    found = measure(problem, Request(layers=True, parameters=("*.weight",), probes=2))
    names = [name for name, _ in problem.model.named_parameters() if name.endswith(".weight")]
    for layer in found.layers or ():
        own = [name for name in names if fnmatchcase(name, layer.name)]
        alone = measure(problem, Request(parameters=tuple(own), probes=2))
        assert layer.value == pytest.approx(alone.lambda_max.value, rel=1e-3)
        assert layer.value <= found.lambda_max.value * (1 + 1e-3)
