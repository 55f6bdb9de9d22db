"""How a landscape's points are evaluated: options of ``fedscope plot-landscape``."""

from collections.abc import Callable
from typing import Any

import click

_OPTIONS = (
    click.option("--metric", "metrics", multiple=True, default=("loss",), show_default=True,
                 metavar="loss|accuracy|MODULE:FUNCTION",
                 help="What the record has beside the loss: a function of (output, targets) that returns "
                 "a value per sample or the batch's mean; may be repeated."),
    click.option("--adaptive", type=click.FloatRange(0, 1, min_open=True, max_open=True), metavar="TOL",
                 help="Evaluate only the points that it takes to interpolate the others to this relative "
                 "error, such as 0.01. [default: all]"),
    click.option("--precision", type=click.Choice(["fp32", "bf16"]), default="fp32", show_default=True,
                 help="Of the network's arithmetic; the record has the error of bf16."),
    click.option("--recompute", is_flag=True, help="Evaluate again what the registry has of these points."),
)  # fmt: skip


def evaluation(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options to a command."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def taken(options: dict[str, Any], shown: str) -> dict[str, Any]:
    """Take what a plane is told of these options out of the command's; ``recompute`` stays.

    The metric that is to be ``shown`` is among those of the record.
    """
    names = tuple(dict.fromkeys(name for name in (*options.pop("metrics"), shown) if name != "loss"))
    return {"metrics": names, **{name: options.pop(name) for name in ("adaptive", "precision")}}
