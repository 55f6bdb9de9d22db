"""What a reading, the paper's or its published code's, makes of the options of `fedscope hessian`."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from fedscope.checkpoints.registry.registry import Registry
from fedscope.errors import UserError
from fedscope.workflows.requests import Crossing, Request, Resampling

OPTIONS = (
    "reading", "global_model", "client_weights", "client_data", "pairs", "client_rtol", "client_max_probes",
    "client_probes", "aim", "overlap", "product_batches", "augment", "resample",
)  # fmt: skip


def request_of(given: Mapping[str, Any], source: dict[str, Any]) -> Request:
    """Return what the options of `fedscope hessian` ask for, and name the checkpoints in ``source``.

    Raises:
        UserError: an option of reading ``code`` with the other, or a number that is none.
    """
    drawn = given["kind"] if given["figure"] is not None else None
    return Request(
        top_k=given["top_k"],
        both_ends=given["both_ends"],
        layers=given["layers"],
        tol=given["tol"],
        probes=given["probes"],
        trace_rtol=given["trace_rtol"],
        density=given["density"] or drawn == "density",
        clients=given["clients"] or drawn == "clients",
        engine=given["engine"],
        operator=given["operator"],
        parameters=given["parameters"],
        bn=given["bn"],
        **by_reading(source, **{name: given[name] for name in OPTIONS}),
    )


def by_reading(
    source: dict[str, Any],
    *,
    reading: str,
    global_model: str | None,
    client_weights: Any,
    client_data: Any,
    pairs: Any,
    client_rtol: float,
    client_max_probes: int,
    client_probes: int | None,
    aim: Any,
    overlap: int | None,
    product_batches: str | None,
    augment: bool | None,
    resample: bool | None,
) -> dict[str, Any]:
    """Return the fields of a ``Request`` that these options set, and name the checkpoints in ``source``.

    Raises:
        UserError: an option of reading ``code`` with the other, or a number that is none.
    """
    which = global_model or ("best" if reading == "code" else "final")
    if which == "best":
        source["checkpoints"] = tuple(_best(source))
    crossing = Crossing(
        weights=client_weights, data=client_data, pairs=pairs, probes=client_probes, rtol=client_rtol,
        max_probes=client_max_probes, aim=aim, overlap=overlap,
    )  # fmt: skip
    return {
        "reading": reading,
        "crossing": crossing,
        "resampling": _resampling(source, reading, product_batches, augment, resample),
    }


def _resampling(
    source: dict[str, Any], reading: str, batches: str | None, augment: bool | None, resample: bool | None
) -> Resampling:
    if reading != "code" and (augment, resample, batches) != (None, None, None):
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
    samples = source["samples"]
    if not samples.startswith("default ") and samples.isdecimal():
        chosen = replace(chosen, samples=int(samples))
    for name in ("batch_size", "seed"):
        if click.get_current_context().get_parameter_source(name) != ParameterSource.DEFAULT:
            chosen = replace(chosen, **{name: source[name]})
    return chosen


def _best(source: dict[str, Any]) -> list[str]:
    """Return the checkpoints with ``@best`` added where a run alone is named, or nothing."""
    newest = () if source["checkpoints"] else (Registry(source["registry"]).newest().name,)
    return [
        name if "@" in name or "/" in name or Path(name).is_file() else f"{name}@best"
        for name in (*source["checkpoints"], *newest)
    ]
