"""What the authors of a table may have measured: the entry ``readings`` of an artefact."""

import math

from fedscope.records.number_types import Count, Many, Number
from fedscope.validation import Plain


class ReadingCell(Plain):
    """A measured quantity of a method under a reading, beside the printed one."""

    row: str  # label of the method
    quantity: str  # its name
    measured: float  # geometric mean over draws and seeds
    round: Count  # that it was measured at [rounds]
    growth: float  # from that round to the last; 1 at the last
    expected: float  # at the last round, with weight decay where the reading has it
    printed: float  # in the paper

    @property
    def ratio(self) -> float:
        """What is expected, relative to what is printed."""
        return self.expected / self.printed


class ReadingResult(Plain):
    """One reading against all printed numbers."""

    name: str  # of the reading
    settings: dict[str, str]  # by axis
    draws: Count  # of samples
    entries: Many[ReadingCell]  # a number each
    sampling_spread: dict[str, float]  # of one draw, by quantity; of logarithms
    log_likelihood: float  # relative to the best reading's
    share: float  # posterior, under equal priors
    factors: dict[str, float]  # printed over expected, the best common one by quantity
    ratios_only: float  # log-likelihood after these factors, relative to the best reading's
    residual: float  # root mean square of the log-ratios after these factors
    p: float  # of numbers that fit no better, if the reading is right


class AxisShare(Plain):
    """The share of all readings with one setting, and the best of them."""

    axis: str  # what the setting is of
    value: str  # the setting
    readings: Count  # that have it
    share: float  # of the likelihood of all readings


class Sensitivity(Plain):
    """The best reading under other errors."""

    change: str  # of the stated errors
    best: str  # the best reading then
    share: float  # its share then
    usual: float  # the share there of the reading that is best as stated
    split: Number = math.nan  # and of all readings of its split; NaN of an older record


class ReadingsResult(Plain):
    """What the authors of a table may have measured, by likelihood."""

    results: Many[ReadingResult]  # the most likely first
    axes: Many[AxisShare]  # shares by setting
    sensitivities: Many[Sensitivity]  # to the stated errors
    training_spread: dict[str, float]  # between trainings, by quantity; of logarithms
    spread_source: str  # where that is from
    growth_spread: float  # of the growth; of logarithms
    correlation: float  # of λ_max and trace of one method
    common: dict[str, float]  # share of the samples' variance that all rows have in common, by quantity
    dof: float | None  # degrees of freedom; None: infinite
    growth: dict[str, float]  # of the base reading, by quantity
    grown_on: Many[str]  # the runs that it was measured on
    incomplete: Many[str]  # readings that some method was not measured under
    open: dict[str, str]  # settings that were not measured, and why
