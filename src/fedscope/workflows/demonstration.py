"""The demonstration on the bundled digits: train two methods, measure their minima, and report both."""

from dataclasses import dataclass
from pathlib import Path

from fedscope.checkpoints.file.checkpoint import versions
from fedscope.records.hessian_record import HessianRecord
from fedscope.records.landscape_record import LandscapeRecord
from fedscope.workflows.curvature.hessian_command import curvature
from fedscope.workflows.landscape.landscape_request import Plane
from fedscope.workflows.landscape.scan import scan
from fedscope.workflows.progress import SILENT, Reporter
from fedscope.workflows.report_page import page_of, shown_runs
from fedscope.workflows.requests import CrossClientRequest, Request
from fedscope.workflows.sources.targets import Targets
from fedscope.workflows.study import Session
from fedscope.workflows.train.train_request import TrainRequest
from fedscope.workflows.train.train_runs import train

METHODS = ("fedavg", "fedavg+man")
SAMPLES, CLIENT_PROBES, GRID = 512, 12, 21  # enough to tell the two apart, in two minutes on two cores


@dataclass(frozen=True)
class Demo:
    """The results of the demonstration."""

    curvature: list[HessianRecord]
    landscapes: list[LandscapeRecord]
    page: str  # of the report, HTML


def demo(registry: Path, threads: int | None = None, reporter: Reporter = SILENT) -> Demo:
    paths: list[Path] = []
    for method in METHODS:
        training = TrainRequest(
            registry, {"method": method}, stem=f"demo-{method}", device="cpu", threads=threads
        )
        paths += [Path(one.final) for one in train(training, reporter)]
    targets = Targets(registry, tuple(map(str, paths)), samples=SAMPLES, device="cpu", threads=threads)
    clients = CrossClientRequest(probes=CLIENT_PROBES)
    request = Request(top_k=2, density=True, clients=True, cross_client=clients)
    found = curvature(targets, request, reporter)
    plane = Plane(grid=GRID, versions=versions())
    records = [measured.record for measured in found]
    surfaces = [scan(measured.problem, plane, Session(reporter)) for measured in found]
    page = page_of(shown_runs(paths), [*records, *surfaces])
    return Demo(records, surfaces, page)
