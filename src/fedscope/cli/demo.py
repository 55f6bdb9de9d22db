"""`fedscope demo`: the whole thread on the bundled digits, as a newcomer would run it."""

import time
from pathlib import Path

import click

from fedscope.cli.options import shared
from fedscope.cli.options.command import Command
from fedscope.cli.terminal import console
from fedscope.cli.terminal.hessian_shown import shown
from fedscope.cli.terminal.verbosity import CURRENT
from fedscope.storage import check_target, write_text
from fedscope.workflows.progress import SILENT

FILES = ("hessian.json", "landscape.json", "density.png", "landscape.png", "landscape.pdf", "report.html")


@click.command("demo", cls=Command, examples={"fedscope demo": "two minutes on two cores"})
@shared.registry
@shared.threads
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), default=Path("demo"),
              show_default=True, help="Folder for the report, pictures and records.")  # fmt: skip
def command(registry: Path, threads: int | None, out: Path) -> None:
    """Train FedAvg and FedAvg+MAN on the bundled digits, then measure and draw their minima."""
    start = time.perf_counter()
    for name in FILES:
        check_target(out / name)
    from fedscope.figures.embedded_record import made_from  # matplotlib and torch: not for --help
    from fedscope.figures.spectrum import hessian_figures as spectra
    from fedscope.figures.style import save
    from fedscope.figures.surface import landscape_figures as surfaces
    from fedscope.workflows.demonstration import METHODS, demo

    found = demo(registry, threads, SILENT if CURRENT.quiet else console.AT_ENDS)
    curvature = [one.curvature for one in found.shown]
    planes = [one.landscape for one in found.shown]
    console.write_json(str(out / "hessian.json"), [record.to_json() for record in curvature])
    console.write_json(str(out / "landscape.json"), [record.to_json() for record in planes])
    save(spectra.draw(curvature), out / "density.png", record=made_from(curvature))
    for suffix in ("png", "pdf"):
        save(surfaces.draw(planes), out / f"landscape.{suffix}", record=made_from(planes))
    write_text(out / "report.html", found.page, below=None)
    console.show(shown(curvature))
    for path in sorted(out.iterdir()):
        print(path)
    if CURRENT.verbose:
        took = [one.seconds for one in found.shown]
        rest = time.perf_counter() - start - max(sum(one.values()) for one in took)
        rows = [(step, *(f"{one[step]:.1f}" for one in took)) for step in took[0]]
        rows.append(("start, pictures and report", f"{rest:.1f}", ""))
        console.print_table("Where the time went", ("seconds", *METHODS), rows)
