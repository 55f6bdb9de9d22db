"""What a reading, the paper's or its published code's, makes of the options of `fedscope hessian`."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from fedscope.checkpoints.registry.registry import Registry
from fedscope.errors import UserError
from fedscope.workflows.requests import CrossClientRequest, Request, Resampling
from fedscope.workflows.sources.targets import Targets


def request_of(given: Mapping[str, Any]) -> Request:
    """Return what the options of `fedscope hessian` ask for.

    Raises:
        UserError: an option of reading ``code`` with the other, or a number that is none.
    """
    drawn = given["kind"] if given["figure"] is not None else None
    crossing = CrossClientRequest(
        weights=given["client_weights"],
        data=given["client_data"],
        pairs=given["pairs"],
        probes=given["client_probes"],
        rtol=given["client_rtol"],
        max_probes=given["client_max_probes"],
        aim=given["aim"],
        overlap=given["overlap"],
    )
    return Request(
        top_k=given["top_k"],
        both_ends=given["both_ends"],
        layers=given["layers"],
        tol=given["tol"],
        probes=given["probes"],
        trace_rtol=given["trace_rtol"],
        density=given["density"] or drawn == "density",
        clients=given["clients"] or drawn == "clients",
        cross_client=crossing,
        reading=given["reading"],
        resampling=_resampling(given),
        engine=given["engine"],
        operator=given["operator"],
        parameters=given["parameters"],
        bn=given["bn"],
    )


def _resampling(given: Mapping[str, Any]) -> Resampling:
    batches, augment, resample = (given[name] for name in ("product_batches", "augment", "resample"))
    if given["reading"] != "code" and (augment, resample, batches) != (None, None, None):
        raise UserError(
            "a product on other samples each time is what the published code does, not the paper; drop "
            "--product-batches, --augment and --resample, or add --reading code"
        )
    chosen = Resampling(augment=augment is not False, resample=resample is not False)
    if batches:
        if batches != "all" and not (batches.isdecimal() and int(batches)):
            raise UserError(f"--product-batches takes a number from 1 up, or all, not {batches!r}")
        chosen = replace(chosen, batches=None if batches == "all" else int(batches))
    # What the analysis commands share has defaults of its own, which the scripts' replace.
    if isinstance(given["samples"], int):
        chosen = replace(chosen, samples=given["samples"])
    for name in ("batch_size", "seed"):
        if click.get_current_context().get_parameter_source(name) != ParameterSource.DEFAULT:
            chosen = replace(chosen, **{name: given[name]})
    return chosen


def best_of_runs(targets: Targets) -> Targets:
    """Return the targets with ``@best`` added where a run alone is named, or nothing."""
    newest = () if targets.checkpoints else (Registry(targets.registry).newest().name,)
    names = (
        name if "@" in name or "/" in name or Path(name).is_file() else f"{name}@best"
        for name in (*targets.checkpoints, *newest)
    )
    return replace(targets, checkpoints=tuple(names))
