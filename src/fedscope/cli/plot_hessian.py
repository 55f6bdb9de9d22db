"""`fedscope plot-hessian`: figures of records that `fedscope hessian --json` wrote."""

from pathlib import Path
from typing import get_args

import click

from fedscope.cli.options import shared
from fedscope.cli.options.command import Command
from fedscope.figures.figure_kinds import SpectrumKind


@click.command(
    "plot-hessian",
    cls=Command,
    examples={"fedscope plot-hessian a.json b.json --kind eigenvalues": "two saved records in one figure"},
)
@click.argument("records", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--kind", type=click.Choice(get_args(SpectrumKind)),
              default="density", show_default=True,
              help="Eigenvalue densities; leading eigenvalues against their index; H_N and H_D of every pair "
              "of clients; bars of λ_max and trace; or how few samples make λ_max.")  # fmt: skip
@shared.picture("hessian.png")
def command(records: tuple[Path, ...], kind: SpectrumKind, out: str) -> None:
    """Draw RECORDS, the .json files that `fedscope hessian --json` wrote, without measuring again."""
    from fedscope.figures.embedded_record import made_from, read_records
    from fedscope.figures.spectrum.hessian_figures import draw
    from fedscope.figures.style import check_format, save
    from fedscope.records.saved_records import hessians

    check_format(Path(out))
    found = hessians(read_records(records))
    save(draw(found, kind), Path(out), record=made_from(found))
    print(out)
