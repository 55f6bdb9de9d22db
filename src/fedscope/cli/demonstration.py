"""What `fedscope demo` does: train two methods, measure their minima, draw them and write a report."""

from pathlib import Path

from fedscope.checkpoints.file.checkpoint import versions
from fedscope.checkpoints.registry.registry import Registry
from fedscope.cli import console
from fedscope.cli.hessian_shown import show
from fedscope.cli.reporting import as_record, page_of, runs_of
from fedscope.figures.provenance import made_from
from fedscope.figures.spectrum import from_records as hessian_records
from fedscope.figures.style import save
from fedscope.figures.surface import from_records as landscape_records
from fedscope.process import use_device
from fedscope.storage import check_target, write_text
from fedscope.workflows.curvature.measure import measure
from fedscope.workflows.landscape.scan import Plane, scan
from fedscope.workflows.requests import Crossing, Request
from fedscope.workflows.sources.problem import load
from fedscope.workflows.sources.samples import Source
from fedscope.workflows.train.request import TrainRequest
from fedscope.workflows.train.train import train

METHODS = ("fedavg", "fedavg+man")
FILES = ("hessian.json", "landscape.json", "density.png", "landscape.png", "landscape.pdf", "report.html")
SAMPLES, CLIENT_PROBES, GRID = 512, 16, 31  # enough to see something, in under three minutes on two cores


def run(registry: Path, threads: int | None, out: Path) -> None:
    """Write the report, pictures and records into the folder ``out``."""
    for name in FILES:
        check_target(out / name)
    device = use_device("cpu", threads)
    store, source = Registry(registry), Source(samples=SAMPLES, device=device)
    paths: list[Path] = []
    for method in METHODS:
        request = TrainRequest(
            registry, {"method": method}, stem=f"demo-{method}", device="cpu", threads=threads
        )
        paths += [Path(one.final) for one in train(request, console.REPORTER)]
    problems = load(paths, source)
    wanted = Request(
        top_k=2, density=True, clients=True, crossing=Crossing(probes=CLIENT_PROBES), versions=versions()
    )
    records = [measure(problem, wanted, console.progress, keep=store.analysis) for problem in problems]
    plane = Plane(grid=GRID, versions=versions())
    surfaces = [scan(problem, plane, console.progress) for problem in problems]

    console.write_json(str(out / "hessian.json"), records)
    console.write_json(str(out / "landscape.json"), surfaces)
    save(hessian_records.draw(records), out / "density.png", record=made_from(records))
    for suffix in ("png", "pdf"):
        figure = landscape_records.draw(surfaces)
        save(figure, out / f"landscape.{suffix}", record=made_from(surfaces))
    page = page_of([*map(as_record, runs_of(paths))], [*records, *surfaces])
    write_text(out / "report.html", page, below=None)
    show(records)
    for path in sorted(out.iterdir()):
        print(path)
