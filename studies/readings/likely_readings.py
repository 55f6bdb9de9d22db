"""Which reading of a printed table is likely: what was measured under each, against all printed numbers.

A method that stops at an early round is brought to the last one by the growth of the methods that were
measured at both. Weight decay w adds w to every eigenvalue and w·n to the trace of n parameters, and is added
here. Draws and seeds are averaged by their logarithms.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from fedscope.records.entries import Record
from fedscope.reproduce.artefacts.filled import FilledCell
from studies.likelihood import Array, Errors, Fit, fit, shares
from studies.readings.measured import QUANTITIES, Measured
from studies.readings.reading import AXES, Likelihood, Reading
from studies.readings.readings_recipe import ReadingsRecipe
from studies.readings.spreads import Growth, between_trainings, of_samples
from studies.study import percent

TITLES = {"lambda_max": "λ_max", "trace": "trace"}
_ALTERNATIVES: Mapping[str, Mapping[str, float]] = {
    "normal distribution": {"dof": math.inf},
    "λ_max and trace independent": {"correlation": 0.0},
    "λ_max and trace correlated by 0.8": {"correlation": 0.8},
    "half of the spread between trainings": {"training": 0.5},
    "twice the spread between trainings": {"training": 2.0},
    "half of the spread of the growth": {"growth": 0.5},
    "twice the spread of the growth": {"growth": 2.0},
    "half of the spread between draws": {"samples": 0.5},
    "twice the spread between draws": {"samples": 2.0},
    "samples' errors independent between methods": {"common": 0.0},
    "80 % of a training's variance common to all methods": {"alike": 0.8},
}


def readings_of(recipe: ReadingsRecipe, filled: Sequence[FilledCell]) -> Record:
    """Return the entry ``readings`` of an artefact."""
    return _Inference(Measured(recipe, filled)).record()


def grid_of(entry: Record) -> Record:
    """Return the table of the readings, the most likely first."""
    level = [f"{TITLES[quantity]}, expected / printed" for quantity in QUANTITIES]
    header = ["reading", "share", "log-likelihood", *level, "ratios alone", "left"]
    rows = [
        [
            one["name"], percent(one["share"]), f"{one['log_likelihood']:.1f}".replace("-", "−"),
            *(f"{1 / one['factors'][quantity]:.2f}" for quantity in QUANTITIES),
            f"{one['ratios_only']:.1f}".replace("-", "−"), percent(one["residual"]),
        ]
        for one in entry["results"]
    ]  # fmt: skip
    return {"header": header, "rows": rows}


@dataclass(frozen=True)
class _Scored:
    """A reading, what it expects of each row and quantity, and the errors without the likelihood's own."""

    reading: Reading
    measured: Array  # (R, Q)
    growth: Array  # (R, Q)
    expected: Array  # (R, Q)
    samples: Array  # (Q,)


