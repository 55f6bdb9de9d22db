"""Sharpness of one checkpoint: the record of ``fedscope sharpness --json``, ``fedscope/sharpness/1``.

And how it goes with generalisation over several, ``fedscope/sharpness-correlation/1``.
"""

import math
from typing import Literal

from pydantic import Field

from fedscope.choices import Against
from fedscope.records.estimates import Entry, Errors
from fedscope.records.hessian_record import CheckpointEntry, Compared, ProblemEntry
from fedscope.records.number_types import Count, Freedom, Interval, Many, Number
from fedscope.validation import Plain

SHARPNESS_SCHEMA = "fedscope/sharpness/1"
CORRELATION_SCHEMA = "fedscope/sharpness-correlation/1"


class SharpnessEntry(Entry):
    """One quantity, on these samples, with both errors and what it cost."""

    name: str  # as ``--only`` takes it
    settings: dict[str, str | int | float | bool] = Field(default_factory=dict)  # what it was measured with
    stderr_draws: Number  # standard error over the random draws; 0: nothing is drawn
    dof_draws: Freedom = math.inf  # degrees of freedom of ``stderr_draws``
    stderr_data: Number  # standard error over the samples, by batches or one by one
    dof_data: Number = math.nan  # degrees of freedom of ``stderr_data``
    interval: Interval | None = None  # 95 %, on these samples: the draws' error alone
    population_interval: Interval | None = None  # 95 %, of the population's value: both errors
    draws: Many[Number] = ()  # the value by each independent draw
    batches: Many[Number] = ()  # the value of each batch
    batch_sizes: Many[Count] = ()  # of these [samples]
    forwards: Count = 0  # evaluations of the loss [passes over all samples]
    gradients: Count = 0  # evaluations with a gradient [passes over all samples]
    products: Count = 0  # Hessian–vector products or directional derivatives [passes over all samples]
    seconds: float = 0.0  # wall time [s]
    non_finite: Count = 0  # numbers that are null because they were not finite

    @property
    def stated_errors(self) -> Errors:
        return (self.stderr_draws, self.dof_draws), (self.stderr_data, self.dof_data)


class GeneralizationGap(Plain):
    """Loss and accuracy on the samples that sharpness is of, and on as many of the test split."""

    train_loss: Number  # mean loss of the samples
    test_loss: Number  # mean loss of the test samples
    train_accuracy: Number  # share of the samples that are classified right; NaN where there are no classes
    test_accuracy: Number  # of the test samples
    train_samples: Count  # [samples]
    test_samples: Count  # [samples]
    loss: Number  # ``test_loss`` − ``train_loss``
    stderr: Number  # standard error of ``loss`` over both draws of samples
    dof: Freedom = math.inf  # degrees of freedom of ``stderr``
    accuracy: Number  # ``train_accuracy`` − ``test_accuracy``

    def against(self, which: Against) -> float:
        """Return the gap of the loss, or that of the accuracy."""
        return self.loss if which == "gap" else self.accuracy


class SharpnessRecord(Plain):
    """What was measured of one checkpoint."""

    schema_name: Literal["fedscope/sharpness/1"] = Field(alias="schema")  # name and version of this format
    checkpoint: CheckpointEntry  # which weights were measured
    problem: ProblemEntry  # on which samples
    samples_sha256: str | None = None  # of inputs and targets
    quantities: Many[SharpnessEntry] = ()  # in the order that was asked for
    gap: GeneralizationGap | None = None  # None: not asked for (``--against``)
    seconds: float = 0.0  # wall time of all [s]
    versions: dict[str, str] = Field(default_factory=dict)  # of fedscope and the packages that computed
    reused: bool = False  # whether all was found in the registry
    differences: Many[Compared] = ()  # to the first of several records that are printed together

    def quantity(self, name: str) -> SharpnessEntry | None:
        """Return the quantity of this name, if it was measured."""
        return next((one for one in self.quantities if one.name == name), None)


class Correlation(Plain):
    """Kendall's τ of a quantity with the gap, over checkpoints."""

    name: str  # of the quantity
    tau: Number  # between −1 and 1: the share of concordant pairs less that of discordant ones
    interval: Interval | None  # 95 %, see :mod:`fedscope.statistics.kendall`
    p: Number  # of independence, two-sided, by the exact permutation test
    joint_p: Number = math.nan  # ``p`` adjusted for the other quantities (Holm 1979)
    count: Count  # checkpoints that have both [checkpoints]


class CorrelationRecord(Plain):
    """Sharpness against generalisation, over several checkpoints."""

    schema_name: Literal["fedscope/sharpness-correlation/1"] = Field(alias="schema")  # name and version
    against: Against  # the gap of the loss, or that of the accuracy
    correlations: Many[Correlation]  # one for each quantity
    records: Many[SharpnessRecord]  # that they are of
