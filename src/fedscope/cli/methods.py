"""`fedscope methods`: what can be trained, and what each method is."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from fedscope.cli.options import completion, shared
from fedscope.cli.options.command import CommandGroup
from fedscope.cli.terminal import console
from fedscope.errors import UserError
from fedscope.workflows import catalogues

if TYPE_CHECKING:
    from fedscope.federated.record.method import Method, Required
    from fedscope.federated.record.options import Option
    from fedscope.federated.record.vectors import Vector

SIZES = {"parameters": "P", "model": "P+Q", "personal": "BatchNorm's", "number": "1"}


@click.group("methods", cls=CommandGroup)
def command() -> None:
    """List the methods, or show one: objective, state, traffic, options, sources."""


@command.command("list")
@shared.json_target
def list_methods(json_target: str | None) -> None:
    """List all methods; any of them add up, as in feddyn+man, unless they fill the same place."""
    facts, faults = catalogues.cached("method", _facts)
    if console.in_json(json_target, facts):
        return
    shown = ("name", "family", "objective", "source", "keeps", "down", "up", "gradients", "flatness")
    rows = [[said(method[name]) for name in shown] for method in facts]
    notes = [
        "keeps: vectors of P parameters that a client keeps; down, up: what is sent to and by it, statistics "
        "of BatchNorm besides. gradients: of the task loss, per step. flat: its paper claims flat minima."
    ]
    notes += catalogues.cached("method-aliases", _aliases)
    notes += faults
    console.print_table(
        "Methods", [*shown[:-1], "flat"], rows, notes, text_columns=4, drop=("source", "family", "up", "down")
    )


@command.command("show", examples={"fedscope methods show feddyn+man": "a sum of two methods"})
@click.argument("method", shell_complete=completion.names_of("method"))
@shared.json_target
def show(method: str, json_target: str | None) -> None:
    """Show a method, or a sum such as feddyn+man."""
    catalogues.check("method", method)
    facts = next((one for one in catalogues.cached("method", _facts)[0] if one["name"] == method), None)
    if facts is None:
        from fedscope.federated.methods import parse

        facts = describe(parse(method))
    if console.in_json(json_target, facts):
        return
    rows = [[name.replace("_", " "), said(facts[name])] for name in FACTS if facts[name]]
    console.print_table(facts["name"], ["", ""], rows, text_columns=2)
    rows = [
        [
            option["name"], str(option["default"]),
            "" if option["code"] == option["default"] else str(option["code"]), meaning(option),
        ]
        for option in facts["options"]
    ]  # fmt: skip
    if rows:
        columns = ["--set", "default", "--reading code", "meaning"]
        console.print_table("Options", columns, rows, text_columns=4, drop=("--reading code",))


def _facts() -> tuple[list[dict[str, Any]], list[str]]:
    from fedscope.federated.methods import known, set_aside
    from fedscope.federated.record.method import Method

    methods = [describe(method) for method in known().values() if isinstance(method, Method)]
    return methods, list(map(str, set_aside()))


def _aliases() -> list[str]:
    from fedscope.federated.methods import ALIASES

    return [f"{alias} is {method}." for alias, method in ALIASES.items()]


FACTS = (
    "family", "objective", "source", "place", "client_state", "server_state", "to_a_client", "from_a_client",
    "models_held", "gradients", "flatness", "weights", "bound_to", "alone", "not_with",
)  # fmt: skip


def describe(method: "Method") -> dict[str, Any]:
    """Return what there is to know about a method, as plain data."""
    from fedscope.federated.methods import ALIASES
    from fedscope.federated.methods.families import family

    further = [v for v in method.server_state if v.name in method.broadcast]
    uploads = [v for v in method.uploads if not v.replaces_model]
    shared = "the model without BatchNorm" if method.personal else "the model"
    sent = "a model made from the server's own" if method.sends else shared
    sent = "the model that is trained" if method.averages and not method.sends else sent
    return {
        "name": method.name,
        "aliases": [alias for alias, name in ALIASES.items() if name == method.name],
        "family": family(method),
        "objective": method.objective,
        "source": method.source,
        "place": method.place or "nothing is added to the local step",
        "client_state": _vectors(method.memory),
        "server_state": _vectors(method.kept_vectors),
        "to_a_client": " + ".join([sent, *filter(None, [_vectors(further)])]),
        "from_a_client": " + ".join([shared, *filter(None, [_vectors(uploads)])]),
        "keeps": _amount(method.memory),
        "down": _amount(further, model=True),
        "up": _amount(uploads, model=True),
        "models_held": method.models_held(),
        "gradients": _gradients(method),
        "flatness": method.flatness,
        "weights": method.weights or "n_k",
        "bound_to": "; ".join(map(_bound, method.required_settings)),
        "alone": "its clients are not stacked" if method.trains_alone else "",
        "not_with": _refusals(method),
        "options": [
            {
                "name": option.name,
                "default": option.default,
                "code": option.default if option.code is None else option.code,
                "choices": list(option.choices),
                "bounds": _bounds(option),
                "help": option.help,
            }
            for option in method.options
        ],
    }


def _vectors(vectors: "Sequence[Vector]") -> str:
    return ", ".join(f"{vector.name} ({SIZES[vector.scope]})" for vector in vectors)


def _gradients(method: "Method") -> int | None:
    """Return the gradients of the task loss per step; nothing where another package's method cannot say."""
    from fedscope.federated.costs.training_cost import gradients_per_step
    from fedscope.federated.record.checked import checked

    try:
        return gradients_per_step(checked(method))
    except UserError:
        return None


def _amount(vectors: "Sequence[Vector]", *, model: bool = False) -> str:
    """Return how much vectors hold, with the model's parameters or without: such as 2P + 1; nothing as 0."""
    whole = model + sum(vector.scope in ("parameters", "model") for vector in vectors)
    numbers = sum(vector.scope == "number" for vector in vectors)
    personal = any(vector.scope == "personal" for vector in vectors)
    parts = [f"{whole if whole > 1 else ''}P"] * bool(whole) + ["BatchNorm"] * personal
    return " + ".join([*parts, *[str(numbers)] * bool(numbers)]) or "0"


def _bound(required: "Required") -> str:
    unless = "" if required.unless is None else " unless {}={}".format(*required.unless)
    return f"{required.flag}{unless}: {required.why}"


def _refusals(method: "Method") -> str:
    reasons: dict[str, list[str]] = {}
    for name, why in method.refuses.items():
        reasons.setdefault(why, []).append(name)
    return "; ".join(f"{', '.join(names)}: {why}" for why, names in reasons.items())


def _bounds(option: "Option") -> str:
    """Return between what a number lies; nothing for another value."""
    bounded = isinstance(option.default, int | float) and not isinstance(option.default, bool)
    return option.bounds() if bounded else ""


def said(value: object) -> str:
    """Return a fact as it is shown: yes, or nothing, for a flag; nothing for what is not known."""
    return ("yes" if value else "") if isinstance(value, bool) else "" if value is None else str(value)


def meaning(option: dict[str, Any]) -> str:
    """Return what an option means and may be."""
    allowed = " | ".join(option["choices"]) or option["bounds"]
    return str(option["help"]) + (f" [{allowed}]" if allowed else "")
