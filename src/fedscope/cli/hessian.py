"""`fedscope hessian`: λ_max, trace, density and cross-client metrics of checkpoints."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click

from fedscope.checkpoints.registry.run_registry import RunRegistry
from fedscope.cli.options import shared
from fedscope.cli.options.analysis import GROUPS as analysis_groups
from fedscope.cli.options.analysis import analysis
from fedscope.cli.options.command import Command, OptionRule
from fedscope.cli.options.request_options import groups_of, options_of
from fedscope.cli.options.shared import size_of
from fedscope.cli.terminal import answers, console
from fedscope.cli.terminal.hessian_shown import shown
from fedscope.figures.figure_kinds import SpectrumKind
from fedscope.figures.text.labels import label
from fedscope.records.hessian_record import HessianRecord
from fedscope.workflows.option_fields import Rule, asked, check_effects
from fedscope.workflows.requests import LISTED, Request
from fedscope.workflows.results import answer_files
from fedscope.workflows.results.stored_answers import Answer, Stamps, stamps, store
from fedscope.workflows.sources.chosen_rounds import along_given
from fedscope.workflows.sources.targets import Targets

if TYPE_CHECKING:
    from fedscope.workflows.curvature.hessian_command import MeasuredCheckpoint

GROUPS = groups_of(
    Request,
    {
        "Most used": ("--samples", ..., "--figure", "--json"),
        "What is measured": (..., "--rounds", "--local-steps", "--kind", "--recompute"),
        "How precisely": (...,),
        "Time and memory": ("--dry-run", "--memory"),
        "Between clients (H_N, H_D)": (...,),
        "As the published code computes": (...,),
        **analysis_groups,
    },
)
EXAMPLES = {
    "fedscope hessian": "λ_max and trace of the newest run",
    "fedscope hessian a b --top-k 5 --figure bars.png --kind bars": "two runs beside each other",
    "fedscope hessian a --rounds all --json a.json": "λ_max and trace of every round that a run kept",
    "fedscope hessian a@best --clients --json a.json": "H_N and H_D of a run's clients too",
    "fedscope hessian a --influence --figure who.png --kind influence": "which samples make λ_max",
    "fedscope hessian a --dry-run --memory 8G": "what it would take, and what is chosen to stay within 8 GiB",
    "fedscope hessian w.pt --model mine:Net --data mine:batches": "a network and data of your own",
}
NO_PARTS = (
    "which samples make λ_max is not known: an operation of the network or the loss has no derivative in "
    "forward mode (a torch.autograd.Function needs a jvp), or the samples' parts do not add up to λ_max"
)


def _is_run(name: str) -> bool:
    return not ("@" in name or "/" in name or Path(name).is_file())


RULES: Sequence[OptionRule] = (
    Rule("kind", lambda v: v["figure"], "without --figure"),
    Rule("figure recompute", lambda v: not v["dry_run"], "with --dry-run"),
)


@click.command("hessian", cls=Command, groups=GROUPS, examples=EXAMPLES, rules=RULES)
@analysis
@options_of(Request)
@click.option("--rounds", "round_range", metavar="FIRST:LAST:STEP|all",
              help="These rounds of each RUN, or all that it kept; λ_max of each but the first begins at the "
              "one before, and is not certified.")  # fmt: skip
@click.option("--local-steps", "step_range", metavar="FIRST:LAST:STEP|all",
              help="These local steps of each RUN@ROUND:clientK, or all that `train --keep-steps` kept; as "
              "--rounds.")  # fmt: skip
@click.option("--memory", metavar="SIZE",
              help="Stay within SIZE, such as 8G: chooses samples at a time, graphs that are kept, probes at "
              "a time, and how the Krylov basis is kept.")  # fmt: skip
@click.option("--dry-run", is_flag=True,
              help="Measure nothing; print the memory, products and seconds that it would take.")  # fmt: skip
@click.option("--recompute", is_flag=True, help="Measure again what the registry has a result of.")
@click.option("--figure", "--out", "figure", metavar="FILE", callback=shared.writable,
              help="Also draw to a .png, .pdf or .svg file.")  # fmt: skip
@click.option("--kind", type=click.Choice(get_args(SpectrumKind)),
              default="density", show_default=True,
              help="What --figure draws: the density, the --top-k eigenvalues, H_N and H_D of the pairs of "
              "clients, bars of λ_max and trace, or which samples make λ_max.")  # fmt: skip
def command(
    targets: Targets,
    json_target: str | None,
    round_range: str | None,
    step_range: str | None,
    recompute: bool,
    memory: str | None,
    dry_run: bool,
    figure: str | None,
    kind: SpectrumKind,
    **options: Any,
) -> None:
    """Measure the curvature of the training loss at checkpoints.

    CKPT is a file, or RUN, RUN@25, RUN@25:all, RUN@best, RUN@0, RUN@client3 of the registry; left out, the
    newest run. Several are compared in one table. With --rounds it is the name of a run, with --local-steps a
    client of a round, RUN@25:client3. With --reading code RUN alone is RUN@best.
    """
    request = request_of(targets, kind if figure else None, options)
    check_effects(request, targets.named)
    targets = along_given(targets, round_range, step_range)
    if round_range or step_range:
        request = replace(request, warm=request.certified)
    if request.reading == "code":
        targets = best_of_runs(targets)
    within = size_of(memory) if memory else None
    if dry_run:
        _plan(targets, request, within, json_target)
        return
    measured_anew = figure or recompute or request.influence or not request.certified
    place = None if measured_anew else answer_files.place(targets, request)
    if answers.print_stored(place and place.file, json_target):
        return
    from fedscope.workflows.curvature.hessian_command import curvature  # torch: not for --help

    if figure:
        from fedscope.figures.style import check_format  # matplotlib: not for a table

        check_format(Path(figure))
    rests = place and answer_files.rests_on(place.checkpoints, targets.data_dir, clients=request.clients)
    found = curvature(targets, request, console.REPORTER, again=recompute, memory=within)
    if not found:  # another process of torchrun's prints the result
        return
    if place and rests is not None:
        _keep(place.file, rests, targets, found)
    records = [measured.record for measured in found]
    for record in records:
        if request.influence and not record.influence:
            console.note(f"{label(record.checkpoint)}: {NO_PARTS}")
    if not console.in_json(json_target, _content(records)):
        console.show(shown(records))
    if figure:
        _draw(found, kind, Path(figure))


def request_of(targets: Targets, drawn: str | None, options: Mapping[str, Any]) -> Request:
    """Return what the options ask for, and what a figure of the kind ``drawn`` needs.

    Of reading ``code`` the shared options are the loader's; their defaults are those of the scripts.
    """
    request, given = asked(Request, options, bn=targets.bn), targets.named
    loader = replace(
        request.resampling,
        samples=targets.samples if isinstance(targets.samples, int) else None,
        batch_size=targets.batch_size,
        seed=targets.seed if "seed" in given else request.resampling.seed,
    )
    return replace(
        request,
        resampling=loader,
        density=request.density or drawn == "density",
        influence=request.influence or (LISTED if drawn == "influence" else None),
        clients=request.clients or drawn == "clients",
    )


def best_of_runs(targets: Targets) -> Targets:
    """Return the targets with ``@best`` added where a run alone is named, or nothing."""
    newest = () if targets.checkpoints else (RunRegistry(targets.registry).newest().name,)
    names = (f"{one}@best" if _is_run(one) else one for one in (*targets.checkpoints, *newest))
    return replace(targets, checkpoints=tuple(names))


def _plan(targets: Targets, request: Request, memory: int | None, target: str | None) -> None:
    from fedscope.workflows.curvature.hessian_command import plans
    from fedscope.workflows.curvature.measurement_plan import described

    found = plans(targets, request, console.REPORTER, memory=memory)
    if not console.in_json(target, console.one_or_all([plan.to_json() for plan in found])):
        console.show(("line", line) for plan in found for line in described(plan))


def _keep(path: Path, rests: Stamps, targets: Targets, found: Sequence["MeasuredCheckpoint"]) -> None:
    """Store what is said of kept results the next time."""
    from fedscope.workflows.sources.problems import remarks

    results = stamps(measured.kept for measured in found if measured.kept)
    if results is None or not all(measured.kept for measured in found):
        return
    again = [measured.record.edited(reused=True) for measured in found]
    notes = [("note", line) for line in remarks([measured.problem for measured in found], targets)]
    store(path, {**rests, **results}, Answer(_content(again), list(shown(again)), notes))


def _content(records: Sequence[HessianRecord]) -> Any:
    if len(records) > 1:
        from fedscope.records.differences import compared  # torch: not for one

        records = compared(records)
    return console.one_or_all([record.to_json() for record in records])


def _draw(found: Sequence["MeasuredCheckpoint"], kind: SpectrumKind, path: Path) -> None:
    from fedscope.figures.embedded_record import made_from
    from fedscope.figures.spectrum.hessian_figures import draw
    from fedscope.figures.style import save
    from fedscope.workflows.curvature.influential_samples import images_of

    records = [measured.record for measured in found]
    images = images_of(found[0].problem, records[0]) if kind == "influence" else None
    save(draw(records, kind, images), path, record=made_from(records))
