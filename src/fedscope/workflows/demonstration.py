"""The demonstration on the bundled digits: train two methods, measure their minima, and report both."""

import signal
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

from fedscope.checkpoints.file.checkpoint import versions
from fedscope.errors import UserError
from fedscope.parent import end_with_parent
from fedscope.records.entries import Record
from fedscope.records.hessian_record import HessianRecord
from fedscope.records.landscape_record import LandscapeRecord
from fedscope.workflows.curvature.hessian_command import curvature
from fedscope.workflows.landscape.landscape_request import Plane
from fedscope.workflows.landscape.scan import scan
from fedscope.workflows.progress import SILENT, Progress, Reporter, Stage
from fedscope.workflows.report_page import page_of, shown_runs
from fedscope.workflows.requests import CrossClientRequest, Request
from fedscope.workflows.sources.targets import Targets
from fedscope.workflows.study import Session
from fedscope.workflows.train.train_request import TrainRequest
from fedscope.workflows.train.train_runs import train

METHODS = ("fedavg", "fedavg+man")


@dataclass(frozen=True)
class Effort:
    """How much is trained and measured: enough to tell the two apart, in two minutes on two cores."""

    samples: int = 512
    client_probes: int = 12
    grid: int = 21
    settings: Mapping[str, object] = field(default_factory=dict)


USUAL = Effort()


class Shown(NamedTuple):
    """A method's run, its measurements, and the seconds of each kind of step."""

    path: Path
    curvature: HessianRecord
    landscape: LandscapeRecord
    seconds: Mapping[str, float]


class Demo(NamedTuple):
    """What the demonstration shows of both methods, and the report of them, HTML."""

    shown: list[Shown]
    page: str


def demo(registry: Path, threads: int | None = None, reporter: Reporter = SILENT) -> Demo:
    """Train and measure each method in a process of its own.

    Args:
        registry: the folder of the runs.
        threads: CPU threads of each process; None: as many as its work is worth.
        reporter: of each process; its functions are importable.
    """
    work = partial(_measured, registry, threads, reporter, USUAL)
    with ProcessPoolExecutor(len(METHODS), get_context("spawn"), initializer=_begin) as pool:
        try:
            found = list(pool.map(work, METHODS))
        except BrokenProcessPool as error:
            raise UserError("a process of the demo was killed (out of memory?); run it again") from error
    shown = [
        Shown(path, HessianRecord.read(curvature), LandscapeRecord.read(landscape), seconds)
        for path, curvature, landscape, seconds in found
    ]
    records = [one.curvature for one in shown] + [one.landscape for one in shown]
    return Demo(shown, page_of(shown_runs([one.path for one in shown]), records))


def _begin() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends it at once, without a traceback
    end_with_parent()


def _measured(
    registry: Path, threads: int | None, reporter: Reporter, effort: Effort, method: str
) -> tuple[Path, Record, Record, dict[str, float]]:
    """Return what :class:`Shown` is of, records as JSON: a process sends plain data alone."""
    seconds = defaultdict[str, float](float)
    timed = Reporter(_timed(reporter.stage, seconds), _timed(reporter.rounds, seconds), reporter.note)
    settings = {"method": method, **effort.settings}
    training = TrainRequest(registry, settings, stem=f"demo-{method}", device="cpu", threads=threads)
    path = Path(train(training, timed)[0].final)
    targets = Targets(registry, (str(path),), samples=effort.samples, device="cpu", threads=threads)
    clients = CrossClientRequest(probes=effort.client_probes)
    [measured] = curvature(targets, Request(top_k=2, density=True, clients=True, cross_client=clients), timed)
    plane = Plane(grid=effort.grid, versions=versions())
    landscape = scan(measured.problem, plane, Session(timed))
    return path, measured.record.to_json(), landscape.to_json(), dict(seconds)


def _timed(stage: Stage, seconds: dict[str, float]) -> Stage:
    """Return a stage that also adds up the seconds of each kind of step, such as "density"."""

    @contextmanager
    def timed(title: str) -> Iterator[Progress]:
        start = time.perf_counter()
        with stage(title) as progress:
            yield progress
        seconds[title.partition(": ")[2].partition(",")[0]] += time.perf_counter() - start

    return timed
