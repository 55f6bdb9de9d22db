"""Readings of a printed table: each is one way in which its authors may have measured it.

``recipe.toml`` names them as combinations of settings:

    of        the recipe whose printed numbers are explained
    base      the fields of a :class:`Reading` that the others change
    combine   tables of field → value or list of values; each table stands for all combinations of its lists
    open      settings that were not measured, and why

and a :class:`Likelihood`, the errors with which printed and measured numbers are compared.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import product
from typing import Any, Literal

from fedscope.choices import SplitName
from fedscope.reproduce.recipes.measures import Measure, Model

Estimator = Literal["lanczos", "pyhessian", "published"]
AXES = ("split", "model", "samples", "estimator", "augment", "term", "weight_decay")
_MODELS: Mapping[Model, str] = {
    "server": "the server's model", "reported": "the mean of all clients", "best": "the best round's model",
}  # fmt: skip
_SHORT: Mapping[Model, str] = {"server": "server", "reported": "all clients", "best": "best round"}
_ESTIMATORS: Mapping[Estimator, str] = {
    "lanczos": "", "pyhessian": "PyHessian", "published": "new batches",
}  # fmt: skip


@dataclass(frozen=True)
class Reading:
    """One combination of settings."""

    split: SplitName = "train"
    model: Model = "server"
    samples: int | None = None  # None: all; of estimator published the batch, a new one in each product
    estimator: Estimator = "lanczos"
    augment: bool = False
    term: bool = False  # MAN's term in the loss of the methods that have it
    weight_decay: bool = False  # in the loss
    draws: int = 1  # of the samples; their logarithms are averaged

    @property
    def name(self) -> str:
        """The settings in a few words; what is usual is left out."""
        amount = "all samples" if self.samples is None else f"{self.samples:,} samples"
        words = [f"{self.split}, {_SHORT[self.model]}, {amount}", _ESTIMATORS[self.estimator]]
        words += ["augmented"] * self.augment + ["with MAN's term"] * self.term
        words += ["with weight decay"] * self.weight_decay
        return ", ".join(filter(None, words))

    def value(self, axis: str) -> str:
        """Return the setting on one of :data:`AXES`, in words."""
        if axis == "model":
            return _MODELS[self.model]
        if axis == "estimator":
            return _ESTIMATORS[self.estimator] or "Lanczos and Hutchinson"
        value = getattr(self, axis)
        if axis == "samples":
            return "all" if value is None else f"{value:,}"
        return str(value) if axis == "split" else ("yes" if value else "no")

    def measures(self, template: Measure, method: str) -> tuple[Measure, ...]:
        """Return the measurement of each draw for a method.

        Weight decay needs none of its own, and a method without MAN has no term.
        """
        term = self.term and "man" in method.split("+")
        wanted = replace(template, model=self.model, samples=self.samples)
        if self.estimator == "published":  # its loader draws from the training data, augmented
            wanted = Measure(
                "hessian", model=self.model, batch_size=self.samples, reading="code", product_batches=1
            )
            return (wanted,)
        if self.estimator == "pyhessian":
            wanted = Measure("hessian", model=self.model, samples=self.samples, engine="pyhessian")
        wanted = replace(wanted, split=self.split, augment=self.augment, term=term)
        return tuple(replace(wanted, draw=draw) for draw in range(self.draws))

    @property
    def at_server(self) -> "Reading":
        """The same reading of the server's model: rounds before the last are kept of this one alone."""
        return replace(self, model="server")


@dataclass(frozen=True)
class Likelihood:
    """The errors of a comparison; all are of natural logarithms, so 0.05 is 5 %."""

    training_spread: Mapping[str, float]  # of each quantity, between two trainings of one method
    growth_spread: float  # between methods, of the growth from an early round to the last
    correlation: float  # between the quantities of one method
    common: Mapping[str, float]  # of each quantity, the share of the samples' variance common to all methods
    dof: float  # of Student's t: how little the spreads are known; infinite: a normal distribution


@dataclass(frozen=True)
class Readings:
    """All readings of a recipe."""

    of: str
    likelihood: Likelihood
    base: Reading
    every: tuple[Reading, ...]
    open: Mapping[str, str] = field(default_factory=dict)
    doubtful: tuple[str, ...] = ()  # rows whose printed numbers may be a slip

    @classmethod
    def from_table(cls, table: Mapping[str, Any], likelihood: Mapping[str, Any]) -> "Readings":
        """Return the readings that a recipe describes, each once, in their order."""
        base = replace(Reading(), **table["base"])
        found = [one for entry in table["combine"] for one in _combined(base, entry)]
        every, doubtful = tuple(dict.fromkeys(found)), tuple(table.get("doubtful", ()))
        return cls(table["of"], Likelihood(**likelihood), base, every, table.get("open", {}), doubtful)

    def measures(self, template: Measure, method: str, *, server_only: bool) -> dict[str, Measure]:
        """Return what is measured of a method's model, by a name of its own."""
        return {
            label(wanted): wanted
            for reading in self.every
            if reading.model == "server" or not server_only
            for wanted in reading.measures(template, method)
        }


def label(wanted: Measure) -> str:
    """Return a name of a measure among those of a cell."""
    words = [wanted.split, wanted.model or "", str(wanted.samples or wanted.batch_size or "all")]
    words += [wanted.engine] * (wanted.engine != "fedscope") + ["published"] * (wanted.reading == "code")
    words += ["augmented"] * wanted.augment + ["term"] * wanted.term
    return " ".join([*words, f"draw {wanted.draw}"])


def _combined(base: Reading, entry: Mapping[str, Any]) -> list[Reading]:
    unknown = set(entry) - {one.name for one in fields(Reading)}
    if unknown:
        raise ValueError(f"a reading has no {', '.join(sorted(unknown))}")
    lists: list[Sequence[Any]] = [value if isinstance(value, list) else [value] for value in entry.values()]
    lists = [[None if value == "all" else value for value in values] for values in lists]
    return [replace(base, **dict(zip(entry, values, strict=True))) for values in product(*lists)]
