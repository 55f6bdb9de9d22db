"""What several sharpness records say together: paired differences, and correlation with the gap.

Checkpoints measured on the same samples by the same seed share batches and draws, so that the error of a
difference is that of the differences themselves. Built from records; nothing is computed again.
"""

import math
from collections.abc import Sequence

from fedscope.choices import Against
from fedscope.errors import UserError
from fedscope.records.differences import EXACT, Difference, probes_error, with_differences
from fedscope.records.number_types import or_null
from fedscope.records.sharpness_record import (
    CORRELATION_SCHEMA,
    Correlation,
    CorrelationRecord,
    SharpnessEntry,
    SharpnessRecord,
)
from fedscope.statistics.adjusted_p import holm
from fedscope.statistics.kendall import kendall_tau
from fedscope.statistics.standard_errors import (
    combined,
    data_stderr,
    drawn_stderr,
    finite_population,
    interval,
)

LEAST = 4  # checkpoints: of 3 the smallest p-value is 1/3


def differences(reference: SharpnessRecord, other: SharpnessRecord) -> list[Difference]:
    """Return the quantities that two records have in common with the same settings, as paired differences."""
    if reference.samples_sha256 != other.samples_sha256:
        raise UserError("the two were not measured on the same samples: there is no paired difference")
    population = reference.problem.population or other.problem.population
    finite = finite_population(reference.problem.samples, population)
    found = []
    for mine in reference.quantities:
        yours = other.quantity(mine.name)
        if yours and yours.settings == mine.settings and not math.isnan(yours.value - mine.value):
            # the worst case in batches of m samples depends on which share a batch, too
            found.append(_difference(mine, yours, 1.0 if "m" in mine.settings else finite))
    return found


def _difference(mine: SharpnessEntry, yours: SharpnessEntry, finite: float) -> Difference:
    import torch

    draws = [torch.tensor(one.draws, dtype=torch.float64) for one in (mine, yours)]
    probe = probes_error(draws[0], draws[1])
    if probe == EXACT and (mine.stderr_draws or yours.stderr_draws):
        probe = combined((mine.stderr_draws, mine.dof_draws), (yours.stderr_draws, yours.dof_draws))
    gap = torch.tensor(yours.batches, dtype=torch.float64)
    if mine.batch_sizes and mine.batch_sizes == yours.batch_sizes and len(mine.batches) == len(gap):
        gap -= torch.tensor(mine.batches, dtype=torch.float64)
        data = drawn_stderr(data_stderr(gap, mine.batch_sizes), finite), len(gap) - 1.0
    else:
        data = math.nan, 0.0
    if mine.name == "lambda_max" and mine.population_interval and yours.population_interval:
        centers, bounds = zip(*map(_without_bias, (mine, yours)), strict=True)
        return Difference(mine.name, centers[1] - centers[0], probe, data, sum(bounds))
    return Difference(mine.name, yours.value - mine.value, probe, data)


def _without_bias(one: SharpnessEntry) -> tuple[float, float]:
    """Return λ_max without the bias of few samples, and what its interval has beyond the samples' error."""
    low, high = one.population_interval or (math.nan, math.nan)
    _, end = interval(0.0, one.stderr_data, one.dof_data)
    return (low + high) / 2, max(0.0, (high - low) / 2 - end)


def compared(records: Sequence[SharpnessRecord]) -> list[SharpnessRecord]:
    """Return the records, each after the first with its ``differences`` to it, judged together by Holm."""
    return with_differences(records, differences)


def correlated(records: Sequence[SharpnessRecord], against: Against) -> CorrelationRecord:
    """Return Kendall's τ of every quantity with the gap."""
    if len(records) < LEAST:
        raise UserError(
            f"a correlation needs at least {LEAST} checkpoints, not {len(records)}; name more runs"
        )
    gaps = [record.gap.against(against) if record.gap else math.nan for record in records]
    if all(map(math.isnan, gaps)):
        raise UserError("no checkpoint has a generalisation gap: it is of runs, between their two splits")
    names = list(dict.fromkeys(one.name for record in records for one in record.quantities))
    found = [_correlation(name, records, gaps) for name in names]
    adjusted = holm([one.p for one in found])
    return CorrelationRecord.read(
        {
            "schema": CORRELATION_SCHEMA,
            "against": against,
            "correlations": [
                {**one.to_json(), "joint_p": or_null(joint)}
                for one, joint in zip(found, adjusted, strict=True)
            ],
            "records": [record.to_json() for record in records],
        }
    )


def _correlation(name: str, records: Sequence[SharpnessRecord], gaps: Sequence[float]) -> Correlation:
    found = [(record.quantity(name), gap) for record, gap in zip(records, gaps, strict=True)]
    pairs = [(one.value, gap) for one, gap in found if one and not math.isnan(one.value + gap)]
    tau = kendall_tau([value for value, _ in pairs], [gap for _, gap in pairs])
    low, high = tau.interval
    return Correlation.read(
        {
            "name": name,
            "tau": or_null(tau.value),
            "interval": None if math.isnan(low) else [low, high],
            "p": or_null(tau.p),
            "count": tau.count,
        }
    )
