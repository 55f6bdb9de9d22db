"""`fedscope sharpness`: sharpness by its published definitions, and how it goes with generalisation."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import click

from fedscope.choices import Against
from fedscope.cli.options import shared
from fedscope.cli.options.analysis import GROUPS as analysis_groups
from fedscope.cli.options.analysis import analysis
from fedscope.cli.options.command import Command, OptionRule
from fedscope.cli.options.request_options import groups_of, options_of
from fedscope.cli.terminal import console
from fedscope.errors import UserError
from fedscope.workflows.option_fields import Rule, asked, check_effects
from fedscope.workflows.sharpness.sharpness_request import SharpnessRequest, check_request, chosen
from fedscope.workflows.sources.chosen_rounds import along_given
from fedscope.workflows.sources.targets import Targets

if TYPE_CHECKING:
    from fedscope.records.sharpness_record import CorrelationRecord, SharpnessRecord

Kind = Literal["values", "gap"]
GROUPS = groups_of(
    SharpnessRequest,
    {
        "Most used": ("--samples", ..., "--against", "--figure", "--json"),
        "What is measured": (..., "--rounds", "--local-steps", "--kind", "--recompute"),
        **analysis_groups,
    },
)
EXAMPLES = {
    "fedscope sharpness": "the usual definitions, of the newest run",
    "fedscope sharpness a b": "two runs, with paired differences",
    "fedscope sharpness a --only pac_bayes --only worst_l2": "definitions by name",
    "fedscope sharpness a b c d e --against gap --figure gap.png": "which of them goes with the gap?",
    "fedscope sharpness a --rounds all --figure rounds.png": "along a training",
}


RULES: Sequence[OptionRule] = (Rule("kind", lambda v: v["figure"], "without --figure"),)


@click.command("sharpness", cls=Command, groups=GROUPS, examples=EXAMPLES, rules=RULES)
@analysis
@options_of(SharpnessRequest)
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
    against: Against | None,
    round_range: str | None,
    step_range: str | None,
    recompute: bool,
    figure: str | None,
    kind: Kind | None,
    **options: Any,
) -> None:
    """Measure sharpness at checkpoints, each quantity by its paper's equation.

    CKPT is a file, or RUN, RUN@25, RUN@best, RUN@0, RUN@client3 of the registry; left out, the newest run.
    Several share samples and draws, and are compared in one table.
    """
    quantities, gap = chosen(options["only"]), against is not None
    request = asked(SharpnessRequest, options, only=quantities, bn=targets.bn, gap=gap)
    check_request(request)
    check_effects(request, targets.named)
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