class _Inference:
    def __init__(self, measured: Measured) -> None:
        self.measured, self.growth = measured, Growth(measured)
        self.rows, self.reached = measured.rows, measured.reached
        stated = measured.readings.likelihood.training_spread
        known = [between_trainings(measured, quantity) for quantity in QUANTITIES]
        self.several_seeds = None not in known
        self.training = np.array(
            [stated[q] if one is None else one for one, q in zip(known, QUANTITIES, strict=True)]
        )

    def record(self) -> Record:
        readings, scored = self.measured.readings, self.scored
        own = readings.likelihood
        found = self._fits(own, self.rows)
        likely = shares([one.log_likelihood for one in found])
        order = sorted(range(len(scored)), key=lambda at: -found[at].log_likelihood)
        best = max((one.log_likelihood for one in found), default=0.0)
        shape = max((one.ratios_only for one in found), default=0.0)
        return {
            "results": [self._result(scored[at], found[at], likely[at], best, shape) for at in order],
            "axes": self._axes(likely),
            "sensitivities": self._sensitivities(own, order[0] if order else None),
            "training_spread": dict(zip(QUANTITIES, self.training.tolist(), strict=True)),
            "spread_source": "measured between the seeds of this registry"
            if self.several_seeds
            else "stated",
            "growth_spread": self.growth.spread,
            "correlation": own.correlation,
            "common": dict(own.common),
            "dof": None if math.isinf(own.dof) else own.dof,
            "growth": self.growth.of_base(),
            "grown_on": self.growth.rows,
            "incomplete": [one.name for one in readings.every if one not in self.complete],
            "open": dict(readings.open),
        }

    def _result(self, one: _Scored, found: Fit, share: float, best: float, shape: float) -> Record:
        entries = [
            {
                "row": row, "quantity": quantity, "measured": float(one.measured[i, j]),
                "round": self.reached[row], "growth": float(one.growth[i, j]),
                "expected": float(one.expected[i, j]), "printed": self.measured.printed(row)[j],
            }
            for i, row in enumerate(self.rows) for j, quantity in enumerate(QUANTITIES)
        ]  # fmt: skip
        return {
            "name": one.reading.name,
            "settings": {axis: one.reading.value(axis) for axis in AXES},
            "draws": one.reading.draws,
            "entries": entries,
            "sampling_spread": dict(zip(QUANTITIES, one.samples.tolist(), strict=True)),
            "log_likelihood": found.log_likelihood - best,
            "share": share,
            "factors": dict(zip(QUANTITIES, found.factors.tolist(), strict=True)),
            "ratios_only": found.ratios_only - shape,
            "residual": found.residual,
            "p": found.p,
        }

    def _axes(self, likely: Sequence[float]) -> list[Record]:
        found = []
        for axis in AXES:
            values = list(dict.fromkeys(one.reading.value(axis) for one in self.scored))
            for value in values if len(values) > 1 else []:
                own = [at for at, one in enumerate(self.scored) if one.reading.value(axis) == value]
                share = sum(likely[at] for at in own)
                found.append({"axis": axis, "value": value, "readings": len(own), "share": share})
        return found

    def _sensitivities(self, own: Likelihood, usual: int | None) -> list[Record]:
        found = []
        for change, factors in _ALTERNATIVES.items() if usual is not None else ():
            assert usual is not None
            given = replace(
                own,
                dof=factors.get("dof", own.dof),
                correlation=factors.get("correlation", own.correlation),
                common={q: factors.get("common", 1.0) * own.common[q] for q in QUANTITIES},
            )
            scale = {name: factors.get(name, 1.0) for name in ("training", "growth", "samples")}
            fits = self._fits(given, self.rows, alike=factors.get("alike", 0.0), **scale)
            found.append(self._sensitivity(change, fits, usual))
        doubtful = self.measured.readings.doubtful
        rows = [row for row in self.rows if row not in doubtful]
        if usual is not None and rows and len(rows) < len(self.rows):
            change = f"without {' and '.join(row for row in self.rows if row in doubtful)}"
            found.append(self._sensitivity(change, self._fits(own, rows), usual))
        return found

    def _sensitivity(self, change: str, fits: Sequence[Fit], usual: int) -> Record:
        likely = shares([one.log_likelihood for one in fits])
        best, readings = int(np.argmax(likely)), [one.reading for one in self.scored]
        same = zip(likely, readings, strict=True)
        return {
            "change": change,
            "best": readings[best].name,
            "share": likely[best],
            "usual": likely[usual],
            "split": sum(share for share, one in same if one.split == readings[usual].split),
        }

    def _fits(
        self,
        own: Likelihood,
        rows: Sequence[str],
        *,
        training: float = 1.0,
        growth: float = 1.0,
        samples: float = 1.0,
        alike: float = 0.0,
    ) -> list[Fit]:
        theirs = np.array([self.measured.printed(row) for row in rows])
        seeds = [len(self.measured.cells(row, self.reached[row])) for row in rows]
        short = np.array([self.reached[row] < self.measured.last for row in rows], dtype=np.bool_)
        kept = [self.rows.index(row) for row in rows]
        return [
            fit(
                np.log(theirs / one.expected[kept]),
                Errors(
                    training=training * self.training,
                    trainings=np.array(seeds, dtype=np.float64),
                    samples=samples * one.samples,
                    draws=one.reading.draws,
                    common=np.array([own.common[quantity] for quantity in QUANTITIES]),
                    short=short,
                    growth=growth * self.growth.spread,
                    grown=len(self.growth.rows),
                    correlation=own.correlation,
                    alike=alike,
                ),
                own.dof,
            )
            for one in self.scored
        ]

    @cached_property
    def scored(self) -> list[_Scored]:
        """The readings that every method was measured under, and what they expect."""
        found, measured = [], self.measured
        places = [(row, self.reached[row]) for row in self.rows]
        for reading in self.complete:
            source = self.growth.source(reading)
            here = np.array([[measured.mean(reading, *at, q) for q in QUANTITIES] for at in places])
            growth = np.array([[self.growth.factor(source, at, q) for q in QUANTITIES] for _, at in places])
            expected = here * growth
            if reading.weight_decay:
                expected = expected + np.array([measured.weight_decay(row) for row in self.rows])
            samples = of_samples(measured, self.complete, reading)
            found.append(_Scored(reading, here, growth, expected, samples))
        return found

    @cached_property
    def complete(self) -> list[Reading]:
        """The readings that every method was measured under; the growth must be known where one is short."""
        if not self.rows or (self.measured.early and not self.growth.rows):
            return []
        return [
            one for one in self.measured.readings.every
            if all(self.measured.has(one, row, self.reached[row]) for row in self.rows)
        ]  # fmt: skip
