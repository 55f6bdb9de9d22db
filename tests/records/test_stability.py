"""The edge of stability, beside the optimiser's own steps on a quadratic and the eigenvalues of its map."""

import math

import numpy as np
import pytest
import torch

from fedscope.errors import UserError
from fedscope.records.run_curves import SCHEMA, RunCurves
from fedscope.records.stability import largest_stable, stable_at

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


def record(**settings: object) -> RunCurves:
    metrics = {
        "round": [1, 2], "accuracy": [0.1, 0.2], "loss": [2.0, 1.0], "train_loss": [2.0, 1.0],
        "bytes": [1.0, 2.0], "lr": [0.1, 0.05],
    }  # fmt: skip
    at = {"round": 2, "average": "cld", "sha256": "x", "accuracy": 0.2}
    content = {
        "schema": SCHEMA, "run": "a", "method": "fedavg", "seed": 0, "settings": settings,
        "dataset": "digits", "test_samples": 10, "at": at, "metrics": metrics, "curvature": [],
        "versions": {},
    }  # fmt: skip
    return RunCurves.read(content)


def test_the_rate_is_that_of_the_round() -> None:
    run = record(lr=0.1, momentum=0.9, nesterov=True, weight_decay=1.0)
    assert stable_at(run, 1) == pytest.approx(2 * 1.9 / 2.8 / 0.1 - 1)
    assert stable_at(run, 2) == pytest.approx(2 * 1.9 / 2.8 / 0.05 - 1)
    assert stable_at(run, 3) == stable_at(run, 1)  # not in the metrics: the run's first


def test_a_run_from_elsewhere_has_no_edge() -> None:
    with pytest.raises(UserError, match="learning rate of round 7 of a is not known"):
        stable_at(record(lr=None), 7)
