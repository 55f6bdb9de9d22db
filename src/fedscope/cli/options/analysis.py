"""What the analysis commands share: which samples, which checkpoint, which precision."""

import re
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, Literal, get_args

import click

from fedscope.choices import BatchNormMode, DtypeName, SplitName
from fedscope.cli.options import completion, shared
from fedscope.cli.options.without_effect import flags_given
from fedscope.errors import UserError
from fedscope.workflows.sources.targets import SAMPLES, Targets


def _amount(
    _context: click.Context, _option: click.Parameter, text: str | None
) -> int | Literal["all"] | None:
    """Return the number of samples."""
    if text is None or text == "all":
        return text  # type: ignore[return-value]  # "all" is a literal here
    if not re.fullmatch("[0-9]{1,12}", text) or int(text) < 1:
        raise UserError(f"--samples takes a number from 1 up, or all, not {text!r}")
    return int(text)


USUAL = f"{SAMPLES}; all of your own --data"
_OWN = (
    click.option("--model", metavar="MODULE:FACTORY", help="Your own network; CKPT is then its state_dict."),
    click.option("--data", metavar="MODULE:FACTORY", help="Your own batches of (inputs, targets), or dicts."),
    click.option("--loss", metavar="MODULE:FUNCTION",
                 help="Your own loss of (output, targets), a mean over samples. [default: cross-entropy]"),
    click.option("--entry", default="", metavar="KEY",
                 help="Which of several networks in your file, such as model_ema."),
    click.option("--split", type=click.Choice(get_args(SplitName)), default="train",
                 show_default=True),
)  # fmt: skip
_OPTIONS = (
    click.argument("checkpoints", nargs=-1, metavar="[CKPT]...", shell_complete=completion.checkpoints),
    shared.data_dir,
    click.option("--bn", type=click.Choice(get_args(BatchNormMode)), default="eval",
                 show_default=True, help="BatchNorm statistics: stored, re-estimated, or the batch's own."),
    click.option("--dtype", type=click.Choice(get_args(DtypeName)), default="float32", show_default=True),
    click.option("--batch-size", type=click.IntRange(1),
                 help="Samples at a time; the data's error bars come from the batches' spread. "
                 "[default: 128; of your own --data fewer, where that makes 16 batches]"),
    click.option("--seed", type=click.IntRange(0), default=0, show_default=True,
                 help="Of the sample and the probes."),
    shared.device,
    shared.threads,
    shared.registry,
    shared.json_target,
)  # fmt: skip

GROUPS = {
    "Your own network and data": ("--model", "--data", "--loss", "--entry"),
    "Samples and numbers": ("--split", "--data-dir", "--batch-size", "--bn", "--dtype", "--seed"),
    "Machine and registry": ("--device", "--threads", "--registry", "--json"),
}
"""The shared options in groups for the help, but for those that a command has in its first group."""
GROUPS_OF_RUNS = {
    "Samples and numbers": GROUPS["Samples and numbers"][1:],
    "Machine and registry": GROUPS["Machine and registry"],
}
"""The same without what :func:`analysis_on` leaves out where nothing is the user's own."""
_OF_TARGETS = (
    "checkpoints", "samples", "split", "data_dir", "model", "data", "loss", "entry", "dtype", "batch_size",
    "seed", "device", "threads", "registry",
)  # fmt: skip


def analysis_on(samples: str, *, own: bool) -> shared.Decorator:
    """Return what adds the shared options to a command, which takes ``targets``, ``bn`` and ``json_target``.

    The checkpoints are looked for before anything that takes time is imported: a name may be mistyped. Where
    there is no such run or checkpoint, the command raises UserError.

    Args:
        samples: the default of --samples, for its help.
        own: whether it takes networks and data of the user's own, and a split, which clients do not have.
    """
    amount = click.option(
        "--samples",
        metavar="N|all",
        callback=_amount,
        help=f"Samples to analyse on, a fixed draw. [default: {samples}]",
    )

    def add(function: Callable[..., None]) -> Callable[..., None]:
        @wraps(function)
        def command(**given: Any) -> None:
            named = flags_given(click.get_current_context())
            known = {name: given.pop(name) for name in _OF_TARGETS if name in given}
            targets = Targets(**known, bn=given["bn"], named=named)
            inside = bool(given.get("step_range")) or given.get("directions") == "pca"
            _check_exist(targets, inside=inside)
            function(targets=targets, **given)

        for option in reversed((amount, *(_OWN if own else ()), *_OPTIONS)):
            command = option(command)
        return command

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
