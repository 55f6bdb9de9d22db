"""`fedscope clients`: where the clients of a round part from each other and from the global model."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import click

from fedscope.cli.options import shared
from fedscope.cli.options.analysis import GROUPS_OF_RUNS, analysis_on
from fedscope.cli.options.command import Command, OptionRule
from fedscope.cli.options.request_options import groups_of, options_of
from fedscope.cli.terminal import console
from fedscope.errors import UserError
from fedscope.figures.figure_kinds import ClientsKind
from fedscope.figures.text.client_tables import by_run, clients_tables, rounds_tables
from fedscope.figures.text.labels import label
from fedscope.records.client_quantities import RoundsKind
from fedscope.workflows.clients.clients_request import (
    FAST,
    MEASURES,
    SAMPLES,
    ClientsRequest,
    Measure,
    chosen,
)
from fedscope.workflows.option_fields import Rule, asked
from fedscope.workflows.sources.chosen_rounds import along
from fedscope.workflows.sources.targets import Targets

if TYPE_CHECKING:
    from fedscope.figures.text.hessian_table import Table
    from fedscope.records.clients_record import ClientsRecord

Kind = ClientsKind | RoundsKind
Width = Literal["column", "page"]
SHOWN: Mapping[Kind, tuple[Measure, ...]] = {
    "gap": ("loss", "lambda_max", "trace"),
    "alignment": ("alignment",),
    "drift": ("drift",),
    "matrix": ("overlap", "diagonals", "barriers"),
    "diagonals": ("diagonals",),
}
"""The parts of which each kind of figure shows what there is."""
GROUPS = groups_of(
    ClientsRequest,
    {
        "Most used": ("--only", "--samples", "--figure", "--kind", "--json"),
        "What is measured": ("--rounds", ..., "--recompute"),
        "What is drawn": ("--width", "--seconds"),
        "How precisely": (...,),
        **GROUPS_OF_RUNS,
    },
)
EXAMPLES = {
    "fedscope clients a": "loss, λ_max and trace of each client and of all, alignment, cost of averaging",
    "fedscope clients a@10 --only loss,alignment --json a.json": "two parts, of round 10",
    "fedscope clients a --rounds 1:20:5 --figure a.png": "gaps by round, below accuracy",
    "fedscope clients a --rounds all --only drift --kind drift --figure a.gif": "a film of the rounds",
    "fedscope clients a --only overlap --figure a.png --kind matrix": "overlap of the clients' eigenspaces",
}


RULES: Sequence[OptionRule] = (
    Rule("seconds", lambda v: shared.is_film(v["figure"]), "but on a film (.gif)"),
    Rule("kind width", lambda v: v["figure"], "without --figure"),
)


@click.command("clients", cls=Command, groups=GROUPS, examples=EXAMPLES, rules=RULES)
@analysis_on(f"{SAMPLES} of each client's rows, and of all", own=False)
@click.option("--only", metavar="PART,…",
              help=f"Parts to measure: {', '.join(MEASURES)}, or all. [default: {','.join(FAST)}, the fourth "
              "where the model that the round began with was kept]")  # fmt: skip
@options_of(ClientsRequest)
@click.option("--recompute", is_flag=True, help="Measure again what the registry has a result of.")
@click.option("--rounds", "round_range", metavar="FIRST:LAST:STEP|all",
              help="These rounds of each RUN, or all whose uploads it kept.")  # fmt: skip
@click.option("--figure", "--out", "figure", metavar="FILE", callback=shared.writable,
              help="Also draw to a .png, .pdf or .svg file; with --rounds these are curves by round, and a "
              ".gif is a film of the rounds.")  # fmt: skip
@click.option("--kind", type=click.Choice([*SHOWN]), default="gap", show_default=True,
              help="What --figure draws: flatness gaps, alignment of the updates, cost of averaging, "
              "matrices of the pairs of clients (no curves), or H_N and H_D (curves only).")  # fmt: skip
@click.option("--width", type=click.Choice(get_args(Width)), default="column", show_default=True,
              help="Of the figure: 84 or 175 mm.")  # fmt: skip
@click.option("--seconds", type=click.FloatRange(0.04, 60), default=0.5, show_default=True,
              help="How long each frame of a film is seen.")  # fmt: skip
def command(
    targets: Targets,
    json_target: str | None,
    only: str | None,
    recompute: bool,
    round_range: str | None,
    figure: str | None,
    kind: Kind,
    width: Width,
    seconds: float,
    **options: Any,
) -> None:
    """Measure where the clients of a round part from each other and from the global model.

    CKPT is a round's global model: RUN, RUN@25; left out, the newest run's. Its clients' uploads must have
    been kept: `fedscope train --save-clients last`, or all. With --rounds it is the name of a run, which kept
    its rounds (--save-clients all --keep-every K).
    """
    parts = FAST if only is None else chosen(only)
    request = asked(ClientsRequest, options, only=parts, bn=targets.bn)
    if figure:
        _check_shown(kind, parts, Path(figure), len(targets.checkpoints), along=bool(round_range))
    from fedscope.workflows.clients.measure_clients import clients  # torch: not for --help
    from fedscope.workflows.sources.run_clients import UPLOADS

    if round_range:
        targets = along(targets, round_range, UPLOADS)
    found = clients(targets, request, console.REPORTER, again=recompute, possible=only is None)
    if not console.in_json(json_target, console.one_or_all([record.to_json() for record in found])):
        _show_rounds(found) if round_range else _show(found)
    if figure:
        size = "SINGLE_COLUMN" if width == "column" else "DOUBLE_COLUMN"
        _draw(found, kind, size, Path(figure), targets.registry if round_range else None, seconds)


def _check_shown(kind: Kind, parts: Sequence[Measure], path: Path, rounds: int, *, along: bool) -> None:
    """Refuse, before anything is measured, a picture that cannot be drawn of it."""
    from fedscope.figures.style import check_format

    film = shared.is_film(str(path))
    if film and not along:
        raise UserError(f"{path.suffix} is a film of rounds: add --rounds FIRST:LAST:STEP, or name a .png")
    if not film:
        check_format(path)
    if rounds > 1 and not along:
        raise UserError(
            f"a figure of clients is of one round, not {rounds}: make several figures, or give RUN --rounds"
        )
    curves = along and not film
    if kind == ("matrix" if curves else "diagonals"):
        mend = "name a .gif for a film" if curves else "add --rounds, or take --kind matrix"
        raise UserError(f"--kind {kind} is {'no curve' if curves else 'of curves by round'}: {mend}")
    shown = SHOWN[kind]
    if not {*shown} & {*parts}:
        raise UserError(
            f"--kind {kind} draws {', '.join(shown)}, and --only measures {', '.join(parts)}; add what it "
            "draws to --only, or take another --kind"
        )


def _show(found: "list[ClientsRecord]") -> None:
    for record in found:
        _show_tables(clients_tables(record))
        _note([record], label(record.checkpoint))


def _show_rounds(found: "list[ClientsRecord]") -> None:
    _show_tables(rounds_tables(found))
    for run, records in by_run(found).items():
        _note(records, run)


def _show_tables(tables: "Iterable[Table]") -> None:
    console.show(piece for table in tables for piece in (console.piece(table), ("line", "")))


def _note(records: "list[ClientsRecord]", name: str) -> None:
    if all(record.reused for record in records):
        console.note(f"{name}: as measured before; --recompute measures again")
    if not all(record.converged for record in records):
        console.note(f"{name}: not every eigenpair reached --tol; take a larger one, or a smaller --top-k")


def _draw(
    found: "list[ClientsRecord]", kind: Kind, width: str, path: Path, registry: Path | None, seconds: float
) -> None:
    from fedscope.figures import animation, style
    from fedscope.figures.clients.round_figures import draw, frame_figures, rounds_figure
    from fedscope.figures.embedded_record import made_from

    inches, made = getattr(style, width), made_from(found)
    if shared.is_film(str(path)):
        assert kind != "diagonals"
        figures = frame_figures(found, kind, width=inches)
        animation.save_film(figures, path, record=made, seconds=seconds)
    elif registry:
        from fedscope.workflows.run_records import runs_of

        assert kind != "matrix"
        style.save(rounds_figure(found, runs_of(found, registry), kind, width=inches), path, record=made)
    else:
        assert kind != "diagonals"
        style.save(draw(found, kind, width=inches), path, record=made)
