"""The errors behind a comparison with printed numbers: growth by rounds, trainings, and samples."""

import math
from functools import cached_property
from statistics import geometric_mean

import numpy as np

from fedscope.reproduce.artefacts.likelihood import Array, pooled_spread
from fedscope.reproduce.artefacts.measured import QUANTITIES, Measured
from fedscope.reproduce.recipes.readings import Reading


class Growth:
    """The growth of each quantity from an early round to the last, of the methods measured at both."""

    def __init__(self, measured: Measured) -> None:
        self._measured, self._last = measured, measured.last
        rounds = measured.early | {self._last}
        self.rows = [
            row for row in measured.rows
            if measured.early and all(measured.has(measured.base, row, round) for round in rounds)
        ]  # fmt: skip

    def source(self, reading: Reading) -> Reading:
        """Return the reading that the growth is measured under: at the server's model, else the base."""
        measured = self._measured
        at_server = measured.same(reading.at_server)
        rounds = measured.early | {self._last}
        known = all(measured.has(at_server, row, round) for row in self.rows for round in rounds)
        return at_server if known else measured.base

    def factor(self, source: Reading, round: int, quantity: str) -> float:
        """Return the factor from a round to the last."""
        return 1.0 if round == self._last else geometric_mean(self._each(source, round, quantity))

    def of_base(self) -> dict[str, float]:
        """Return the growth from the first of the early rounds; empty where none is known."""
        early = min(self._measured.early, default=self._last)
        return {q: self.factor(self._measured.base, early, q) for q in QUANTITIES} if self.rows else {}

    @cached_property
    def spread(self) -> float:
        """The stated spread, or that between the methods whose growth was measured, where it is larger."""
        base, stated = self._measured.base, self._measured.readings.likelihood.growth_spread
        groups = [
            {"": self._each(base, round, quantity)}
            for round in self._measured.early for quantity in QUANTITIES
        ]  # fmt: skip
        return max([stated, *(one for group in groups if (one := pooled_spread(group)) is not None)])

    def _each(self, source: Reading, round: int, quantity: str) -> list[float]:
        mean = self._measured.mean
        return [
            mean(source, row, self._last, quantity) / mean(source, row, round, quantity) for row in self.rows
        ]


def between_trainings(measured: Measured, quantity: str) -> float | None:
    """Return the spread between seeds under the base reading; None where no method has two."""
    places = sorted({(one.cell.row, one.match.round) for one in measured.filled})
    groups = {}
    for row, round in places:
        each = [measured.of_cell(measured.base, one, quantity) for one in measured.cells(row, round)]
        groups[f"{row} {round}"] = [geometric_mean(values) for values in each if values]
    return pooled_spread(groups)


def of_samples(measured: Measured, complete: list[Reading], reading: Reading) -> Array:
    """Return the spread of one draw: between the draws of all readings of as many samples of the split.

    Few draws may happen to lie close: it is at least the measurement's own error. Without draws it is that
    error; of an estimator without errors that of the plain one, or the largest known.
    """
    found = []
    for quantity in QUANTITIES:
        plain = measured.same(reading.plain)
        own = [
            spread for one in (reading, plain)
            if (spread := _spread(measured, complete, one, quantity)) is not None
        ]  # fmt: skip
        every = (_spread(measured, complete, other, quantity) for other in (() if own else complete))
        found.append(own[0] if own else max((one for one in every if one is not None), default=0.0))
    return np.array(found)


def _spread(measured: Measured, complete: list[Reading], reading: Reading, quantity: str) -> float | None:
    found = (_between_draws(measured, complete, reading, quantity), _error(measured, reading, quantity))
    return max((one for one in found if one is not None), default=None)


def _between_draws(
    measured: Measured, complete: list[Reading], reading: Reading, quantity: str
) -> float | None:
    """Return the spread between draws of the same number of samples, pooled over methods and readings."""
    groups = {
        f"{other.name} {one.cell.row} {one.cell.seed}": measured.of_cell(other, one, quantity)
        for other in complete
        if other.draws > 1 and (other.split, other.samples) == (reading.split, reading.samples)
        for one in measured.own_cells
    }
    return pooled_spread(groups)


def _error(measured: Measured, reading: Reading, quantity: str) -> float | None:
    """Return the relative error of the measurements, root mean square over methods, if it is known."""
    errors = [error for one in measured.own_cells for error in measured.errors(reading, one, quantity)]
    if not errors or not all(math.isfinite(error) for error in errors):
        return None
    return math.sqrt(sum(error**2 for error in errors) / len(errors))
