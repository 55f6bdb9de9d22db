"""`fedscope demo`: the whole thread on the bundled digits, as a newcomer would run it."""

from pathlib import Path

import click

from fedscope.cli import options
from fedscope.cli.command import Command


@click.command("demo", cls=Command, examples={"fedscope demo": "about three minutes on two cores"})
@options.registry
@options.threads
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), default=Path("demo"),
              show_default=True, help="Folder for the report, pictures and records.")  # fmt: skip
def command(registry: Path, threads: int | None, out: Path) -> None:
    """Train FedAvg and FedAvg+MAN on the bundled digits, then measure and draw their minima."""
    from fedscope.cli import demonstration  # torch: not for --help

    demonstration.run(registry, threads, out)
