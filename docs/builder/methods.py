"""A page per method, from its record: objective, equations, source, state, traffic, options, cost."""

import json
import re
from pathlib import Path
from typing import Any

from builder.markdown import escaped, fence, prose, table
from fedscope.cli.methods import FACTS, describe, meaning, said
from fedscope.federated.methods import ALIASES, METHODS
from fedscope.federated.methods.families import FAMILIES, family, module
from fedscope.federated.record.method import Method

FOLDER = "methods"
WORDS = {
    "place": "enters the step",
    "client_state": "a client remembers",
    "server_state": "the server keeps",
    "to_a_client": "sent to a client",
    "from_a_client": "sent by a client",
    "models_held": "vectors of P that a training client holds",
    "gradients": "gradients of the task loss per step",
    "flatness": "its paper claims flat minima",
    "weights": "weights of the mean",
    "alone": "stacks",
    "not_with": "not with",
}


def titles() -> dict[str, str]:
    """Return the pages by path, with their titles."""
    return {f"{FOLDER}/{name}.md": name for name in METHODS}


def pages(root: Path) -> dict[str, str]:
    """Return the pages by path."""
    costs = json.loads((root / "benchmarks/methods.json").read_text(encoding="utf-8"))
    return {f"{FOLDER}/{name}.md": _page(method, costs) for name, method in METHODS.items()}


def index() -> str:
    """Return a table of the methods, family by family."""
    rows = [
        [family(method), f"[{name}]({name}.md)", escaped(method.objective), escaped(method.source)]
        for name, method in METHODS.items()
    ]
    order = list(FAMILIES.values())
    return table(
        ["family", "method", "objective", "source"], sorted(rows, key=lambda row: order.index(row[0]))
    )


def _page(method: Method, costs: dict[str, Any]) -> str:
    facts = describe(method)
    kin = [name for name, other in METHODS.items() if other is not method and family(other) == family(method)]
    parts = [
        f"# {method.name}\n",
        f"**{family(method)}.** {escaped(method.source)}.\n",
        f"Objective of a client: {escaped(method.objective)}\n",
    ]
    if facts["aliases"]:
        parts.append(f"Also called {', '.join(f'`{alias}`' for alias in facts['aliases'])}.\n")
    parts.append(fence("sh", f"fedscope methods show {method.name}\nfedscope train --method {method.name}"))
    parts.append(f"## Equations\n\n{_told(module(method).__doc__ or '')}\n")
    if kin:
        parts.append(f"In the same family: {', '.join(f'[{name}]({name}.md)' for name in kin)}.\n")
    rows = [[WORDS[name], escaped(said(facts[name]))] for name in FACTS if name in WORDS and facts[name]]
    parts.append("## State and traffic\n\n" + table(["of a run", "with this method"], rows))
    parts.append("P is the number of parameters, P+Q that with BatchNorm's statistics.\n")
    if facts["options"]:
        parts.append("## Options\n\nOf `fedscope train`, as `--set NAME=VALUE`.\n")
        rows = [
            [f"`{one['name']}`", f"`{one['default']}`", f"`{one['code']}`", escaped(meaning(one))]
            for one in facts["options"]
        ]
        parts.append(table(["name", "default", "`--reading code`", "meaning"], rows))
    parts += _cost(method.name, costs)
    names = [alias for alias, name in ALIASES.items() if method.name in name.split("+") and "+" in name]
    if names:
        parts.append(f"Part of {', '.join(f'`{name}` ({ALIASES[name]})' for name in names)}.\n")
    parts.append("How methods add up: [Methods](../methods.md#how-methods-add-up).\n")
    return "\n".join(parts)


def _told(docstring: str) -> str:
    """Return a module's docstring as Markdown paragraphs."""
    return "\n\n".join(prose(" ".join(part.split())) for part in re.split(r"\n\s*\n", docstring))


def _cost(name: str, costs: dict[str, Any]) -> list[str]:
    """Return what a step costs on the networks that ``benchmarks/methods.json`` measured."""
    rows = []
    for group in ("man", "fedalign"):
        measured = costs[group]["methods"]
        found = measured.get(name) or measured.get(f"fedavg+{name}")
        if found:
            cost, base = found["cost"], measured["fedavg"]["cost"]
            rows.append(
                [
                    f"`{costs[group]['settings']['model']}`",
                    str(cost["gradients"]),
                    f"{cost['multiply_accumulates'] / base['multiply_accumulates']:.2f}",
                    f"{cost['parameters_held'] / base['parameters_held']:.2f}",
                    f"{found['seconds_relative_to_fedavg']['median']:.2f}",
                ]
            )
    if not rows:
        return []
    head = ["network", "gradients of the task loss per step", "multiply-accumulates", "scalars held", "time"]
    return [f"## Cost\n\nOf a local step; the last three relative to FedAvg's.\n\n{table(head, rows)}"]
