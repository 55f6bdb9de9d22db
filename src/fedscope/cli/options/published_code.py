"""What a reading, the paper's or its published code's, makes of the options of `fedscope hessian`."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from fedscope.checkpoints.registry.run_registry import RunRegistry
from fedscope.errors import UserError
from fedscope.workflows.requests import LISTED, CrossClientRequest, Request, Resampling
from fedscope.workflows.sources.targets import Targets

RESAMPLING = ("product_batches", "augment", "resample")
CROSSING = {
    "client_weights": "weights", "client_data": "data", "pairs": "pairs", "client_probes": "probes",
    "client_rtol": "rtol", "client_max_probes": "max_probes", "aim": "aim", "overlap": "overlap",
}  # fmt: skip
"""Options of how clients are compared, each with its field of :class:`CrossClientRequest`."""


def request_of(targets: Targets, drawn: str | None = None, **options: Any) -> Request:
    """Return what the options of `fedscope hessian` ask for.

    Args:
        targets: the checkpoints and samples.
        drawn: the kind of figure, if any.
        **options: those of :data:`RESAMPLING` and :data:`CROSSING`; the others are fields of the request.
    """
    resampling = {name: options.pop(name) for name in RESAMPLING}
    crossing = {field: options.pop(name) for name, field in CROSSING.items()}
    if options["reading"] != "code" and any(value is not None for value in resampling.values()):
        raise UserError(
            "a product on other samples each time is what the published code does, not the paper; drop "
            "--product-batches, --augment and --resample, or add --reading code"
        )
    request = Request(
        cross_client=CrossClientRequest(**crossing), resampling=_resampling(targets, **resampling), **options
    )
    return replace(
        request,
        density=request.density or drawn == "density",
        influence=request.influence or (LISTED if drawn == "influence" else None),
        clients=request.clients or drawn == "clients",
    )


def _resampling(
    targets: Targets, *, product_batches: str | None, augment: bool | None, resample: bool | None
) -> Resampling:
    """Return which samples a product sees; defaults of the shared options become those of the scripts."""
    chosen = Resampling(augment=augment is not False, resample=resample is not False)
    if product_batches:
        if product_batches != "all" and not (product_batches.isdecimal() and int(product_batches)):
            raise UserError(f"--product-batches takes a number from 1 up, or all, not {product_batches!r}")
        chosen = replace(chosen, batches=None if product_batches == "all" else int(product_batches))
    if isinstance(targets.samples, int):
        chosen = replace(chosen, samples=targets.samples)
    source = click.get_current_context().get_parameter_source
    if source("batch_size") != ParameterSource.DEFAULT:
        chosen = replace(chosen, batch_size=targets.batch_size)
    if source("seed") != ParameterSource.DEFAULT:
        chosen = replace(chosen, seed=targets.seed)
    return chosen


def best_of_runs(targets: Targets) -> Targets:
    """Return the targets with ``@best`` added where a run alone is named, or nothing."""
    newest = () if targets.checkpoints else (RunRegistry(targets.registry).newest().name,)
    names = (
        name if "@" in name or "/" in name or Path(name).is_file() else f"{name}@best"
        for name in (*targets.checkpoints, *newest)
    )
    return replace(targets, checkpoints=tuple(names))
