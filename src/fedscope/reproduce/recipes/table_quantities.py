"""The quantities of a table: each one's name, unit, and the source of its value and error.

Accuracies are in percent, with the binomial standard error of the test samples; measurements of the weights
have the error of their own record, over samples and probes together.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import methodcaller
from typing import Any

from scipy.special import stdtrit

from fedscope.checkpoints.file.schema import Round
from fedscope.checkpoints.file.settings import Settings
from fedscope.federated.server.run_summary import summary
from fedscope.figures.text.sharpness_tables import GAPS, SYMBOLS
from fedscope.records.client_quantities import CLIENT_QUANTITIES
from fedscope.records.clients_record import Amount
from fedscope.records.estimates import Eigenvalue, Entry, EstimateEntry
from fedscope.records.hessian_record import HessianRecord
from fedscope.records.number_types import or_null
from fedscope.records.quantities import LAMBDA_MAX, OVER_PAIRS, TRACE
from fedscope.records.saved_records import Kept
from fedscope.records.sharpness_record import SharpnessEntry, SharpnessRecord
from fedscope.reproduce.recipes.measures import Model
from fedscope.statistics.resolution import UNRESOLVED

SHARPNESS = "sharpness"  # the measure's name
FIFTH = 5  # of λ₁/λ₅ (Caldarola et al. 2022)


@dataclass(frozen=True)
class Number:
    """A value, its standard error (None: not known) and the error's degrees of freedom.

    ``text`` replaces a missing value, such as ``500+``.
    """

    value: float | None
    error: float | None = None
    dof: float = math.inf
    text: str = ""


@dataclass(frozen=True)
class TableQuantity:
    """One column of a table."""

    name: str
    title: str
    measure: str | None = None  # the recipe's measure that it is read from; None: the run's metrics
    entry: Callable[[Any], Entry | None] | None = None  # in the measure's record
    static: bool = False  # of the published network and method, without a run
    number: Callable[[Any], Number] | None = None  # of the record, where no one entry has it
    drawn: bool = False  # shown as a figure, not as a number
    outcomes: Model | None = None  # the model whose answers on the test samples pair it with another run's


def mean(numbers: Sequence[Number]) -> tuple[float, float | None, float]:
    """Return the mean over seeds, its standard error and the error's degrees of freedom."""
    values = [float(number.value) for number in numbers if number.value is not None]
    average = sum(values) / len(values)
    if len(values) == 1:
        return average, numbers[0].error, numbers[0].dof
    return average, spread(values) / math.sqrt(len(values)), len(values) - 1


def spread(values: Sequence[float]) -> float:
    average = sum(values) / len(values)
    return math.sqrt(sum((value - average) ** 2 for value in values) / (len(values) - 1))


_MEANS = {one.name: one.compared for one in OVER_PAIRS}


def _sum(record: HessianRecord) -> Number:
    """Return the sum of the top eigenvalues, less the upward bias that they have on few samples.

    Their data errors, which are not independent, are added.
    """
    total = sum(one.value for one in record.eigenvalues)
    if math.isnan(total):
        return Number(None, text="not finite")
    bias = sum(one.bias_data for one in record.eigenvalues if not math.isnan(one.bias_data))
    error = sum(one.stderr_data for one in record.eigenvalues)
    dof = min((freedom for one in record.eigenvalues for _, freedom in one.errors), default=math.inf)
    return Number(total - bias, None if math.isnan(error) else error, dof)


def _fifth(record: HessianRecord) -> Eigenvalue | None:
    return record.eigenvalues[FIFTH - 1] if len(record.eigenvalues) >= FIFTH else None


def _ratio(record: HessianRecord) -> Number:
    """Return λ₁/λ₅; the relative data errors of the two, which are not independent, are added."""
    first, fifth = record.lambda_max, _fifth(record)
    if fifth is None:
        return Number(None, text="–")
    if math.isnan(first.value + fifth.value) or not fifth.value:
        return Number(None, text="not finite")
    ratio = first.value / fifth.value
    if not first.value:
        return Number(0.0)
    error = first.stderr_data / abs(first.value) + fifth.stderr_data / abs(fifth.value)
    dof = min((freedom for one in (first, fifth) for _, freedom in one.errors), default=math.inf)
    return Number(ratio, None if math.isnan(error) else abs(ratio) * error, dof)


def _generalisation(record: SharpnessRecord) -> EstimateEntry | None:
    if record.gap is None:
        return None
    found = record.gap
    numbers = {"value": found.loss, "stderr": found.stderr, "dof": found.dof}
    known = {name: or_null(number) for name, number in numbers.items()}
    return EstimateEntry.read({**known, "resolved": True})


def _train_loss(record: SharpnessRecord) -> EstimateEntry | None:
    """Return the loss of the training samples as they are, without an error."""
    gap = record.gap
    return None if gap is None else EstimateEntry(value=gap.train_loss, stderr=0.0, resolved=True)


