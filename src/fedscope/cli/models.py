"""`fedscope models`: the networks of the catalogue, and what each is and costs.

PyTorch is imported by the commands, not by their help.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, NamedTuple, cast, get_args

import click

from fedscope.choices import Shortcut
from fedscope.cli.options import completion, shared
from fedscope.cli.options.command import CommandGroup
from fedscope.cli.terminal import console
from fedscope.errors import UserError
from fedscope.workflows import catalogues

if TYPE_CHECKING:
    from fedscope.models.catalogue import CatalogueNetwork
    from fedscope.models.network_summary import NetworkSummary
    from fedscope.models.resnet import ResNet

Facts = dict[str, Any]


class Variant(NamedTuple):
    """A network, and the images and classes that it is built for; None: as published."""

    name: str
    classes: int | None
    channels: int | None
    side: int | None
    head: bool
    shortcut: Shortcut | None


@click.group("models", cls=CommandGroup)
def command() -> None:
    """List the networks, or show one: source, input, layers, parameters, costs."""


@command.command("list")
@shared.json_target
def list_models(json_target: str | None) -> None:
    """List all networks, each on the images and classes it was published for."""
    from fedscope.own import MODELS, registered

    found, defaults = catalogues.cached("model", _facts)
    others = registered(MODELS)
    if console.in_json(json_target, [*found, *({"name": name, "factory": others[name]} for name in others)]):
        return
    rows = [
        [
            facts["name"], ", ".join(facts["data"]), _shape(facts["input"]), facts["takes"],
            "yes" if facts["residual"] else "", f"{facts['parameters']:,}",
            _millions(facts["multiply_accumulates"]),
        ]
        for facts in found
    ]  # fmt: skip
    drop = ("published for", "residual", "MACs (M)", "takes", "data sets")
    columns = ["name", "data sets", "published for", "takes", "residual", "parameters", "MACs (M)"]
    notes = [
        "Residual: can have a head (MOON), be slimmed (GradAug, FedAlign) and drop blocks (StochDepth).",
        f"Without --model: {', '.join(f'{data}: {model}' for data, model in defaults.items())}.",
    ]
    console.print_table("Networks", columns, rows, notes, text_columns=5, drop=drop)
    if others:
        console.print_table("Of other packages", ("name", "factory"), list(others.items()), text_columns=2)


def _facts() -> tuple[list[Facts], dict[str, str]]:
    from fedscope.data.sets.dataset_catalogue import DATASETS
    from fedscope.models.catalogue import NETWORKS, outline
    from fedscope.models.network_summary import summary

    found = [
        _describe(
            name,
            record,
            record.classes,
            summary(outline(name, record.classes, record.channels), record.channels, record.side),
        )
        for name, record in NETWORKS.items()
    ]
    return found, {data: record.model for data, record in DATASETS.items()}


@command.command(
    "show", examples={"fedscope models show resnet20 --classes 100": "a network for 100 classes"}
)
@click.argument("name", shell_complete=completion.names_of("model"))
@click.option("--classes", type=click.IntRange(1), help="Number of classes. [default: as published]")
@click.option("--channels", type=click.IntRange(1), help="Channels of the images. [default: as published]")
@click.option("--side", type=click.IntRange(1), help="Pixels of a side. [default: as published]")
@click.option("--head", is_flag=True, help="With MOON's projection head.")
@click.option(
    "--shortcut",
    type=click.Choice(get_args(Shortcut)),
    help="Shortcuts of resnet8 and resnet20: padding, or projection. [default: A]",
)
@shared.json_target
def show(json_target: str | None, **given: Any) -> None:
    """Show a network: its layers, scalars and multiply-accumulates, and what the methods cost on it."""
    variant = Variant(**given)
    catalogues.check("model", variant.name)
    if variant.name in catalogues.names("model"):
        facts = catalogues.cached(f"model-{'-'.join(map(str, variant))}", lambda: _shown(variant))
    else:
        facts = _shown(variant)
    if console.in_json(json_target, facts):
        return
    _print_network(facts)
    if facts["residual"]:
        _print_costs(facts)


def _shown(variant: Variant) -> Facts:
    """Return the facts of a network for these images, and what the methods cost on it."""
    from fedscope.models.catalogue import find, outline
    from fedscope.models.network_summary import summary

    name, head, shortcut = variant.name, variant.head, variant.shortcut
    record = find(name)
    classes, channels = variant.classes or record.classes, variant.channels or record.channels
    side = variant.side or record.side
    if not record.takes(side):
        raise UserError(f"model {name} takes {record.sides}, not of {side}; choose another --side")
    model = outline(name, classes, channels, head=head, shortcut=shortcut)
    facts = _describe(name, record, classes, summary(model, channels, side))
    facts |= {"head": head, "shortcut": shortcut or (record.shortcuts[0] if record.shortcuts else None)}
    if record.residual:
        projected = outline(name, classes, channels, head=True, shortcut=shortcut)
        facts |= _costs(cast("ResNet", model), cast("ResNet", projected), channels, side)
    return facts


def _describe(name: str, record: CatalogueNetwork, classes: int, found: NetworkSummary) -> Facts:
    return {
        "name": name,
        "source": record.source,
        "data": list(record.data),
        "takes": record.sides,
        "residual": record.residual,
        "shortcuts": list(record.shortcuts),
        "classes": classes,
        **asdict(found),
    }


def _costs(model: ResNet, projected: ResNet, channels: int, side: int) -> Facts:
    from fedscope.federated.costs.expected import COUNTS, expected_costs, options, square_law

    costs = expected_costs(model, projected, channels, side)
    whole = costs["fedavg"].multiply_accumulates
    return {
        "costs": {
            row: {"multiply_accumulates": cost.multiply_accumulates, "parameters_held": cost.parameters_held}
            for row, cost in costs.items()
        },
        "gradaug_square_law": [square_law(whole, side, options("gradaug", count)) for count in COUNTS],
    }


def _print_network(facts: Facts) -> None:
    rows = [
        ["source", facts["source"]],
        ["data sets", ", ".join(facts["data"])],
        ["input", f"{_shape(facts['input'])}; takes {facts['takes']}"],
        ["classes", str(facts["classes"])],
        ["parameters", f"{facts['parameters']:,} in {facts['tensors']} tensors"],
        [
            "of normalisation",
            f"{facts['norm_affine']:,}; and {facts['norm_statistics']:,} running statistics",
        ],
        ["multiply-accumulates", f"{facts['multiply_accumulates']:,} of convolutions and linear layers"],
        ["pooled", f"{facts['pooled']:,} elements into the global average pool"],
        *([["shortcut", facts["shortcut"]]] if facts["shortcut"] else []),
    ]
    title = facts["name"] + (" with a projection head" if facts["head"] else "")
    console.print_table(title, ["", ""], rows, text_columns=2)
    layers = [[stage["name"], stage["layers"], _shape(stage["output"])] for stage in facts["stages"]]
    console.print_table("Layers", ["", "", "output"], layers, text_columns=2)


def _print_costs(facts: Facts) -> None:
    rows = [
        [row, _millions(cost["multiply_accumulates"]), _millions(cost["parameters_held"])]
        for row, cost in facts["costs"].items()
    ]
    law = ", ".join(map(_millions, facts["gradaug_square_law"]))
    notes = [
        "MACs: expected multiply-accumulates of a step's forward passes per sample, pooled elements "
        "included; parameters: scalars held, without those of normalisation.",
        "Mendieta et al. 2022 price GradAug by the squares of the mean width and the mean side: "
        f"{law} M for n = 1…4.",
    ]
    console.print_table("A step's cost", ["method", "MACs (M)", "parameters (M)"], rows, notes)


def _shape(sizes: list[int]) -> str:
    return "×".join(map(str, sizes))


def _millions(count: float) -> str:
    return f"{count / 1e6:,.2f}"
