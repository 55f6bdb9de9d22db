"""The edge of stability, beside the optimiser's own steps on a quadratic and the eigenvalues of its map."""

import math

import numpy as np
import pytest
import torch

from fedscope.records.stability import largest_stable, stable_under

STEPS = [
    {},
    {"weight_decay": 0.3},
    {"momentum": 0.9},
    {"momentum": 0.9, "nesterov": True},
    {"momentum": 0.5, "nesterov": True, "weight_decay": 0.1},
]


@pytest.mark.parametrize("step", STEPS)
def test_sgd_diverges_just_above_and_not_just_below(step: dict[str, float]) -> None:
    edge = largest_stable(0.1, **step)  # type: ignore[arg-type]
    for factor, grows in ((0.99, False), (1.01, True)):
        w = torch.ones(1, dtype=torch.float64, requires_grad=True)
        optimizer = torch.optim.SGD([w], lr=0.1, **step)  # type: ignore[arg-type]
        for _ in range(3000):
            w.grad = factor * edge * w.detach()
            optimizer.step()
        assert bool(w.abs() > 1) == grows


@pytest.mark.parametrize("nesterov", [False, True])
def test_the_map_of_a_step_has_an_eigenvalue_of_size_1_at_the_edge(nesterov: bool) -> None:
    lr, beta = 0.2, 0.7
    edge = largest_stable(lr, momentum=beta, nesterov=nesterov)
    pull = edge * (1 + beta) if nesterov else edge  # w' = w − η(λw·(1 or 1 + β) + (β or β²)·v), v' = βv + λw
    keep = beta**2 if nesterov else beta
    step = np.array([[1 - lr * pull, -lr * keep], [edge, beta]])
    assert max(abs(np.linalg.eigvals(step))) == pytest.approx(1, abs=1e-12)


def test_no_step_is_unstable_at_a_rate_of_zero() -> None:
    assert largest_stable(0.0) == math.inf


def test_the_rate_is_that_of_the_round_or_else_the_runs() -> None:
    settings = {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 1.0}
    assert stable_under(settings, 0.05) == pytest.approx(2 * 1.9 / 2.8 / 0.05 - 1)
    for unknown in (None, math.nan):
        assert stable_under(settings, unknown) == pytest.approx(2 * 1.9 / 2.8 / 0.1 - 1)


def test_steps_of_adam_have_no_edge_in_the_plain_curvature() -> None:
    assert stable_under({"lr": 0.1, "optimizer": "sgd"}, None) == pytest.approx(20)
    assert stable_under({"lr": 0.1, "optimizer": "adam"}, None) is None


def test_a_run_from_elsewhere_has_no_edge() -> None:
    assert stable_under({"lr": None, "momentum": None}, None) is None
    assert stable_under({"lr": 0.5, "momentum": None}, None) == 4
