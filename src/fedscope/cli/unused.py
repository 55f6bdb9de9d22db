"""Options that have no effect beside others: given on the command line they are refused.

A rule names parameters of a command, says from the values of all parameters whether they have an effect, and
why they have none. What is left at its default, or comes from the environment or a file, is never refused,
nor what a ``--no-…`` beside it takes back: that is how a command is run again.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from click.core import ParameterSource

from fedscope.errors import UserError

if TYPE_CHECKING:
    from fedscope.checkpoints.file.schema import Settings

Values = Mapping[str, Any]


class Rule(NamedTuple):
    """When parameters have an effect, and what the refusal says otherwise."""

    parameters: str
    have_effect: Callable[[Values], object]
    why: str


def _compared(values: Values) -> bool:
    return bool(values["clients"] or (values["figure"] and values["kind"] == "clients"))


def _names_a_run(values: Values) -> bool:
    names = values["checkpoints"]
    return not names or any(not ("@" in name or "/" in name or Path(name).is_file()) for name in names)


def _certified(values: Values) -> bool:
    return (values["engine"], values["reading"]) == ("fedscope", "paper")


def _suffix(values: Values) -> str:
    return Path(values["out"]).suffix.lower()


def _is_read(parameter: str, values: Values) -> bool:
    from fedscope.data.partition.partition import PARAMETERS

    return parameter in PARAMETERS.get(values["partition"], _DIVIDING)


_DIVIDING = ("alpha", "exhausted", "phi", "rho")
_ANALYSIS = (Rule("entry", lambda v: v["model"], "without --model and --data"),)
RULES: Mapping[str, Sequence[Rule]] = {
    "hessian": (
        *_ANALYSIS,
        Rule("kind", lambda v: v["figure"], "without --figure"),
        Rule("trace_rtol", lambda v: not v["probes"], "with --probes"),
        Rule("trace_rtol", _certified, "with --engine pyhessian or --reading code"),
        Rule("global_model", _names_a_run, "on files and RUN@… (it is for RUN alone)"),
        Rule(
            "client_weights client_data pairs client_rtol client_max_probes client_probes aim overlap",
            _compared,
            "without --clients",
        ),
        Rule("client_rtol client_max_probes aim", lambda v: not v["client_probes"], "with --client-probes"),
    ),
    "plot-landscape": (
        *_ANALYSIS,
        Rule("seconds", lambda v: _suffix(v) in (".gif", ".mp4"), "but on a film (.gif, .mp4)"),
        Rule("kind", lambda v: _suffix(v) != ".html", "on an .html page"),
        Rule("kind", lambda v: v["directions"] != "line", "on a line, which is a curve"),
    ),
    "report": _ANALYSIS,
    "add": (
        Rule(
            "augmentation data_dir",
            lambda v: ":" not in v["model"] or _is_known(v["dataset"]),
            "with a network of your own on data that fedscope lacks",
        ),
    ),
    "tag": (Rule("remove", lambda v: v["tags"], "without tags"),),
}
SETTINGS = (
    *(Rule(name, partial(_is_read, name), "with --partition {partition}") for name in _DIVIDING),
    Rule("memory", lambda v: _remembers(v["method"]), "with {method}, whose clients remember nothing"),
    Rule("optimizer_state", lambda v: v["momentum"], "without --momentum"),
    Rule("shift_probability", lambda v: v["shift"] == "bernoulli", "without --shift bernoulli"),
    Rule("shift_metric", lambda v: v["shift"] != "none", "without --shift"),
    Rule("keep_every", lambda v: v["keep_every"] <= v["rounds"], "beyond the {rounds} rounds"),
)


def typed(context: click.Context) -> dict[str, str]:
    """Return what was given on the command line: the parameters' names, each with its flag."""
    return {
        str(param.name): param.opts[0]
        for param in context.command.params
        if context.get_parameter_source(str(param.name)) is ParameterSource.COMMANDLINE
    }


def check_unused(context: click.Context) -> None:
    """Refuse options that have no effect.

    Raises:
        UserError: some are given.
    """
    _check(RULES.get(str(context.command.name), ()), typed(context), context.params)


def check_source(*, own: bool) -> None:
    """Refuse options of a data set of the catalogue where all data is the user's ``own``.

    Raises:
        UserError: some are given.
    """
    of_ours = Rule("split data_dir", lambda v: not v["own"], "with --data")
    _check((of_ours,), typed(click.get_current_context()), {"own": own})


def check_settings(settings: "Settings") -> None:
    """Refuse options of a training that have no effect on it, among those of the command that runs, if any.

    Raises:
        UserError: some are given.
    """
    if context := click.get_current_context(silent=True):
        _check(SETTINGS, typed(context), settings.model_dump())


def _check(rules: Sequence[Rule], given: Mapping[str, str], values: Values) -> None:
    for rule in rules:
        flags = [given[name] for name in rule.parameters.split() if name in given]
        if flags and not rule.have_effect(values):
            why, needed = rule.why.format(**values), rule.why.removeprefix("without ")
            have, it = ("have", "them") if flags[1:] else ("has", "it")
            add = f", or add {needed}" if needed != rule.why else ""
            raise UserError(f"{', '.join(flags)} {have} no effect {why}; leave {it} out{add}")


def _remembers(method: str) -> bool:
    from fedscope.federated.methods import parse

    return bool(parse(method).memory)


def _is_known(dataset: str) -> bool:
    from fedscope.data.sets.catalogue import DATASETS

    return dataset in DATASETS
