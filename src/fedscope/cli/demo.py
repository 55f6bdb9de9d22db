"""`fedscope demo`: the whole thread on the bundled digits, as a newcomer would run it."""

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import click

from fedscope.cli.options import shared
from fedscope.cli.options.command import Command
from fedscope.cli.terminal import console
from fedscope.cli.terminal.hessian_shown import shown
from fedscope.cli.terminal.verbosity import CURRENT
from fedscope.storage import check_target, write_text
from fedscope.workflows.progress import Progress, Stage

FILES = ("hessian.json", "landscape.json", "density.png", "landscape.png", "landscape.pdf", "report.html")


@click.command("demo", cls=Command, examples={"fedscope demo": "two minutes on two cores"})
@shared.registry
@shared.threads
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), default=Path("demo"),
              show_default=True, help="Folder for the report, pictures and records.")  # fmt: skip
def command(registry: Path, threads: int | None, out: Path) -> None:
    """Train FedAvg and FedAvg+MAN on the bundled digits, then measure and draw their minima."""
    start, spent = time.perf_counter(), defaultdict[str, float](float)
    for name in FILES:
        check_target(out / name)
    from fedscope.figures.embedded_record import made_from  # matplotlib and torch: not for --help
    from fedscope.figures.spectrum import hessian_figures as spectra
    from fedscope.figures.style import save
    from fedscope.figures.surface import landscape_figures as surfaces
    from fedscope.workflows.demonstration import demo

    own = console.REPORTER
    timed = replace(own, stage=_timed(own.stage, spent), rounds=_timed(own.rounds, spent))
    found = demo(registry, threads, timed)
    curvature, planes = found.curvature, found.landscapes
    console.write_json(str(out / "hessian.json"), [record.to_json() for record in curvature])
    console.write_json(str(out / "landscape.json"), [record.to_json() for record in planes])
    save(spectra.draw(curvature), out / "density.png", record=made_from(curvature))
    for suffix in ("png", "pdf"):
        save(surfaces.draw(planes), out / f"landscape.{suffix}", record=made_from(planes))
    write_text(out / "report.html", found.page, below=None)
    console.show(shown(found.curvature))
    for path in sorted(out.iterdir()):
        print(path)
    if CURRENT.verbose:
        spent["start, pictures and report"] = time.perf_counter() - start - sum(spent.values())
        rows = [(what, f"{seconds:.1f}") for what, seconds in spent.items()]
        console.print_table("Where the time went", ("step", "seconds"), rows)


def _timed(stage: Stage, spent: dict[str, float]) -> Stage:
    """Return a stage that also adds up the seconds of each kind of step, such as "density"."""

    @contextmanager
    def timed(title: str) -> Iterator[Progress]:
        start = time.perf_counter()
        with stage(title) as progress:
            yield progress
        spent[title.partition(": ")[2].partition(",")[0]] += time.perf_counter() - start

    return timed
