"""Options of a command that have no effect beside others: given on the command line they are refused.

A value from a default, the environment or a file is never refused, nor an option that a ``--no-…`` after it
takes back: a command may be run again with more options.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from fedscope.workflows.sharpness.sharpness_request import QUANTITIES, SharpnessDefinition, SharpnessRequest
from fedscope.workflows.unused import Rule, check

Values = dict[str, Any]  # of click's parameters, by name


def _compared(values: Values) -> bool:
    return bool(values["clients"] or (values["figure"] and values["kind"] == "clients"))


def _names_a_run(values: Values) -> bool:
    names = values["checkpoints"]
    return not names or any(not ("@" in name or "/" in name or Path(name).is_file()) for name in names)


def _is_estimated(values: Values) -> bool:
    return bool(values["engine"] != "pyhessian" and values["reading"] == "paper")


def _suffix(option: str, values: Values) -> str:
    return Path(values[option] or "").suffix.lower()


def _is_film(option: str, values: Values) -> bool:
    return _suffix(option, values) in (".gif", ".mp4")


def _asks(families: str, values: Values) -> bool:
    return any(one.family in families.split() for one in _quantities(values))


def _searches(values: Values) -> bool:
    return any(one.family == "worst" for one in _quantities(values) if one != QUANTITIES["sam"])


def _quantities(values: Values) -> list[SharpnessDefinition]:
    """Return those that are asked for; all where a name is none, which the command refuses."""
    names = SharpnessRequest(only=values["only"]).names
    return [QUANTITIES[name] for name in (names if set(names) <= set(QUANTITIES) else QUANTITIES)]


_ANALYSIS: Sequence[Rule[Values]] = (Rule("entry", lambda v: v["model"], "without --model and --data"),)
RULES: Mapping[str, Sequence[Rule[Values]]] = {
    "hessian": (
        *_ANALYSIS,
        Rule("kind", lambda v: v["figure"], "without --figure"),
        Rule("figure recompute", lambda v: not v["dry_run"], "with --dry-run"),
        Rule("trace_rtol", lambda v: not v["probes"], "with --probes"),
        Rule("tol", lambda v: v["engine"] != "power", "with --engine power, which takes 20 products"),
        Rule("trace_rtol", _is_estimated, "with --engine pyhessian or --reading code"),
        Rule("global_model", lambda v: not v["round_range"], "with --rounds"),
        Rule("global_model", _names_a_run, "on files and RUN@… (it is for RUN alone)"),
        Rule(
            "client_weights client_data pairs client_rtol client_max_probes client_probes aim overlap",
            _compared,
            "without --clients",
        ),
        Rule("client_rtol client_max_probes aim", lambda v: not v["client_probes"], "with --client-probes"),
    ),
    "clients": (
        Rule("seconds", partial(_is_film, "figure"), "but on a film (.gif, .mp4)"),
        Rule("kind width", lambda v: v["figure"], "without --figure"),
    ),
    "plot-landscape": (
        *_ANALYSIS,
        Rule("seconds", partial(_is_film, "out"), "but on a film (.gif, .mp4)"),
        Rule("kind", lambda v: _suffix("out", v) != ".html", "on an .html page"),
        Rule("kind", lambda v: v["directions"] != "line", "on a line, which is a curve"),
    ),
    "report": (*_ANALYSIS, Rule("no_compute record", lambda v: not v["dry_run"], "with --dry-run")),
    "sharpness": (
        *_ANALYSIS,
        Rule("kind", lambda v: v["figure"], "without --figure"),
        Rule("m", partial(_asks, "worst"), "without a worst case, such as --only sam"),
        Rule("steps reading", _searches, "without Auto-PGD, such as --only worst_l2"),
        Rule("pairs", partial(_asks, "average low_pass pac_bayes"), "where nothing is drawn in pairs"),
        Rule("normalize_logits", partial(_asks, "worst average"), "without worst and average cases"),
        Rule("target", partial(_asks, "pac_bayes"), "without --only pac_bayes"),
    ),
    "add": (
        Rule(
            "augmentation data_dir",
            lambda v: ":" not in v["model"] or _is_known(v["dataset"]),
            "with a network of your own on data that fedscope lacks",
        ),
    ),
    "delete": (Rule("local_steps", lambda v: not v["clients"], "with --clients, which deletes them too"),),
    "tag": (Rule("remove", lambda v: v["tags"], "without tags"),),
}


def flags_given(context: click.Context) -> dict[str, str]:
    """Return what was given on the command line: the parameters' names, each with its flag."""
    return {
        str(param.name): param.opts[0]
        for param in context.command.params
        if context.get_parameter_source(str(param.name)) is ParameterSource.COMMANDLINE
    }


def check_unused(context: click.Context) -> None:
    """Refuse options that have no effect."""
    check(RULES.get(str(context.command.name), ()), flags_given(context), context.params)


def _is_known(dataset: str) -> bool:
    from fedscope.data.sets.dataset_catalogue import DATASETS

    return dataset in DATASETS
