"""What a reading, the paper's or its published code's, makes of the options of `fedscope hessian`."""

from dataclasses import replace
from pathlib import Path

import click
from click.core import ParameterSource

from fedscope.checkpoints.registry.registry import Registry
from fedscope.choices import (
    BatchNormMode,
    Holding,
    OperatorName,
    Pairs,
    ProductsName,
    Reading,
    ReadingName,
    Weights,
)
from fedscope.errors import UserError
from fedscope.workflows.requests import LISTED, CrossClientRequest, Engine, Request, Resampling
from fedscope.workflows.sources.targets import Targets


def request_of(
    targets: Targets,
    drawn: str | None = None,
    *,
    top_k: int,
    both_ends: bool,
    layers: bool,
    blocks: bool,
    preconditioned: bool,
    tol: float,
    probes: int | None,
    trace_rtol: float,
    density: bool,
    influence: int | None,
    clients: bool,
    client_weights: Weights | None,
    client_data: Holding | None,
    pairs: Pairs | None,
    client_probes: int | None,
    client_rtol: float,
    client_max_probes: int,
    aim: Reading,
    overlap: int | None,
    reading: ReadingName,
    product_batches: str | None,
    augment: bool | None,
    resample: bool | None,
    engine: Engine,
    operator: OperatorName,
    products: ProductsName,
    parameters: tuple[str, ...],
    bn: BatchNormMode,
) -> Request:
    """Return what the options of `fedscope hessian` ask for; ``drawn`` is the kind of figure, if any.

    Raises:
        UserError: an option of reading ``code`` with the other, or a malformed number.
    """
    if reading != "code" and (augment, resample, product_batches) != (None, None, None):
        raise UserError(
            "a product on other samples each time is what the published code does, not the paper; drop "
            "--product-batches, --augment and --resample, or add --reading code"
        )
    return Request(
        top_k=top_k,
        both_ends=both_ends,
        layers=layers,
        blocks=blocks,
        preconditioned=preconditioned,
        tol=tol,
        probes=probes,
        trace_rtol=trace_rtol,
        density=density or drawn == "density",
        influence=influence or (LISTED if drawn == "influence" else None),
        clients=clients or drawn == "clients",
        cross_client=CrossClientRequest(
            weights=client_weights,
            data=client_data,
            pairs=pairs,
            probes=client_probes,
            rtol=client_rtol,
            max_probes=client_max_probes,
            aim=aim,
            overlap=overlap,
        ),
        reading=reading,
        resampling=_resampling(targets, product_batches, augment=augment, resample=resample),
        engine=engine,
        operator=operator,
        products=products,
        parameters=parameters,
        bn=bn,
    )


def _resampling(
    targets: Targets, batches: str | None, *, augment: bool | None, resample: bool | None
) -> Resampling:
    """Return which samples a product sees; defaults of the shared options become those of the scripts."""
    chosen = Resampling(augment=augment is not False, resample=resample is not False)
    if batches:
        if batches != "all" and not (batches.isdecimal() and int(batches)):
            raise UserError(f"--product-batches takes a number from 1 up, or all, not {batches!r}")
        chosen = replace(chosen, batches=None if batches == "all" else int(batches))
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
    newest = () if targets.checkpoints else (Registry(targets.registry).newest().name,)
    names = (
        name if "@" in name or "/" in name or Path(name).is_file() else f"{name}@best"
        for name in (*targets.checkpoints, *newest)
    )
    return replace(targets, checkpoints=tuple(names))
