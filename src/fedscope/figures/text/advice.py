"""Advice on a Hessian record, and a landscape's record in words."""

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import median

from fedscope.figures.digits import format_estimate
from fedscope.records.hessian_record import HessianRecord
from fedscope.records.landscape_record import LandscapeRecord

_ALL_SAMPLES = "they are all of your data"
_MORE_SAMPLES = "more samples (--samples, where the data has more) would shrink it, as one over their root"
_MORE_PROBES = "more probes (--probes, or a smaller --trace-rtol) would shrink it"
FEW = 30  # samples that carry an eigenvalue: its error is then known badly
SMALL = 1e-3  # of a value: an error that needs no advice
ONE_BATCH = "the error from the samples is not known from one batch; a smaller --batch-size would tell it"


def advice(record: HessianRecord) -> list[str]:
    return [*_of_the_population(record), *_carried_by_few(record), *_largest_errors(record)]


def _of_the_population(record: HessianRecord) -> list[str]:
    """Return λ_max's interval where its bias or another width makes it another one than ± data tells."""
    top = record.lambda_max
    if top.interval is None or not top.stderr_data > 0:
        return []
    half = (top.interval[1] - top.interval[0]) / 2
    if not abs(top.bias_data) > top.stderr_data / 2 and half < 3 * top.stderr_data:
        return []
    low, high, bias = map(format_estimate, (*top.interval, top.bias_data))
    return [f"population's λ_max {low} to {high} (95 %), bias {bias}"]


def _carried_by_few(record: HessianRecord) -> list[str]:
    effective = record.lambda_max.effective_samples
    if math.isnan(effective) or effective >= FEW:
        return []
    return [
        f"λ_max rests on about {effective:.2g} of {record.problem.samples} samples, by (Σq)²/Σq² of their "
        "parts: another draw may change it by more than its error says"
        + ": take more samples"
        * (not record.problem.whole)
    ]


def _largest_errors(record: HessianRecord) -> list[str]:
    top, trace = record.lambda_max, record.trace
    untold = all(math.isnan(one.stderr_data) for one in (top, trace) if one)
    if untold and len(record.batch_sizes) == 1 and not math.isnan(top.residual):
        return [ONE_BATCH]  # the largest of the others would mean nothing
    samples = ("the samples", _ALL_SAMPLES if record.problem.whole else _MORE_SAMPLES)
    return [
        *_dominating(
            "λ_max",
            top.value,
            {
                samples: top.stderr_data,
                ("the eigenvector's residual", "a smaller --tol would shrink it"): top.residual,
                ("rounding", "--dtype float64 would shrink it"): record.noise,
            },
        ),
        *(_dominating("trace", trace.value, {
            samples: trace.stderr_data,
            ("the probes", _MORE_PROBES): trace.stderr_probe,
        }) if trace else ()),
    ]  # fmt: skip


def redrawn(record: HessianRecord) -> str | None:
    """Return a warning that the clients' rows were not stored; None where they were, or do not matter."""
    cross, influence = record.cross_client, record.influence
    parts = ["H_N and H_D are"] if cross and cross.rows == "redrawn" else []
    parts += ["the shares by client are"] if influence and influence.rows == "redrawn" else []
    if not parts:
        return None
    numpy = record.versions.get("numpy")
    return (
        f"which rows each client held was not stored by this run: {' and '.join(parts)} of rows drawn again "
        f"under numpy {numpy}, which are the same only if its random streams are"
    )


def who_is_who(record: HessianRecord) -> list[str]:
    """Return which client each model is of, and which are equal; nothing where no clients' were compared."""
    cross = record.cross_client
    return cross.pairing.lines if cross and cross.pairing else []


def holders_unknown(record: HessianRecord) -> str | None:
    """Return why the influence of the samples is not told by client; None where it is, or was not asked."""
    reason = record.influence and record.influence.clients_reason
    return f"no shares by client: {reason}" if reason else None


def _dominating(name: str, value: float, errors: Mapping[tuple[str, str], float]) -> list[str]:
    known = {what: error for what, error in errors.items() if not math.isnan(error)}
    if not known or not value or math.isnan(value):
        return []
    (source, mend), largest = max(known.items(), key=lambda item: item[1])
    if largest < SMALL * abs(value):
        return []
    return [f"{name}: most of its error is {source} ({100 * largest / abs(value):.2g} %); {mend}"]


def plain_form(record: HessianRecord | LandscapeRecord) -> str | None:
    """Return in words why no faster form of the network was used; None where one was, or there is none."""
    why = record.problem.form_reason
    return why and f"plain PyTorch is used, for the same numbers in more time: in a faster form {why}"


def geometry(record: LandscapeRecord) -> Iterator[str]:
    """Yield a line each: of a loss that jumps, why plain PyTorch was used, curvature, barrier, distances."""
    if record.problem.departs:
        yield record.problem.departs
    if slow := plain_form(record):
        yield slow
    if record.surface_curvature:
        of = "Gauss–Newton " * (record.directions == "ggn")
        known = [_number(value) for value in record.curvature]
        beside = f" ({of}λ₁ = {known[0]}, λ₂ = {known[1]})" if known else ""
        yield f"curvature of the surface at its centre: {_numbers(record.surface_curvature)}{beside}"
    if over := record.step_curvature:
        steps = " and ".join(dict.fromkeys(f"±{step:.2g}" for step in over.steps))
        differs = any(not 0.5 < b / a < 2 for a, b in _pairs(record.surface_curvature, over.values))
        why = " (another than at the centre: kinks or higher orders within the step)" * differs
        yield f"curvature of the surface over {steps} about its centre: {_numbers(over.values)}{why}"
    if barrier := record.barrier:
        yield f"barrier between the ends: {_number(barrier.height)} at α = {barrier.at:.3g}"
    if record.marks and len(record.axes) == 2:
        farthest = max(record.marks, key=lambda mark: mark.distance)
        middle = median(mark.distance for mark in record.marks)
        yield (
            f"distances of {len(record.marks)} networks from the plane: median {middle:.3g}, up to "
            f"{farthest.distance:.3g} ({farthest.label})"
        )


def _pairs(at: Sequence[float], over: Sequence[float]) -> Iterator[tuple[float, float]]:
    return ((a, b) for a, b in zip(at, over, strict=False) if a and math.isfinite(a) and math.isfinite(b))


def _numbers(values: Sequence[float]) -> str:
    return ", ".join(map(_number, values))


def _number(value: float) -> str:
    return "not finite" if math.isnan(value) else f"{value:.4g}"