_ALL = (
    TableQuantity("accuracy", "accuracy (%)", outcomes="reported"),
    TableQuantity("best_accuracy", "best accuracy (%)", outcomes="best"),
    TableQuantity("best_half_accuracy", "best accuracy by T/2 (%)"),
    TableQuantity("rounds_to_target", "rounds to target"),
    TableQuantity("shift_accuracy", "accuracy under shift (%)"),
    TableQuantity("seconds_per_round", "seconds per round"),
    TableQuantity("macs", "MACs (10⁶)", static=True),
    TableQuantity("macs_e8", "MACs (10⁸)", static=True),
    TableQuantity("parameters", "parameters held (10⁶)", static=True),
    TableQuantity("lambda_max", "λ_max", "curvature", LAMBDA_MAX.of),
    TableQuantity("trace", "trace", "curvature", TRACE.of),
    TableQuantity("lambda_5", "λ₅", "curvature", _fifth),
    TableQuantity("lambda_ratio", "λ₁/λ₅", "curvature", number=_ratio),
    TableQuantity("H_N", "H_N, diagonals", "clients", _MEANS["H_N_parameter"]),
    TableQuantity("H_D", "H_D, diagonals", "clients", _MEANS["H_D_parameter"]),
    TableQuantity("H_N_tensor", "H_N, block traces", "clients", _MEANS["H_N_tensor"]),
    TableQuantity("H_D_tensor", "H_D, block traces", "clients", _MEANS["H_D_tensor"]),
    TableQuantity("lambda_max_code", "λ_max, published code", "published", LAMBDA_MAX.of),
    TableQuantity("trace_code", "trace, published code", "published", TRACE.of),
    TableQuantity("lambda_ratio_code", "λ₁/λ₅, published code", "published", number=_ratio),
    TableQuantity("H_N_code", "H_N, published code", "published", _MEANS["H_N_tensor"]),
    TableQuantity("H_D_code", "H_D, published code", "published", _MEANS["H_D_tensor"]),
    *(TableQuantity(*one.recipe, "one_round", one.of) for one in CLIENT_QUANTITIES if one.recipe),
    TableQuantity("train_loss", "training loss", SHARPNESS, _train_loss),
    TableQuantity("generalisation_gap", GAPS["gap"], SHARPNESS, _generalisation),
    *(
        TableQuantity(f"{SHARPNESS}_{name}", symbol, SHARPNESS, methodcaller("quantity", name))
        for name, symbol in SYMBOLS.items()
    ),
    TableQuantity("curve", "accuracy by round", drawn=True),
    TableQuantity("spectrum", "top eigenvalues", "spectrum", number=_sum, drawn=True),
    TableQuantity("density", "eigenvalue density", "density", drawn=True),
    TableQuantity("landscape", "landscape", "landscape", drawn=True),
    TableQuantity("objective", "surfaces of the objective", "objective", drawn=True),
)
QUANTITIES: Mapping[str, TableQuantity] = {quantity.name: quantity for quantity in _ALL}


def from_metrics(name: str, settings: Settings, metrics: Sequence[Round], tested: int | None) -> Number:
    """Return a quantity of a run's rounds; ``tested`` is the number of test samples.

    A mean over domains, which are not of one size, has no error by that number.
    """
    if name == "seconds_per_round":
        return Number(*mean([Number(m.seconds) for m in metrics]))
    found = summary(settings, metrics)
    if name == "rounds_to_target":
        reached = found.rounds_to_target
        return Number(None, text=f"{len(metrics)}+") if reached is None else Number(float(reached))
    share: float | None = getattr(found, name)
    if share is None:
        return Number(None, text="–")
    pooled = not any(one.domains for one in metrics[-1:])
    error = math.sqrt(share * (1 - share) / tested) if tested and pooled else None
    return Number(100 * share, None if error is None else 100 * error)


def from_record(name: str, record: Kept) -> Number:
    number, read = QUANTITIES[name].number, QUANTITIES[name].entry
    if number:
        return number(record)
    entry = read(record) if read else None
    if entry is None:
        return Number(None, text="–")
    if not entry.is_resolved:
        return Number(None, text=UNRESOLVED)
    if math.isnan(entry.value):
        return Number(None, text="not finite")
    if isinstance(entry, Amount) and entry.interval:
        return _without_bias(entry, entry.interval)
    if not entry.error or (isinstance(entry, SharpnessEntry) and math.isnan(entry.stderr_data)):
        return Number(entry.value)
    error, dof = entry.error
    return Number(entry.value, error if math.isfinite(error) else None, dof)


def _without_bias(entry: Amount, interval: tuple[float, ...]) -> Number:
    low, high = interval
    error = (high - low) / 2 / float(stdtrit(entry.dof, 0.975)) if entry.dof > 0 else math.nan
    return Number(entry.value - entry.bias, error if math.isfinite(error) else None, entry.dof)
