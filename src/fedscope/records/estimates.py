"""The entries of records that hold a number and its errors."""

import math
from typing import Literal

from fedscope.records.number_types import Freedom, Interval, Many, Number
from fedscope.statistics.resolution import RANGES, is_resolved
from fedscope.validation import Plain

Symbol = Literal["H_N", "H_D"]
SYMBOLS: tuple[Symbol, ...] = ("H_N", "H_D")
MeanSymbol = Literal["H_N", "H_N_scale_free", "H_D"]  # of what is averaged over pairs
Errors = tuple[tuple[float, float], ...]  # known standard errors, each with its degrees of freedom


class Entry(Plain):
    """A value with standard errors."""

    value: Number  # the value; of a curvature in [loss/w²]

    @property
    def errors(self) -> Errors:
        """The standard errors that are known."""
        raise NotImplementedError

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
    def errors(self) -> Errors:
        """The standard error over the samples, where it is known."""
        freedom = freedom_of(self.batches) if math.isnan(self.dof_data) else self.dof_data
        return known((self.stderr_data, freedom))


class EstimateEntry(Entry):
    """A value and its standard error over probes."""

    stderr: Number  # standard error over probes, in the unit of the value
    interval: Interval | None = None  # 95 %, cut to the range of the quantity
    resolved: bool | None = None  # whether value and interval say anything; None: not stated
    dof: Freedom = math.inf  # degrees of freedom of ``stderr``

    @property
    def errors(self) -> Errors:
        """The standard error, where it is known."""
        return known((self.stderr, self.dof))

    def resolves(self, symbol: MeanSymbol) -> bool:
        """Say whether this is a resolved mean over pairs.

        Where that is not stated, one at an end of its range with an error was beyond it, and cut.
        """
        if self.resolved is not None:
            return self.resolved
        low, high = RANGES[symbol]
        was_cut = self.value in (low, high) and self.stderr > 0
        return not was_cut and is_resolved(self.value, self.interval, low, high)


def freedom_of(parts: tuple[float, ...] | None) -> float:
    """Return the degrees of freedom of an error from the spread of ``parts``; infinity if there are none."""
    return float(len(parts) - 1) if parts else math.inf


def known(*errors: tuple[float, float]) -> Errors:
    """Return the pairs of a standard error and its degrees of freedom whose error is not NaN."""
    return tuple(pair for pair in errors if not math.isnan(pair[0]))
