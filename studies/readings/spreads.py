"""The errors behind a comparison with printed numbers: growth by rounds, trainings, and samples."""

import math
from functools import cached_property
from statistics import geometric_mean, median

import numpy as np

from studies.likelihood import Array, pooled_spread
from studies.readings.measured import QUANTITIES, Measured
from studies.readings.reading import Reading


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
    """Return the spread of one draw of the reading's samples; of all samples, that of the measurement.

    A mean over n samples varies as 1/√n. The measurement's own error of λ_max is no measure of it: among few
    samples one of large curvature makes it as large as the value.
    """
    return np.array([
        _measurement(measured, [reading], quantity) if reading.samples is None
        else _of_one_sample(measured, complete, reading.split, quantity) / math.sqrt(reading.samples)
        for quantity in QUANTITIES
    ])  # fmt: skip


def _of_one_sample(measured: Measured, complete: list[Reading], split: str, quantity: str) -> float:
    """Return √n times the spread of a draw of n samples, pooled over the draws of a split, or of both."""
    drawn = [one for one in complete if one.samples]
    own = [one for one in drawn if one.draws > 1 and one.split == split] or drawn
    groups, scales = dict[str, list[float]](), dict[str, float]()
    for one in own:
        for cell in measured.own_cells:  # a measurement once, however many readings it stands for
            name = " ".join([cell.cell.row, str(cell.cell.seed), *measured.names(one, cell)])
            groups[name], scales[name] = measured.of_cell(one, cell, quantity), math.sqrt(one.samples or 1)
    found = pooled_spread(groups, scales)
    return _measurement(measured, drawn, quantity) if found is None else found


def _measurement(measured: Measured, readings: list[Reading], quantity: str) -> float:
    """Return the median of the measurements' relative errors, times √n of n samples; 0 if none is known."""
    errors = [
        error * math.sqrt(reading.samples or 1) for reading in readings for one in measured.own_cells
        for error in measured.errors(reading, one, quantity) if math.isfinite(error)
    ]  # fmt: skip
    return median(errors) if errors else 0.0
