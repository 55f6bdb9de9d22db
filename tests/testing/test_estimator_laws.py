"""The suite of estimators on those of the package, and on estimators that break one law each."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from fedscope.landscape import Operator, Trace, diagonal, orthogonal, trace
from tests.testing.estimator_laws import Estimated, Estimator, EstimatorConformance
from tests.testing.laws import broken_laws


class OfTheTrace(EstimatorConformance):
    """With an estimator that is to be given."""

    estimator: Estimator

    def estimate(self, op: Operator, **draws: Any) -> Estimated:
        return type(self).estimator(op, **draws)

    def truth(self, matrix: Tensor) -> float:
        return float(matrix.trace())


class TestProbes(OfTheTrace):
    estimator = staticmethod(partial(trace, probes=12))


class TestTwoStages(OfTheTrace):
    estimator = staticmethod(partial(trace, rtol=0.1, max_basis=0))


class TestBesideABasis(OfTheTrace):
    estimator = staticmethod(partial(trace, rtol=0.05))


class TestACompleteSet(OfTheTrace):
    estimator = staticmethod(partial(trace, probes=40, sampler=orthogonal))


class TestTheDiagonalsSum(OfTheTrace):
    def estimate(self, op: Operator, **draws: Any) -> Estimated:
        return diagonal(op, probes=16, **draws).trace


def _trace(op: Operator, **draws: Any) -> Trace:
    return trace(op, probes=12, **draws)


def _off(op: Operator, **draws: Any) -> Trace:
    found = _trace(op, **draws)
    return replace(found, value=found.value + found.stderr_probe)


def _too_sure(op: Operator, **draws: Any) -> Trace:
    found = _trace(op, **draws)
    return replace(found, stderr_probe=found.stderr_probe / 4)


def _too_unsure(op: Operator, **draws: Any) -> Trace:
    found = _trace(op, **draws)
    return replace(found, stderr_probe=found.stderr_probe * 4)


def _uncounted(op: Operator, **draws: Any) -> Trace:
    return replace(_trace(op, **draws), matvecs=11)


def _patched(op: Operator, **draws: Any) -> Trace:
    found = _trace(op, **draws)
    return found if found.value == found.value else replace(found, value=0.0)


def _deaf(op: Operator, **draws: Any) -> Trace:
    return replace(_trace(op), seed=draws.get("seed", 0))


def _global(op: Operator, **draws: Any) -> Trace:
    return replace(_trace(op, seed=int(torch.randint(1 << 30, ()))), seed=draws.get("seed") or 0)


def _both(op: Operator, **draws: Any) -> Trace:
    return _trace(op, **({"generator": draws["generator"]} if "generator" in draws else draws))


@dataclass
class _Open:
    value: float
    stderr_probe: float
    matvecs: int
    seed: int
    ends: tuple[float, float]

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        return self.ends


def _changeable(op: Operator, **draws: Any) -> _Open:
    found = _trace(op, **draws)
    return _Open(found.value, found.stderr_probe, found.matvecs, found.seed, found.interval())


@pytest.mark.parametrize(
    ("estimator", "law"),
    [
        (_off, "it_is_right_on_average"),
        (_too_sure, "its_intervals_hold_the_truth"),
        (_too_sure, "its_errors_are_what_the_values_scatter_by"),
        (_too_unsure, "its_errors_are_what_the_values_scatter_by"),
        (_uncounted, "it_says_what_it_found_and_what_it_cost"),
        (_patched, "what_is_not_finite_stays_so"),
        (_deaf, "a_seed_repeats_it_and_another_does_not"),
        (_deaf, "a_generator_is_a_seed_and_both_are_refused"),
        (_global, "a_seed_repeats_it_and_another_does_not"),
        (_both, "a_generator_is_a_seed_and_both_are_refused"),
        (_changeable, "the_result_cannot_be_changed"),
    ],
)
def test_a_broken_law_is_named(estimator: Estimator, law: str) -> None:
    class Suite(OfTheTrace):
        def estimate(self, op: Operator, **draws: Any) -> Estimated:
            return estimator(op, **draws)

    with torch.random.fork_rng():
        assert law in broken_laws(Suite())


def test_an_estimator_of_something_else_is_named() -> None:
    class Suite(OfTheTrace):
        estimator = staticmethod(partial(trace, probes=12))

        def truth(self, matrix: Tensor) -> float:
            return float(matrix.trace()) + 1

    assert set(broken_laws(Suite())) == {"it_is_right_on_average", "its_intervals_hold_the_truth"}
