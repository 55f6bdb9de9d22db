"""The entries of records that hold a number and its errors."""

import math
from typing import Literal

from fedscope.records.number_types import Freedom, Interval, Many, Number
from fedscope.validation import Plain

Symbol = Literal["H_N", "H_D"]
SYMBOLS: tuple[Symbol, ...] = ("H_N", "H_D")
MeanSymbol = Literal["H_N", "H_N_scale_free", "H_D"]  # of what is averaged over pairs
Errors = tuple[tuple[float, float], ...]  # standard errors, each with its degrees of freedom


class Entry(Plain):
    """A value with standard errors."""

    value: Number  # the value; of a curvature in [loss/w²]

    @property
    def stated_errors(self) -> Errors:
        """The standard errors as tables print them; NaN where one is not known."""
        raise NotImplementedError

    @property
    def errors(self) -> Errors:
        """The standard errors that are known."""
        return tuple(pair for pair in self.stated_errors if not math.isnan(pair[0]))

    @property
    def within(self) -> float:
        """How far the value may be off beside its errors."""
        return 0.0

    @property
    def is_resolved(self) -> bool:
        """Whether value and interval say anything of a quantity with a range."""
        return getattr(self, "resolved", True)

    @property
    def error(self) -> tuple[float, float] | None:
        """The standard error of all errors together and its degrees of freedom; None where none is known."""
        from fedscope.statistics.standard_errors import combined  # torch: not for a table

        errors = self.errors
        return errors[0] if len(errors) == 1 else combined(*errors) if errors else None


class Eigenvalue(Entry):
    """An eigenvalue, its residual ‖Hv − λv‖, and its error over the samples."""

    residual: Number  # ‖Hv − λv‖ of the unit vector v: an eigenvalue lies within it [loss/w²]
    stderr_data: Number  # standard error over the samples [loss/w²]
    # by which it is too high on so few samples; NaN: not known [loss/w²]
    bias_data: Number = math.nan
    stderr_bias: Number = 0.0  # standard error of ``bias_data`` [loss/w²]
    dof_data: Number = math.nan  # degrees of freedom of ``stderr_data``; NaN: not known
    interval: Interval | None = None  # 95 %, of the population's value: without the bias [loss/w²]
    certified: bool | None = None  # known to be the i-th; None: not stated
    # how many samples carry it; NaN where their parts are not known [samples]
    effective_samples: Number = math.nan
    batches: Many[Number] | None = None  # its part from each batch, vᵀH_b v [loss/w²]
    by_sample: Many[Number] | None = None  # the first eigenvalue's part from each sample, vᵀH_i v [loss/w²]

    @property
    def stated_errors(self) -> Errors:
        freedom = freedom_of(self.batches) if math.isnan(self.dof_data) else self.dof_data
        return ((self.stderr_data, freedom),)

    @property
    def within(self) -> float:
        return self.residual


class EstimateEntry(Entry):
    """A value and its standard error over probes."""

    stderr: Number  # standard error over probes, in the unit of the value
    interval: Interval | None = None  # 95 %, cut to the range of the quantity
    resolved: bool | None = None  # whether value and interval say anything; None: if there is a value
    dof: Freedom = math.inf  # degrees of freedom of ``stderr``

    @property
    def stated_errors(self) -> Errors:
        return ((self.stderr, self.dof),)

    @property
    def is_resolved(self) -> bool:
        return not math.isnan(self.value) if self.resolved is None else self.resolved


def freedom_of(parts: tuple[float, ...] | None) -> float:
    """Return the degrees of freedom of an error from the spread of ``parts``; infinity if there are none."""
    return float(len(parts) - 1) if parts else math.inf
