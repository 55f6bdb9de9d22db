"""Which reading of a printed table is likely: what was measured under each, against all printed numbers.

A method that stops at an early round is brought to the last one by the growth of the methods that were
measured at both. Weight decay w adds w to every eigenvalue and w·n to the trace of n parameters, and is added
here. Draws and seeds are averaged by their logarithms.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import geometric_mean

import numpy as np

from fedscope.data.sets import catalogue as data_catalogue
from fedscope.models import catalogue as model_catalogue
from fedscope.records.entries import Record
from fedscope.records.hessian import HessianRecord
from fedscope.reproduce.artefacts.filled import FilledCell
from fedscope.reproduce.artefacts.likelihood import Array, Errors, Fit, fit, pooled_spread, shares
from fedscope.reproduce.recipes.published import printed
from fedscope.reproduce.recipes.readings import AXES, Likelihood, Reading, Readings, label
from fedscope.reproduce.recipes.spec import Recipe

QUANTITIES = ("lambda_max", "trace")
TITLES = {"lambda_max": "λ_max", "trace": "trace"}
_ALTERNATIVES: Mapping[str, Mapping[str, float]] = {
    "normal distribution": {"dof": math.inf},
    "λ_max and trace independent": {"correlation": 0.0},
    "λ_max and trace correlated by 0.8": {"correlation": 0.8},
    "half of the spread between trainings": {"training": 0.5},
    "twice the spread between trainings": {"training": 2.0},
    "half of the spread of the growth": {"growth": 0.5},
    "twice the spread of the growth": {"growth": 2.0},
    "samples' errors independent between methods": {"common": 0.0},
}


def readings_of(recipe: Recipe, filled: Sequence[FilledCell]) -> Record:
    """Return the entry ``readings`` of an artefact (:class:`~fedscope.records.artefact.ReadingsResult`)."""
    assert recipe.readings
    return _Inference(recipe, recipe.readings, filled).record()


def grid_of(entry: Record) -> Record:
    """Return the table of the readings, the most likely first."""
    header = ["reading", "share", "log-likelihood", "λ_max, factor", "trace, factor", "ratios alone", "left"]
    rows = [
        [
            one["name"], percent(one["share"]), f"{one['log_likelihood']:.1f}".replace("-", "−"),
            *(f"{one['factors'][quantity]:.2f}" for quantity in QUANTITIES),
            f"{one['ratios_only']:.1f}".replace("-", "−"), percent(one["residual"]),
        ]
        for one in entry["results"]
    ]  # fmt: skip
    return {"header": header, "rows": rows}


def percent(share: float) -> str:
    """Return a share in percent."""
    return "< 0.1 %" if 0 < share < 0.001 else f"{100 * share:.{0 if share >= 0.1 else 1}f} %"


@dataclass(frozen=True)
class _Scored:
    """A reading, what it expects of each row and quantity, and the errors without the likelihood's own."""

    reading: Reading
    measured: Array  # (R, Q)
    growth: Array  # (R, Q)
    expected: Array  # (R, Q)
    samples: Array  # (Q,)


