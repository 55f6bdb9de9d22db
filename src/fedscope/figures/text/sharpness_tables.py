"""Tables of sharpness: the quantities of each checkpoint, their differences, and how they go with the gap."""

import math
from collections.abc import Mapping, Sequence

from fedscope.choices import Against
from fedscope.errors import UserError
from fedscope.figures.digits import ABSENT, format_entry, format_estimate
from fedscope.figures.text.comparison_table import UNDECIDED, stated
from fedscope.figures.text.hessian_table import NO_ERROR, Table, departures
from fedscope.figures.text.labels import in_subspace, label
from fedscope.records.sharpness_record import Correlation, GeneralizationGap, SharpnessEntry, SharpnessRecord

SYMBOLS: Mapping[str, str] = {
    "sam": "SAM step",
    "worst_l2": "worst ℓ₂",
    "worst_linf": "worst ℓ∞",
    "adaptive_worst_l2": "adaptive worst ℓ₂",
    "adaptive_worst_linf": "adaptive worst ℓ∞",
    "average_l2": "average ℓ₂",
    "average_linf": "average ℓ∞",
    "adaptive_average_l2": "adaptive average ℓ₂",
    "adaptive_average_linf": "adaptive average ℓ∞",
    "low_pass": "low-pass loss",
    "pac_bayes": "PAC-Bayes σ",
    "adaptive_pac_bayes": "adaptive PAC-Bayes σ",
    "fisher_rao": "Fisher–Rao",
    "fisher_rao_empirical": "empirical Fisher–Rao",
    "relative_flatness": "κ_Tr",
    "relative_flatness_max": "κ_max",
    "lambda_max": "λ_max",
    "trace": "trace",
    "block_distance": "block distance",
}
"""Each quantity as it is printed, by the name that ``--only`` takes."""
GAPS: Mapping[str, str] = {
    "gap": "test loss − training loss",
    "accuracy": "training accuracy − test accuracy",
}
UNBOUNDED = "unbounded"
UNBOUNDED_NOTE = f"{UNBOUNDED}: no noise, however large, costs the target of the accuracy"
NO_ERROR_NOTE = (
    f"{NO_ERROR}: an error that is not known; over the samples it takes two batches or more, of a worst case "
    "each of --m samples (a smaller --m, or more --samples), and a loss that is a mean over its samples"
)
_SHOWN = {"rho": "ρ", "m": "m", "target": "target", "layer": "layer"}  # settings beside a name


def sharpness_table(records: Sequence[SharpnessRecord]) -> Table:
    if not records:
        raise UserError("there is no record: make one with 'fedscope sharpness --json FILE'")
    single = len(records) == 1
    columns = ["quantity", "with", *(label(record.checkpoint) for record in records)]
    names = list(dict.fromkeys(one.name for record in records for one in record.quantities))
    rows = []
    for name in names:
        own = [record.quantity(name) for record in records]
        first = next(one for one in own if one)
        cells = [SYMBOLS.get(name, name), _settings(first), *map(_cell, own)]
        rows.append((*cells, _cost(first), f"{first.seconds:.2g}") if single else tuple(cells))
    blank = (ABSENT, ABSENT) if single else ()
    rows += [(*row, *blank) for row in _gap_rows([record.gap for record in records])]
    problem = records[0].problem
    return Table(
        "Sharpness",
        (*columns, *(["passes", "seconds"] if single else [])),
        tuple(rows),
        (
            *departures(record.problem for record in records),
            "± standard error over the draws ± over the samples; 0 where nothing is drawn",
            f"{problem.samples:,} samples, seed {problem.seed}; worst cases are lower bounds, by a search"
            f"{in_subspace(records)}",
            *([UNBOUNDED_NOTE] if any(UNBOUNDED in row for row in rows) else []),
            *([NO_ERROR_NOTE] if any(NO_ERROR in cell for row in rows for cell in row) else []),
        ),
    )


def _gap_rows(gaps: Sequence[GeneralizationGap | None]) -> list[tuple[str, ...]]:
    if not any(gaps):
        return []
    losses = [format_estimate(gap.loss, gap.stderr) if gap else ABSENT for gap in gaps]
    drops = [f"{gap.accuracy:.2%}" if gap and math.isfinite(gap.accuracy) else ABSENT for gap in gaps]
    return [(GAPS["gap"], "", *losses), (GAPS["accuracy"], "", *drops)]


def _settings(one: SharpnessEntry) -> str:
    found = [f"{symbol} {one.settings[name]}" for name, symbol in _SHOWN.items() if name in one.settings]
    if one.settings.get("normalize_logits"):
        found.append("normalised logits")
    return ", ".join(found)


def _cell(one: SharpnessEntry | None) -> str:
    return UNBOUNDED if one and _is_unbounded(one) else format_entry(one)


def _is_unbounded(one: SharpnessEntry) -> bool:
    """Say whether no noise that was tried costs the target: σ is finite or infinite, which is null."""
    return one.name in ("pac_bayes", "adaptive_pac_bayes") and math.isnan(one.value)


def _cost(one: SharpnessEntry) -> str:
    counts = ((one.forwards, "forward"), (one.gradients, "gradient"), (one.products, "product"))
    return ", ".join(f"{count} {kind}{'s' * (count != 1)}" for count, kind in counts if count) or ABSENT


def differences_table(records: Sequence[SharpnessRecord]) -> Table | None:
    others = [record for record in records[1:] if record.differences]
    if not others:
        return None
    names = list(dict.fromkeys(one.quantity for record in others for one in record.differences))
    rows = []
    for name in names:
        cells = []
        for record in others:
            one = next((found for found in record.differences if found.quantity == name), None)
            cells.append(f"{format_estimate(one.value, one.stderr)}{stated(one)}" if one else ABSENT)
        rows.append((SYMBOLS.get(name, name), *cells))
    return Table(
        f"Difference to {label(records[0].checkpoint)}",
        ("quantity", *(label(record.checkpoint) for record in others)),
        tuple(rows),
        (
            "± standard error of the difference, over draws and samples that the checkpoints share; all "
            "verdicts are right with 95 % (Holm)",
            *[UNDECIDED] * any(one.reason for record in others for one in record.differences),
        ),
    )


def correlation_table(correlations: Sequence[Correlation], against: Against) -> Table:
    rows = [
        (
            SYMBOLS.get(one.name, one.name),
            f"{one.tau:.2f}".replace("-", "−") if math.isfinite(one.tau) else ABSENT,
            _interval(one.interval),
            f"{one.p:.2g}" if math.isfinite(one.p) else ABSENT,
            f"{one.joint_p:.2g}" if math.isfinite(one.joint_p) else ABSENT,
            str(one.count),
        )
        for one in correlations
    ]
    return Table(
        f"Kendall's τ with {GAPS[against]}",
        ("quantity", "τ", "95 % interval", "p", "p, all together", "checkpoints"),
        tuple(rows),
        ("interval and p from the exact distribution of permutations; p, all together: Holm",),
    )


def _interval(ends: tuple[float, ...] | None) -> str:
    if ends is None or not all(map(math.isfinite, ends)):
        return ABSENT
    return " to ".join(f"{end:.2f}".replace("-", "−") for end in ends)
