"""`fedscope clients`: where the clients of a round part from each other and from the global model."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from fedscope.choices import BatchNormMode
from fedscope.cli.options import shared
from fedscope.cli.options.analysis import GROUPS_OF_RUNS, analysis_on
from fedscope.cli.options.command import Command
from fedscope.cli.terminal import console
from fedscope.errors import UserError
from fedscope.figures.text.clients import clients_tables
from fedscope.figures.text.labels import label
from fedscope.workflows.clients.request import (
    FAST,
    MEASURES,
    PROBES,
    SAMPLES,
    TOL,
    TOP_K,
    ClientsRequest,
    Measure,
    chosen,
)
from fedscope.workflows.sources.targets import Targets

if TYPE_CHECKING:
    from fedscope.figures.clients.from_records import Kind
    from fedscope.records.clients import ClientsRecord

SHOWN: Mapping["Kind", tuple[Measure, ...]] = {
    "gap": ("loss", "lambda_max", "trace"),
    "alignment": ("alignment",),
    "drift": ("drift",),
    "matrix": ("overlap", "diagonals", "barriers"),
}
"""The parts of which each kind of figure shows what there is."""
GROUPS = {
    "Most used": ("--only", "--samples", "--figure", "--kind", "--json"),
    "What is measured": ("--anchor", "--start", "--top-k", "--recompute"),
    "How precisely": ("--tol", "--probes"),
    **GROUPS_OF_RUNS,
}
EXAMPLES = {
    "fedscope clients a": "loss, λ_max and trace of each client and of all, alignment, cost of averaging",
    "fedscope clients a@10 --only loss,alignment --json a.json": "two parts, of round 10",
    "fedscope clients a --only overlap --figure a.png --kind matrix": "overlap of the clients' eigenspaces",
}


@click.command("clients", cls=Command, groups=GROUPS, examples=EXAMPLES)
@analysis_on(f"{SAMPLES} of each client's rows, and of all", own=False)
@click.option("--only", metavar="PART,…",
              help=f"Parts to measure: {', '.join(MEASURES)}, or all. [default: {','.join(FAST)}, the fourth "
              "where the model that the round began with was kept]")  # fmt: skip
@click.option("--top-k", type=click.IntRange(1), default=TOP_K, show_default=True,
              help="Eigenvectors of the spaces of alignment and overlap.")  # fmt: skip
@click.option("--anchor", type=click.Choice(["start", "global"]), default="start", show_default=True,
              help="What updates are from: the model that the round began with, or its result.")  # fmt: skip
@click.option("--start", is_flag=True, help="Also λ_max and trace at the model that the round began with.")
@click.option("--tol", type=click.FloatRange(0, 1, min_open=True), default=TOL, show_default=True,
              help="Residual of each eigenpair, relative to λ_max.")  # fmt: skip
@click.option("--probes", type=click.IntRange(2), default=PROBES, show_default=True, help="Of each trace.")
@click.option("--recompute", is_flag=True, help="Measure again what the registry has a result of.")
@click.option("--figure", "--out", "figure", metavar="FILE", callback=shared.writable,
              help="Also draw to a .png, .pdf or .svg file.")  # fmt: skip
@click.option("--kind", type=click.Choice(["gap", "alignment", "drift", "matrix"]), default="gap",
              show_default=True, help="What --figure draws: flatness gaps, alignment of the updates, cost of "
              "averaging, or matrices of the pairs of clients.")  # fmt: skip
@click.option("--width", type=click.Choice(["column", "page"]), default="column", show_default=True,
              help="Of the figure: 84 or 175 mm.")  # fmt: skip
def command(
    targets: Targets,
    json_target: str | None,
    bn: BatchNormMode,
    only: str | None,
    top_k: int,
    anchor: Literal["start", "global"],
    start: bool,
    tol: float,
    probes: int,
    recompute: bool,
    figure: str | None,
    kind: "Kind",
    width: Literal["column", "page"],
) -> None:
    """Measure where the clients of a round part from each other and from the global model.

    CKPT is a round's global model: RUN, RUN@25; left out, the newest run's. Its clients' uploads must have
    been kept: `fedscope train --save-clients last`, or all.
    """
    parts = FAST if only is None else chosen(only)
    request = ClientsRequest(parts, top_k, tol, probes, anchor, start, bn)
    from fedscope.workflows.clients.checkpoints import clients  # torch: not for --help

    if figure:
        from fedscope.figures.style import check_format  # matplotlib: not for a table

        check_format(Path(figure))
        _check_shown(kind, parts, len(targets.checkpoints))
    found = clients(targets, request, console.REPORTER, again=recompute, possible=only is None)
    if not console.in_json(json_target, console.one_or_all([record.to_json() for record in found])):
        for record in found:
            _show(record)
    if figure:
        _draw(found, kind, width, Path(figure))


def _check_shown(kind: "Kind", parts: Sequence[Measure], rounds: int) -> None:
    if rounds > 1:
        raise UserError(f"a figure of clients is of one round, not {rounds}: make several figures")
    shown = SHOWN[kind]
    if not {*shown} & {*parts}:
        raise UserError(
            f"--kind {kind} draws {', '.join(shown)}, and --only measures {', '.join(parts)}; add what it "
            "draws to --only, or take another --kind"
        )


def _show(record: "ClientsRecord") -> None:
    name = label(record.checkpoint)
    for table in clients_tables(record):
        console.print_table(table.title, table.columns, table.rows, table.notes)
        print()
    if record.reused:
        console.note(f"{name}: as measured before; --recompute measures again")
    if not record.converged:
        console.note(f"{name}: not every eigenpair reached --tol; take a larger one, or a smaller --top-k")


def _draw(found: "list[ClientsRecord]", kind: "Kind", width: str, path: Path) -> None:
    from fedscope.figures import style
    from fedscope.figures.clients.from_records import draw
    from fedscope.figures.provenance import made_from

    size = style.SINGLE_COLUMN if width == "column" else style.DOUBLE_COLUMN
    style.save(draw(found, kind, width=size), path, record=made_from(found))
