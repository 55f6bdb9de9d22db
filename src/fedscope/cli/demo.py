"""`fedscope demo`: the whole thread on the bundled digits, as a newcomer would run it."""

from pathlib import Path

import click

from fedscope.cli.options import shared
from fedscope.cli.options.command import Command
from fedscope.cli.terminal import console
from fedscope.cli.terminal.hessian_shown import shown
from fedscope.storage import check_target, write_text

FILES = ("hessian.json", "landscape.json", "density.png", "landscape.png", "landscape.pdf", "report.html")


@click.command("demo", cls=Command, examples={"fedscope demo": "a few minutes on two cores"})
@shared.registry
@shared.threads
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), default=Path("demo"),
              show_default=True, help="Folder for the report, pictures and records.")  # fmt: skip
def command(registry: Path, threads: int | None, out: Path) -> None:
    """Train FedAvg and FedAvg+MAN on the bundled digits, then measure and draw their minima."""
    for name in FILES:
        check_target(out / name)
    from fedscope.figures.provenance import made_from  # matplotlib and torch: not for --help
    from fedscope.figures.spectrum import from_records as spectra
    from fedscope.figures.style import save
    from fedscope.figures.surface import from_records as surfaces
    from fedscope.workflows.demo import demo

    found = demo(registry, threads, console.REPORTER)
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
