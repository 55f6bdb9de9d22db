"""`fedscope sharpness`: sharpness by its published definitions, and how it goes with generalisation."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

import click

from fedscope.choices import Against, BatchNormMode, ReadingName
from fedscope.cli.options import shared
from fedscope.cli.options.analysis import GROUPS as analysis_groups
from fedscope.cli.options.analysis import analysis
from fedscope.cli.options.command import Command
from fedscope.cli.terminal import console
from fedscope.errors import UserError
from fedscope.workflows.sharpness.sharpness_request import (
    QUANTITIES,
    USUAL,
    SharpnessRequest,
    check_request,
    chosen,
)
from fedscope.workflows.sources.chosen_rounds import along_given
from fedscope.workflows.sources.targets import Targets

if TYPE_CHECKING:
    from fedscope.records.sharpness_record import CorrelationRecord, SharpnessRecord

Kind = Literal["values", "gap"]
GROUPS = {
    "Most used": ("--samples", "--only", "--against", "--figure", "--json"),
    "What is measured": ("--rho", "--m", "--steps", "--reading", "--pairs", "--normalize-logits", "--layer",
                         "--target", "--rounds", "--local-steps", "--kind", "--recompute"),
    **analysis_groups,
}  # fmt: skip
EXAMPLES = {
    "fedscope sharpness": "the usual definitions, of the newest run",
    "fedscope sharpness a b": "two runs, with paired differences",
    "fedscope sharpness a --only pac_bayes --only worst_l2": "definitions by name",
    "fedscope sharpness a b c d e --against gap --figure gap.png": "which of them goes with the gap?",
    "fedscope sharpness a --rounds all --figure rounds.png": "along a training",
}


@click.command("sharpness", cls=Command, groups=GROUPS, examples=EXAMPLES)
@analysis
@click.option("--only", multiple=True, metavar="NAME,…",
              help=f"These quantities, or all; may be repeated. There are {', '.join(QUANTITIES)}. "
              f"[default: {', '.join(USUAL)}]")  # fmt: skip
@click.option("--rho", type=click.FloatRange(0, min_open=True),
              help="Radius or deviation of all that have one. [default: each one's own]")  # fmt: skip
@click.option("--m", type=click.IntRange(1), default=128, show_default=True,
              help="Samples of a batch that has a perturbation of its own (worst cases).")  # fmt: skip
@click.option("--steps", type=click.IntRange(1), default=20, show_default=True,
              help="Of a worst case's search.")  # fmt: skip
@click.option("--reading", type=click.Choice(get_args(ReadingName)), default="paper", show_default=True,
              help="Worst cases by Auto-PGD as published, for p = ∞ from vertex to vertex; or by Auto-PGD as "
              "the program of Andriushchenko et al. has it.")  # fmt: skip
@click.option("--pairs", type=click.IntRange(2), default=20, show_default=True,
              help="Pairs of random perturbations; half as many for PAC-Bayes σ.")  # fmt: skip
@click.option(
    "--normalize-logits", is_flag=True, help="Of worst and average cases: by the norm, less the mean."
)
@click.option(
    "--layer", metavar="NAME", help="Weights of relative flatness. [default: the last linear layer's]"
)
@click.option("--target", type=click.FloatRange(0, 1, min_open=True), default=0.1, show_default=True,
              help="Share of accuracy that PAC-Bayes σ may cost.")  # fmt: skip
@click.option("--against", type=click.Choice(get_args(Against)),
              help="Also Kendall's τ with the gap of the loss, or of the accuracy, between the splits, over "
              "four checkpoints or more.")  # fmt: skip
@click.option("--rounds", "round_range", metavar="FIRST:LAST:STEP|all",
              help="These rounds of each RUN, or all that it kept.")  # fmt: skip
@click.option("--local-steps", "step_range", metavar="FIRST:LAST:STEP|all",
              help="These local steps of each RUN@ROUND:clientK, or all that were kept.")  # fmt: skip
@click.option("--recompute", is_flag=True, help="Measure again what the registry has a result of.")
@click.option("--figure", "--out", "figure", metavar="FILE", callback=shared.writable,
              help="Also draw to a .png, .pdf or .svg file.")  # fmt: skip
@click.option("--kind", type=click.Choice(get_args(Kind)),
              help="What --figure draws, a panel for each quantity: its values, or them against the gap. "
              "[default: gap with --against, else values]")  # fmt: skip
def command(
    targets: Targets,
    json_target: str | None,
    only: tuple[str, ...],
    rho: float | None,
    m: int,
    steps: int,
    reading: ReadingName,
    pairs: int,
    normalize_logits: bool,
    layer: str | None,
    target: float,
    against: Against | None,
    round_range: str | None,
    step_range: str | None,
    recompute: bool,
    figure: str | None,
    kind: Kind | None,
    bn: BatchNormMode,
) -> None:
    """Measure sharpness at checkpoints, each quantity by its paper's equation.

    CKPT is a file, or RUN, RUN@25, RUN@best, RUN@0, RUN@client3 of the registry; left out, the newest run.
    Several share samples and draws, and are compared in one table.
    """
    request = SharpnessRequest(
        only=chosen(only), rho=rho, m=m, steps=steps, reading=reading, pairs=pairs,
        normalize_logits=normalize_logits, layer=layer, target=target, bn=bn, gap=against is not None,
    )  # fmt: skip
    check_request(request)
    if kind == "gap" and against is None:
        raise UserError("--kind gap draws sharpness against the gap; add --against gap or --against accuracy")
    targets = along_given(targets, round_range, step_range)
    if figure:
        from fedscope.figures.style import check_format  # matplotlib: not for a table

        check_format(Path(figure))
    from fedscope.workflows.sharpness.measure_sharpness import sharpness  # torch: not for --help

    records = sharpness(targets, request, console.REPORTER, again=recompute)
    found = None
    if against:
        from fedscope.records.sharpness_compared import correlated

        found = correlated(records, against)
    elif len(records) > 1:
        from fedscope.records.sharpness_compared import compared

        records = compared(records)
    content = found.to_json() if found else console.one_or_all([record.to_json() for record in records])
    if not console.in_json(json_target, content):
        console.show(_shown(records, found))
    if figure:
        _draw(records, found if kind != "values" else None, Path(figure))


def _shown(
    records: Sequence["SharpnessRecord"], found: "CorrelationRecord | None"
) -> Iterator[console.Piece]:
    from fedscope.figures.text.sharpness_tables import correlation_table, differences_table, sharpness_table

    yield console.piece(sharpness_table(records))
    if any(record.reused for record in records):
        yield "note", "as measured before; --recompute measures again"
    correlations = correlation_table(found.correlations, found.against) if found else None
    for table in (differences_table(records), correlations):
        if table:
            yield "line", ""
            yield console.piece(table)


def _draw(records: Sequence["SharpnessRecord"], found: "CorrelationRecord | None", path: Path) -> None:
    from fedscope.figures.embedded_record import made_from
    from fedscope.figures.runs.row_dots import against_figure, values_figure
    from fedscope.figures.style import save

    drawn = against_figure(found) if found else values_figure(records)
    save(drawn, path, record=made_from(records))
