"""Which settings and number of rounds printed accuracies are of: every candidate at every round.

A candidate's curve gives the best accuracy by T/2 and by T for each T up to its end. Their logarithms are
compared with the printed ones; T is as likely beforehand in every equal interval of its logarithm.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np

from fedscope.records.entries import Record
from fedscope.reproduce.artefacts.filled import FilledCell
from fedscope.reproduce.recipes.spec import table
from studies.likelihood import Array, distance, log_density, shares, tail
from studies.settings.search import COMPARED, SearchRecipe
from studies.study import percent

_LEAST = 2  # rounds, of which one is the first half
_INSIDE = (0.025, 0.975)  # of the posterior of T
_FLOOR = 0.01  # percent


def search_of(recipe: SearchRecipe, filled: Sequence[FilledCell]) -> Record:
    """Return the entry ``search`` of an artefact."""
    return _Inference(recipe, filled).record()


def grid_of(entry: Record) -> Record:
    """Return the table of the search: every candidate for every printed column, the likeliest first."""
    rows = list(dict.fromkeys(e["row"] for one in entry["results"] for e in one["entries"]))
    names = {"best_half_accuracy": "by T/2", "best_accuracy": "by T"}
    header = ["printed", "candidate", "share", "rounds T", "p"]
    header += [f"{row}, {names[quantity]} (%)" for row in rows for quantity in COMPARED]
    cells = [
        [
            one["column"], one["candidate"], "–" if one["share"] is None else percent(one["share"]),
            f"> {one['end']}" if one["short"] else f"{one['rounds']} ({_between(one)})",
            "–" if one["short"] else percent(one["p"]),
            *(f"{e['expected']:.2f} [{e['printed']:.2f}]" for e in one["entries"]),
        ]
        for one in entry["results"]
    ]  # fmt: skip
    return {"header": header, "rows": cells, "text_columns": 2}


def _between(one: Record) -> str:
    return between(one["low"], one["high"], one["end"])


def between(low: int, high: int, end: int) -> str:
    """Return an interval of rounds; one that reaches the training's end may go beyond it."""
    return f"{low} to {'≥ ' * (high == end)}{high}"


