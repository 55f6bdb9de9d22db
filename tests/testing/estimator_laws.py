"""What a reader of an error bar relies on: the laws of an estimator, on a matrix whose truth is known.

Inherit, call the estimator, and say what it estimates. The laws of its error repeat it with ``draws`` seeds.
Each refuses an honest estimator with a probability of about 0.1 %, and as seeds are fixed, always or never.
"""

import math
from collections.abc import Callable
from functools import cached_property
from typing import Any, Protocol

import torch
from scipy.stats import binom
from torch import Tensor

from fedscope.errors import UserError
from fedscope.landscape.operators.adapters import LambdaOperator
from fedscope.landscape.operators.base import Operator

_RARE = 1e-3


class Estimated(Protocol):
    """A number with the error that its own draws leave in it."""

    @property
    def value(self) -> float: ...
    @property
    def stderr_probe(self) -> float: ...
    @property
    def matvecs(self) -> int: ...
    @property
    def seed(self) -> int: ...
    def interval(self, level: float = 0.95) -> tuple[float, float]: ...


class Estimator(Protocol):
    def __call__(
        self, op: Operator, *, generator: torch.Generator | None = None, seed: int | None = None
    ) -> Estimated: ...


class EstimatorConformance:
    """Laws of an :class:`Estimator`; a failed one is an ``AssertionError`` that names it."""

    draws = 100
    spread = 1.6  # most that the errors said and the scatter of the values may differ by, a factor

    def estimate(self, op: Operator, **draws: Any) -> Estimated:
        """Return the estimate; ``draws`` is ``generator`` or ``seed``, to be passed on."""
        raise NotImplementedError("call the estimator under test, with **draws")

    def truth(self, matrix: Tensor) -> float:
        """Return what is estimated, for a dense symmetric (n, n) float64 matrix."""
        raise NotImplementedError("return the true value")

    def matrix(self) -> Tensor:
        """Return the matrix that it is tried on: 40 eigenvalues of both signs, some large, most small."""
        generator = torch.Generator().manual_seed(0)
        basis, _ = torch.linalg.qr(torch.randn(40, 40, generator=generator, dtype=torch.float64))
        values = torch.arange(1, 41, dtype=torch.float64) ** -0.7
        values[5::6] *= -0.5
        matrix: Tensor = (basis * values) @ basis.T
        return matrix

    def test_it_says_what_it_found_and_what_it_cost(self) -> None:
        """Value and error are finite numbers, the interval holds the value, and the products are counted."""
        taken: list[int] = []
        found = self.estimate(self._operator(lambda v: taken.append(1)), seed=0)
        assert math.isfinite(found.value), f"the value is {found.value}"
        assert found.stderr_probe >= 0, f"the standard error is {found.stderr_probe}"
        low, high = found.interval()
        assert low <= found.value <= high, f"{found.value} is not in its own interval, {low} to {high}"
        assert found.matvecs == len(taken), f"{found.matvecs} products are said, {len(taken)} were taken"
        assert found.seed == 0, f"the seed 0 was given, {found.seed} is said"

    def test_a_seed_repeats_it_and_another_does_not(self) -> None:
        """It draws from its own generator: without one of seed 0, and never from the global one."""
        first, before = self._value(seed=0), torch.get_rng_state()
        with torch.random.fork_rng():
            torch.manual_seed(1)
            assert self._value(seed=0) == first, "the same seed gives another value"
            assert self._value() == first, "without a seed it is not that of seed 0"
        self._value(seed=0)
        assert torch.equal(torch.get_rng_state(), before), "it draws from the global generator"
        if self.estimate(self._operator(), seed=0).stderr_probe > 0:
            assert self._value(seed=1) != first, "another seed gives the same value"

    def test_a_generator_is_a_seed_and_both_are_refused(self) -> None:
        """``generator`` is drawn from where it stands; beside a ``seed`` it is a ``UserError``."""
        generator = torch.Generator().manual_seed(3)
        state = generator.get_state()
        first = self.estimate(self._operator(), generator=generator)
        generator.set_state(state)
        again = self.estimate(self._operator(), generator=generator)
        assert again.value == first.value, "a generator of the same state gives another value"
        if first.stderr_probe > 0:
            assert not torch.equal(generator.get_state(), state), "the generator is not drawn from"
        try:
            self.estimate(self._operator(), generator=generator, seed=0)
        except UserError:
            return
        raise AssertionError("a generator beside a seed is taken: which of them is meant?")

    def test_it_is_right_on_average(self) -> None:
        """The mean over seeds is the truth, within four of its standard errors."""
        values = torch.tensor([found.value for found in self._many], dtype=torch.float64)
        truth = self.truth(self.matrix())
        off, most = float(values.mean()) - truth, 4 * float(values.std()) / math.sqrt(self.draws)
        assert abs(off) <= most + 1e-9 * abs(truth), (
            f"off by {off:.3g} on average over {self.draws} seeds, where {most:.3g} is chance"
        )

    def test_its_intervals_hold_the_truth(self) -> None:
        """As often as they say, at 95 % and at 80 %, but for chance."""
        truth = self.truth(self.matrix())
        for level in (0.95, 0.8):
            ends = [found.interval(level) for found in self._many]
            room = 1e-9 * abs(truth)
            held = sum(low - room <= truth <= high + room for low, high in ends)
            chance = float(binom.cdf(held, self.draws, level))
            assert chance >= _RARE, f"{held} of {self.draws} intervals of {level:.0%} hold the truth"

    def test_its_errors_are_what_the_values_scatter_by(self) -> None:
        """Neither too small nor so large that they say nothing."""
        values = torch.tensor([found.value for found in self._many], dtype=torch.float64)
        said = math.sqrt(sum(found.stderr_probe**2 for found in self._many) / self.draws)
        scatter = float(values.std())
        if max(said, scatter) <= 1e-9 * abs(float(values.mean())):
            return
        assert scatter / self.spread <= said <= scatter * self.spread, (
            f"a standard error of {said:.3g} is said, the values scatter by {scatter:.3g}"
        )

    def test_what_is_not_finite_stays_so(self) -> None:
        """A product that is NaN is neither replaced nor left out."""
        found = self.estimate(self._operator(lambda v: v.mul_(math.nan)), seed=0)
        assert not math.isfinite(found.value), f"products are NaN, and the value is {found.value}"

    def test_the_result_cannot_be_changed(self) -> None:
        """It is a frozen record."""
        found = self.estimate(self._operator(), seed=0)
        try:
            found.value = 0.0  # type: ignore[misc]
        except AttributeError:
            return
        raise AssertionError("the value can be assigned to: make the result a frozen dataclass")

    @cached_property
    def _many(self) -> list[Estimated]:
        return [self.estimate(self._operator(), seed=seed) for seed in range(self.draws)]

    def _value(self, **draws: Any) -> float:
        return self.estimate(self._operator(), **draws).value

    def _operator(self, after: Callable[[Tensor], object] = lambda image: None) -> LambdaOperator:
        matrix = self.matrix()

        def times(v: Tensor) -> Tensor:
            image = matrix @ v
            after(image)
            return image

        return LambdaOperator(times, len(matrix))
