"""What the analysis commands share: which samples, which checkpoint, which precision."""

from collections.abc import Callable
from dataclasses import fields
from functools import wraps
from pathlib import Path
from typing import Any

import click

from fedscope.cli.options import completion, shared
from fedscope.cli.options.request_options import CountOr, options_of
from fedscope.cli.options.shared import flags_given
from fedscope.workflows.option_fields import check_effects
from fedscope.workflows.sources.targets import NUMBERS, OF_SPLITS, OWN, SAMPLES, Targets

USUAL = f"{SAMPLES}; all of your own --data"
_MACHINE = (shared.device, shared.threads, shared.registry, shared.json_target)

GROUPS = {
    OWN: ("--model", "--data", "--loss", "--entry"),
    NUMBERS: ("--split", "--data-dir", "--batch-size", "--bn", "--dtype", "--seed"),
    "Machine and registry": ("--device", "--threads", "--registry", "--json"),
}
"""The shared options in groups for the help, but for those that a command has in its first group."""
GROUPS_OF_RUNS = {
    NUMBERS: GROUPS[NUMBERS][1:],
    "Machine and registry": GROUPS["Machine and registry"],
}
"""The same without what :func:`analysis_on` leaves out where nothing is the user's own."""
_OF_TARGETS = [one.name for one in fields(Targets) if one.name != "named"]


def analysis_on(samples: str, *, own: bool) -> shared.Decorator:
    """Return what adds the shared options to a command, which takes ``targets`` and ``json_target``.

    The checkpoints are looked for before anything that takes time is imported: a name may be mistyped. Where
    there is no such run or checkpoint, the command raises UserError.

    Args:
        samples: the default of --samples, for its help.
        own: whether it takes networks and data of the user's own, and a split, which clients do not have.
    """
    chosen: list[shared.Decorator] = [
        click.argument("checkpoints", nargs=-1, metavar="[CKPT]...", shell_complete=completion.checkpoints),
        click.option("--samples", metavar="N|all", type=CountOr("all"),
                     help=f"Samples to analyse on, a fixed draw. [default: {samples}]"),
        options_of(Targets, () if own else (OWN, OF_SPLITS)),
        shared.data_dir,
        *_MACHINE,
    ]  # fmt: skip

    def add(function: Callable[..., None]) -> Callable[..., None]:
        @wraps(function)
        def command(**given: Any) -> None:
            named = flags_given(click.get_current_context())
            known = {name: given.pop(name) for name in _OF_TARGETS if name in given}
            targets = Targets(**known, named=named)
            check_effects(targets, named)
            inside = bool(given.get("step_range")) or given.get("directions") == "pca"
            _check_exist(targets, inside=inside)
            function(targets=targets, **given)

        made: Callable[..., Any] = command
        for option in reversed(chosen):
            made = option(made)
        return made

    return add


analysis = analysis_on(USUAL, own=True)


def _check_exist(targets: Targets, *, inside: bool) -> None:
    """Refuse what is not there; a client's round whose steps are taken may be without its upload.

    Args:
        targets: the checkpoints.
        inside: the models inside a client's round are taken, where the client of a round is named.
    """
    from fedscope.checkpoints.registry.run_registry import RunRegistry
    from fedscope.workflows.sources.chosen_rounds import client_of_round, steps_of

    store = RunRegistry(targets.registry)
    for reference in targets.checkpoints:
        if inside and client_of_round(reference):
            steps_of(store, reference)
        elif not Path(reference).exists():
            store.resolve(reference)
