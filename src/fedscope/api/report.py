"""The report of runs: one page of HTML that needs nothing beside it."""

from html import escape
from pathlib import Path
from typing import Any, Unpack

from fedscope.api.reporting import reporter
from fedscope.api.sources import On, Weights, names_of, targets_of
from fedscope.errors import UserError, check_keywords
from fedscope.records.hessian_record import HessianRecord
from fedscope.records.landscape_record import LandscapeRecord
from fedscope.storage import write_text
from fedscope.workflows.report_page import ReportRequest
from fedscope.workflows.report_page import report as made


class Report:
    """A page, and the records that it shows."""

    def __init__(self, page: str, records: list[HessianRecord | LandscapeRecord]) -> None:
        self.page = page
        self.records = records

    def __repr__(self) -> str:
        return f"Report of {len(self.records)} records, {len(self.page) // 1024:,} KiB: .save('report.html')"

    def _repr_html_(self) -> str:
        return f'<iframe srcdoc="{escape(self.page)}" width="100%" height="600"></iframe>'

    def to_dict(self) -> list[dict[str, Any]]:
        """Return the records."""
        return [record.to_json() for record in self.records]

    def save(self, path: str | Path) -> None:
        """Write the page.

        Raises:
            UserError: the file cannot be written.
        """
        write_text(Path(path), self.page, below=None)


def report(
    *what: Weights,
    grid: int = 21,
    span: float = 1.0,
    top_k: int | None = None,
    probes: int | None = None,
    clients: bool = True,
    rounds: str | None = None,
    compute: bool = True,
    **on: Unpack[On],
) -> Report:
    """Report runs or checkpoints: training, curvature, clients, landscapes; what is missing is measured.

    Args:
        *what: checkpoints as for :func:`measure`, of a registry; none: its newest run.
        grid: points along each axis of the landscapes.
        span: the axes run from −span to span.
        top_k: how many of the largest eigenvalues; None: up to 5 that were measured already, else 5.
        probes: of the trace; None: to 5 %.
        clients: with H_N and H_D where the run's clients were saved.
        rounds: FIRST:LAST:STEP, of which there are landscapes too.
        compute: False: show what the registry has, and measure nothing.
        **on: samples, data and place, see :class:`On`.

    Raises:
        UserError: a checkpoint, data or option is wrong, or an object is given in place of a checkpoint.
    """
    check_keywords(report, on, On)
    named = names_of(what, on)
    if named is None:
        raise UserError(
            "a report is of runs and checkpoints of a registry; name them, and data as MODULE:FACTORY"
        )
    request = ReportRequest(
        targets_of(*named, on), grid=grid, span=span, top_k=top_k, probes=probes, clients=clients,
        rounds=rounds, compute=compute,
    )  # fmt: skip
    return Report(*made(request, reporter(progress=on.get("progress", False))))
