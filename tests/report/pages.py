"""Pages of records as the commands' JSON has them."""

from collections.abc import Sequence
from typing import Any

import fedscope.report as report
from fedscope.records.clients import ClientsRecord
from fedscope.records.reading import hessians, landscapes
from fedscope.records.runs import RunRecord

Json = dict[str, Any]


def report_page(
    runs: Sequence[Json],
    curvatures: Sequence[Json],
    planes: Sequence[Json],
    rounds: Sequence[ClientsRecord] = (),
) -> str:
    """The report of runs, Hessian records, landscapes and rounds' clients."""
    found = [RunRecord.read(run) for run in runs]
    return report.report_page(found, hessians(curvatures), landscapes(planes), rounds)


def landscape_page(planes: Sequence[Json]) -> str:
    """The page of landscapes alone."""
    return report.landscape_page(landscapes(planes))
