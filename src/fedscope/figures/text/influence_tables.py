"""Tables of the samples, classes and clients that make λ_max, from a record's ``influence``."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from fedscope.figures.digits import ABSENT, format_estimate
from fedscope.figures.text.hessian_table import Table, effective_number
from fedscope.figures.text.labels import label
from fedscope.records.hessian_record import HessianRecord
from fedscope.records.influence_entry import GroupEntry, Influence, Influential

MOST_GROUPS = 5  # classes or clients in a table
SMALLEST, LARGEST = 0.001, 1000.0  # per cent that are written out in three digits


def percent(share: float, stderr: float | None = None) -> str:
    value = 100 * share
    if stderr is not None:
        return format_estimate(value, 100 * stderr)
    if not SMALLEST <= abs(value) < LARGEST:
        return format_estimate(value)
    return f"{value:#.3g}".rstrip(".").replace("-", "−")


def influence_tables(record: HessianRecord) -> Iterator[Table]:
    found = record.influence
    if found is None:
        return
    name = label(record.checkpoint)
    yield Table(
        f"samples that carry most of λ_max: {name}",
        *_samples(found),
        (_headline(record, found), _where(found)),
    )
    if found.by_class:
        yield _groups(f"λ_max by class: {name}", "class", found.by_class)
    if found.by_client:
        yield _groups(f"λ_max by client: {name}", "client", found.by_client)


def _headline(record: HessianRecord, found: Influence) -> str:
    top, below = found.top, found.negative
    text = (
        f"the largest 1 % of samples ({top.samples:,} of {record.problem.samples:,}) carry "
        f"{percent(top.share)} % of λ_max; effective number of samples "
        f"{effective_number(record.lambda_max.effective_samples)}"
    )
    if below.samples:
        text += f"; samples with q < 0 ({below.samples:,}) take off {percent(-below.share)} %"
    return text


def _where(found: Influence) -> str:
    where = f"rows of the {found.split} split" if found.split else "rows as your data gives them"
    return f"q = vᵀHᵢv along the eigenvector v of λ_max, which is their mean; {where}, from 0"


def _samples(found: Influence) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    names = {group.number: group.name for group in found.by_class or ()}
    columns = ["row", *["class"] * bool(found.by_class), *["client"] * bool(found.by_client), "q", "share %"]
    cells: Mapping[str, Callable[[Influential], str]] = {
        "row": lambda one: str(one.row),
        "class": lambda one: ABSENT if one.label is None else names.get(one.label) or str(one.label),
        "client": lambda one: " ".join(map(str, one.clients)) or ABSENT,
        "q": lambda one: format_estimate(one.part),
        "share %": lambda one: percent(one.share),
    }
    return tuple(columns), tuple(tuple(cells[name](one) for name in columns) for one in found.largest)


def _groups(title: str, kind: str, groups: Sequence[GroupEntry]) -> Table:
    shown, others = groups[:MOST_GROUPS], groups[MOST_GROUPS:]
    rows = tuple(
        (
            one.name or str(one.number),
            str(one.samples),
            format_estimate(one.mean),
            percent(one.share, one.stderr),
        )
        for one in shown
    )
    left = f"{len(others)} more in --json, none with a larger share"
    return Table(title, (kind, "samples", "mean q", "share % ± data"), rows, (left,) if others else ())
