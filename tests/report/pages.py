"""Pages of records as the commands' JSON has them."""

from collections.abc import Sequence
from typing import Any

import fedscope.report as report
from fedscope.records.clients_record import ClientsRecord
from fedscope.records.run_record import RunRecord
from fedscope.records.saved_records import hessians, landscapes

Json = dict[str, Any]


def report_page(
    runs: Sequence[Json],
    curvatures: Sequence[Json],
    planes: Sequence[Json],
    rounds: Sequence[ClientsRecord] = (),
) -> str:
    """The report of runs, Hessian records, landscapes and rounds."""
    own = [RunRecord.read(run) for run in runs]
    return report.report_page(own, hessians(curvatures), landscapes(planes), rounds)


def landscape_page(planes: Sequence[Json]) -> str:
    """The page of landscapes alone."""
    return report.landscape_page(landscapes(planes))