@dataclass(frozen=True)
class _Candidate:
    """A training of each compared method under the same settings."""

    name: str
    best: Array  # (R, T) best accuracy up to each round, in percent; the mean over seeds
    seeds: Array  # (R,) how many

    def expected(self, rounds: int) -> Array:
        """Return the best accuracies by half of the rounds and by all (R, 2)."""
        return self.best[:, [rounds // 2 - 1, rounds - 1]]


class _Inference:
    def __init__(self, recipe: SearchRecipe, filled: Sequence[FilledCell]) -> None:
        self.recipe, self.search, self.filled = recipe, recipe.search, filled
        self._table = table(recipe.paper)

    def record(self) -> Record:
        own = self.search
        return {
            "results": [one for column in self.columns for one in self._column(column)],
            "spread": dict(zip(COMPARED, self.spread.tolist(), strict=True)),
            "trainings": own.trainings,
            "correlation": own.correlation,
            "common": own.common,
            "dof": own.dof,
            "open": dict(own.open),
        }

    def _column(self, column: str) -> list[Record]:
        theirs = self._printed(column)
        found = [self._result(column, theirs, one) for one in self.candidates]
        whole = [one for one in found if not one["short"]]
        if len(whole) > 1:
            for one, share in zip(whole, shares([one["log_evidence"] for one in whole]), strict=True):
                one["share"] = share
        return sorted(found, key=lambda one: (one["short"], -one["log_evidence"]))

    def _result(self, column: str, theirs: Array, one: _Candidate) -> Record:
        covariance = self._covariance(one)
        lengths = np.arange(_LEAST, one.best.shape[1] + 1)
        ratios = [np.log(theirs / one.expected(length)) for length in lengths]
        logs = np.array([log_density(y.reshape(-1), covariance, self.search.dof) for y in ratios])
        top = float(logs.max())
        weights = np.exp(logs - top) / lengths
        short = self._below(ratios[-1], one)
        at = len(lengths) - 1 if short else int(np.argmax(weights))
        low, high = np.searchsorted(np.cumsum(weights) / weights.sum(), _INSIDE)
        y = ratios[at].reshape(-1)
        expected = one.expected(int(lengths[at]))
        return {
            "column": column, "candidate": one.name, "share": None,
            "rounds": int(lengths[at]), "low": int(lengths[low]), "high": int(lengths[high]),
            "short": short, "end": int(lengths[-1]),
            "log_evidence": top + float(np.log(weights.sum())),
            "p": tail(distance(y, covariance), len(y) - 1, self.search.dof),
            "entries": [
                {
                    "row": row, "quantity": quantity,
                    "expected": float(expected[i, j]), "printed": float(theirs[i, j]),
                }
                for i, row in enumerate(self.rows) for j, quantity in enumerate(COMPARED)
            ],
        }  # fmt: skip

    def _below(self, ratios: Array, one: _Candidate) -> bool:
        errors = self.spread[1] * np.sqrt(1 / self.search.trainings + 1 / one.seeds)
        return bool(ratios[:, 1].mean() > 2 * errors.mean())

    def _covariance(self, one: _Candidate) -> Array:
        """Return (2R, 2R): of the paper's mean and of ours, with what a seed gives to all methods alike."""
        count, share = len(self.rows), self.search.common
        between = np.full((2, 2), self.search.correlation)
        np.fill_diagonal(between, 1.0)
        theirs = np.full(count, 1 / self.search.trainings)
        alike = np.sqrt(np.outer(theirs, theirs)) + np.sqrt(np.outer(1 / one.seeds, 1 / one.seeds))
        methods = share * alike + (1 - share) * np.diag(theirs + 1 / one.seeds)
        return np.asarray(np.kron(methods, between * np.outer(self.spread, self.spread)), dtype=np.float64)

    @cached_property
    def candidates(self) -> list[_Candidate]:
        """One for each column and choice of rows that stand for the compared ones."""
        found = []
        for column, own in self._groups.items():
            for chosen in product(*(own[row].items() for row in self.rows)):
                rows = zip(self.rows, chosen, strict=True)
                several = [label for row, (label, _) in rows if len(own[row]) > 1]
                curves = [[_best_so_far(one) for one in ones] for _, ones in chosen]
                end = min(len(curve) for each in curves for curve in each)
                if end >= _LEAST:
                    best = np.array([np.mean([curve[:end] for curve in each], 0) for each in curves])
                    seeds = np.array([float(len(each)) for each in curves])
                    found.append(_Candidate(", ".join(filter(None, [column, *several])), best, seeds))
        return found

    @cached_property
    def rows(self) -> list[str]:
        """The printed rows that are trained under every candidate's settings."""
        every = list(dict.fromkeys(self.search.printed_row(row) for row in self.recipe.rows))
        return [row for row in every if self._groups and all(row in own for own in self._groups.values())]

    @cached_property
    def _groups(self) -> dict[str, dict[str, dict[str, list[FilledCell]]]]:
        found: dict[str, dict[str, dict[str, list[FilledCell]]]] = {}
        for one in self.filled:
            own = found.setdefault(one.cell.column, {}).setdefault(self.search.printed_row(one.cell.row), {})
            own.setdefault(one.cell.row, []).append(one)
        return found

    @cached_property
    def columns(self) -> list[str]:
        """The printed columns with every compared number."""
        every = dict.fromkeys(column for recipe, _, column, _ in self._table if recipe == self.search.of)
        return [column for column in every if self.rows and np.isfinite(self._printed(column)).all()]

    def _printed(self, column: str) -> Array:
        """Return the printed numbers (R, 2); NaN where one is lost."""
        found = [self._table.get((self.search.of, row, column, q)) for row in self.rows for q in COMPARED]
        numbers = [np.nan if one is None or one.number is None else one.number for one in found]
        return np.array(numbers, dtype=np.float64).reshape(-1, len(COMPARED))

    @cached_property
    def spread(self) -> Array:
        """The relative standard deviation between trainings (2,), pooled over all printed cells."""
        squares: dict[str, list[float]] = {quantity: [] for quantity in COMPARED}
        for (recipe, _, _, quantity), one in self._table.items():
            if recipe == self.search.of and quantity in squares and one.number and one.spread:
                squares[quantity].append((one.spread / one.number) ** 2)
        return np.array([np.sqrt(np.mean(squares[quantity])) for quantity in COMPARED])


def _best_so_far(one: FilledCell) -> Array:
    """Return the best accuracy up to each round, in percent; never 0, which has no logarithm."""
    accuracies = [_FLOOR if done.accuracy is None else 100 * done.accuracy for done in one.metrics]
    return np.fmax.accumulate(np.fmax(accuracies, _FLOOR))