class _Inference:
    def __init__(self, recipe: Recipe, readings: Readings, filled: Sequence[FilledCell]) -> None:
        self.recipe, self.readings, self.filled = recipe, readings, filled
        rounds = {one.match.round for one in filled}
        self.last = max(rounds, default=0)
        self.rows = [
            row for row in recipe.rows
            if any(one.cell.row == row for one in filled) and all(self._printed(row, q) for q in QUANTITIES)
        ]  # fmt: skip
        self.reached = {
            row: max(one.match.round for one in filled if one.cell.row == row) for row in self.rows
        }
        self.short = np.array([self.reached[row] < self.last for row in self.rows], dtype=np.bool_)

    def record(self) -> Record:
        own, scored = self.readings.likelihood, self.scored
        found = self._fits(own)
        likely = shares([one.log_likelihood for one in found])
        order = sorted(range(len(scored)), key=lambda at: -found[at].log_likelihood)
        best = max((one.log_likelihood for one in found), default=0.0)
        shape = max((one.ratios_only for one in found), default=0.0)
        return {
            "results": [self._result(scored[at], found[at], likely[at], best, shape) for at in order],
            "axes": self._axes(likely),
            "sensitivities": self._sensitivities(own, order[0] if order else None),
            "training_spread": dict(zip(QUANTITIES, self._training.tolist(), strict=True)),
            "spread_source": self._spread_source,
            "growth_spread": self._growth_spread,
            "correlation": own.correlation,
            "common": dict(own.common),
            "dof": None if math.isinf(own.dof) else own.dof,
            "growth": self._base_growth,
            "grown_on": self._grown,
            "incomplete": [one.name for one in self.readings.every if one not in self._complete],
            "open": dict(self.readings.open),
        }

    def _result(self, one: _Scored, found: Fit, share: float, best: float, shape: float) -> Record:
        entries = [
            {
                "row": row, "quantity": quantity, "measured": float(one.measured[i, j]),
                "round": self.reached[row], "growth": float(one.growth[i, j]),
                "expected": float(one.expected[i, j]), "printed": self._printed(row, quantity),
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
            fits = self._fits(given, factors.get("training", 1.0), factors.get("growth", 1.0))
            likely = shares([one.log_likelihood for one in fits])
            best = int(np.argmax(likely))
            name = self.scored[best].reading.name
            found.append({"change": change, "best": name, "share": likely[best], "usual": likely[usual]})
        return found

    def _fits(self, own: Likelihood, training: float = 1.0, growth: float = 1.0) -> list[Fit]:
        theirs = np.array([[self._printed(row, quantity) for quantity in QUANTITIES] for row in self.rows])
        return [
            fit(
                np.log(theirs / one.expected),
                Errors(
                    training=training * self._training,
                    trainings=np.array([self._seeds(row) for row in self.rows], dtype=np.float64),
                    samples=one.samples,
                    draws=one.reading.draws,
                    common=np.array([own.common[quantity] for quantity in QUANTITIES]),
                    short=self.short,
                    growth=growth * self._growth_spread,
                    grown=len(self._grown),
                    correlation=own.correlation,
                ),
                own.dof,
            )
            for one in self.scored
        ]

    @cached_property
    def scored(self) -> list[_Scored]:
        """The readings that every method was measured under."""
        found = []
        for reading in self._complete:
            measured = np.array(
                [[self._mean(reading, row, self.reached[row], q) for q in QUANTITIES] for row in self.rows]
            )
            source = self._growth_source(reading)
            growth = np.array(
                [[self._growth(source, self.reached[row], q) for q in QUANTITIES] for row in self.rows]
            )
            expected = measured * growth
            if reading.weight_decay:
                expected = expected + np.array([self._weight_decay(row) for row in self.rows])
            found.append(_Scored(reading, measured, growth, expected, self._sampling(reading)))
        return found

    @cached_property
    def _complete(self) -> list[Reading]:
        return [
            one for one in self.readings.every
            if self.rows
            and all(self._values(one, row, self.reached[row], q) for row in self.rows for q in QUANTITIES)
            and (not self.short.any() or self._grown)
        ]  # fmt: skip

    @cached_property
    def _grown(self) -> list[str]:
        """The methods that were measured at the last round and at the early ones, by the base reading."""
        early = {self.reached[row] for row in self.rows if self.reached[row] < self.last}
        base = self.readings.base
        known = self._at(base)
        return [
            row for row in self.rows
            if self.reached[row] == self.last and early
            and all(self._values(known, row, round, "trace") for round in early | {self.last})
        ]  # fmt: skip

    @property
    def _base_growth(self) -> dict[str, float]:
        early = min(self.reached.values(), default=self.last)
        base = self._at(self.readings.base)
        return {q: self._growth(base, early, q) for q in QUANTITIES} if self._grown or not early else {}

    def _growth_source(self, reading: Reading) -> Reading:
        """Return the reading that the growth is measured under: at the server's model, else the base."""
        early = {self.reached[row] for row in self.rows} - {self.last}
        at_server = self._at(reading.at_server)
        known = all(
            self._values(at_server, row, round, q)
            for row in self._grown for round in early | {self.last} for q in QUANTITIES
        )  # fmt: skip
        return at_server if known else self._at(self.readings.base)

    def _growth(self, source: Reading, round: int, quantity: str) -> float:
        if round == self.last:
            return 1.0
        logs = [
            math.log(self._mean(source, row, self.last, quantity) / self._mean(source, row, round, quantity))
            for row in self._grown
        ]
        return math.exp(sum(logs) / len(logs))

    @cached_property
    def _growth_spread(self) -> float:
        """The stated spread, or that between the methods whose growth was measured, where it is larger."""
        base, stated = self._at(self.readings.base), self.readings.likelihood.growth_spread
        early = min(self.reached.values(), default=self.last)
        found = [
            pooled_spread({"": [self._mean(base, row, self.last, q) / self._mean(base, row, early, q)
                                for row in self._grown]})
            for q in QUANTITIES
        ]  # fmt: skip
        return max([stated, *(one for one in found if one is not None)])

    @cached_property
    def _training(self) -> Array:
        stated = self.readings.likelihood.training_spread
        return np.array([self._seed_spread(q) or stated[q] for q in QUANTITIES])

    @property
    def _spread_source(self) -> str:
        known = self._seed_spread("trace") is not None
        return "measured between the seeds of this registry" if known else "stated"

    def _seed_spread(self, quantity: str) -> float | None:
        base = self._at(self.readings.base)
        places = {(one.cell.row, one.match.round) for one in self.filled}
        groups = {}
        for row, round in sorted(places):
            each = [
                self._of_cell(base, one, quantity)
                for one in self.filled if (one.cell.row, one.match.round) == (row, round)
            ]  # fmt: skip
            groups[f"{row} {round}"] = [geometric_mean(values) for values in each if values]
        return pooled_spread(groups)

    def _seeds(self, row: str) -> int:
        at = (row, self.reached[row])
        return len({one.cell.seed for one in self.filled if (one.cell.row, one.match.round) == at})

    def _sampling(self, reading: Reading) -> Array:
        """Return the spread of one draw: between the draws of all readings of as many samples of the split.

        Without any it is the measurement's own error; of an estimator without errors, the largest known.
        """
        found = []
        for quantity in QUANTITIES:
            sources = (reading, self._at(reading.plain))
            known = [self._draw_spread(reading, quantity), *(self._error(one, quantity) for one in sources)]
            own = [one for one in known if one is not None]
            every = [one for other in self._complete if (one := self._error(other, quantity)) is not None]
            found.append(own[0] if own else max(every, default=0.0))
        return np.array(found)

    def _draw_spread(self, reading: Reading, quantity: str) -> float | None:
        """Return the spread between draws of the same number of samples, pooled over methods and readings."""
        groups = {}
        for other in self._complete:
            if other.draws > 1 and (other.split, other.samples) == (reading.split, reading.samples):
                for one in self._own_cells:
                    at = f"{other.name} {one.cell.row} {one.cell.seed}"
                    groups[at] = self._of_cell(other, one, quantity)
        return pooled_spread(groups)

    def _error(self, reading: Reading, quantity: str) -> float | None:
        """Return the relative error of the measurements, root mean square over methods, if it is known."""
        squares = []
        for one in self._own_cells:
            for record in self._records(reading, one):
                entry = record.lambda_max if quantity == "lambda_max" else record.trace
                if entry.error is None or not math.isfinite(entry.error[0]):
                    return None
                squares.append((entry.error[0] / entry.value) ** 2)
        return math.sqrt(sum(squares) / len(squares)) if squares else None

    @property
    def _own_cells(self) -> list[FilledCell]:
        """The cells of each method's last round."""
        return [one for one in self.filled if one.match.round == self.reached.get(one.cell.row)]

    def _at(self, reading: Reading) -> Reading:
        """Return the reading of these settings that the recipe has, with its number of draws."""
        wanted = replace(reading, draws=1)
        return next((one for one in self.readings.every if replace(one, draws=1) == wanted), reading)

    def _mean(self, reading: Reading, row: str, round: int, quantity: str) -> float:
        return geometric_mean(self._values(reading, row, round, quantity))

    def _values(self, reading: Reading, row: str, round: int, quantity: str) -> list[float]:
        """Return every draw's and seed's value; none where one is missing."""
        cells = [one for one in self.filled if (one.cell.row, one.match.round) == (row, round)]
        each = [self._of_cell(reading, one, quantity) for one in cells]
        return [value for values in each for value in values] if all(each) else []

    def _of_cell(self, reading: Reading, one: FilledCell, quantity: str) -> list[float]:
        records = self._records(reading, one)
        values = [r.lambda_max.value if quantity == "lambda_max" else r.trace.value for r in records]
        return values if all(math.isfinite(value) and value > 0 for value in values) else []

    def _records(self, reading: Reading, one: FilledCell) -> list[HessianRecord]:
        """Return the result of every draw; none where one is missing."""
        method = self.recipe.rows[one.cell.row].split()[0]
        wanted = reading.measures(self.recipe.measures["reading"], method)
        found = [one.records.get(label(measure)) for measure in wanted]
        records = [record for record in found if isinstance(record, HessianRecord)]
        return records if len(records) == len(wanted) else []

    def _weight_decay(self, row: str) -> tuple[float, float]:
        """Return what weight decay adds to λ_max and to the trace."""
        settings = next(one.cell.settings for one in self.filled if one.cell.row == row)
        data = data_catalogue.record(settings.dataset)
        network = model_catalogue.outline(str(settings.model), data.classes, data.channels)
        count = sum(parameter.numel() for parameter in network.parameters())
        return settings.weight_decay, settings.weight_decay * count

    def _printed(self, row: str, quantity: str) -> float | None:
        column = next(one.cell.column for one in self.filled if one.cell.row == row)
        name = f"{self.recipe.paper}/{self.readings.of}"
        found = printed(name, row, self.recipe.columns[column].published or column, quantity)
        return found.number if found else None
