"""What a request costs beside its products."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from fedscope.checkpoints.registry.registry import Run
from fedscope.landscape.loss import flat_loss
from fedscope.landscape.loss.batchnorm import frozen_copy
from fedscope.landscape.loss.flat_loss import SAMPLE
from fedscope.landscape.operators.monte_carlo_fisher import MonteCarloFisher
from fedscope.streams import key
from fedscope.workflows.curvature.measure import _curvature, measure
from fedscope.workflows.progress import SILENT
from fedscope.workflows.requests import Request
from fedscope.workflows.sources.problem import load
from fedscope.workflows.sources.samples import Source


def test_a_request_copies_the_network_once_and_a_kept_result_costs_one_pass(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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
    first = measure(problem, request, SILENT.stage, keep=tmp_path / "kept")
    assert len(copies) == 1
    passed.clear()
    again = measure(problem, request, SILENT.stage, keep=tmp_path / "kept")
    assert (again.reused, again.lambda_max) == (True, first.lambda_max)
    assert len(copies) == 2
    assert [count for count in passed if count > SAMPLE] == [24, 16] + [
        32
    ] * 17  # a trial of the loss, that of each batch, and a product


def test_labels_of_the_fisher_matrix_are_drawn_by_the_samples_seed(run: Run) -> None:
    """They are the same in every call, and others by another seed."""
    for seed in (3, 4):
        (problem,) = load([run.final], Source(samples=32, batch_size=16, seed=seed))
        request = Request(operator="mcfisher")
        found = [_curvature(problem, request, None)(problem.model, problem.batches) for _ in range(2)]
        drawn, default = (
            MonteCarloFisher(problem.model, problem.loss_fn, problem.batches, seed=given)
            for given in (key(seed, "labels"), None)
        )
        v = torch.randn(drawn.shape[0], generator=torch.Generator().manual_seed(0))
        for op in found:
            torch.testing.assert_close(op @ v, drawn @ v)
        assert not torch.allclose(drawn @ v, default @ v, rtol=1e-2)
