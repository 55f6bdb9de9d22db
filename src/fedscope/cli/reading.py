"""The options of `fedscope hessian` that a reading, the paper's or its published code's, is a bundle of."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from fedscope.checkpoints.registry import Registry
from fedscope.errors import UserError
from fedscope.landscape.crossing import Crossing
from fedscope.landscape.resampled import Resampling

_OPTIONS = (
    click.option("--reading", type=click.Choice(["paper", "code"]), default="paper", show_default=True,
                 help="As the FedAlign paper defines the metrics, or as its published scripts compute them."),
    click.option("--global-model", type=click.Choice(["final", "best"]),
                 help="Which of a run's checkpoints RUN means. [default: final; code: best]"),
    click.option("--clients", is_flag=True,
                 help="Also compare the curvature of the run's clients (H_N, H_D)."),
    click.option("--client-weights", type=click.Choice(["client", "global"]),
                 help="At each client's weights, or at the global model's. [default: client]"),
    click.option("--client-data", type=click.Choice(["own", "global"]),
                 help="On each client's own training rows, or on the same for all. "
                 "[default: own; code: global]"),
    click.option("--pairs", type=click.Choice(["distinct", "all_including_self"]),
                 help="Pairs averaged over. [default: distinct; code: all_including_self]"),
    click.option("--client-rtol", type=click.FloatRange(0, min_open=True), default=0.1, show_default=True,
                 help="Half-width of the 95 % intervals of H_N and H_D, relative to their values."),
    click.option("--client-max-probes", type=click.IntRange(16), default=128, show_default=True,
                 help="Probes per client at which --client-rtol gives up."),
    click.option("--client-probes", type=click.IntRange(3),
                 help="Fixed number of probes per client, instead of --client-rtol."),
    click.option("--client-diagonal", "aim", type=click.Choice(["parameter", "tensor"]), default="parameter",
                 show_default=True, help="The diagonals whose intervals --client-rtol is about."),
    click.option("--overlap", type=click.IntRange(1), metavar="K",
                 help="With --clients: overlap of each client's top K eigenvectors with the global model's."),
    click.option("--product-batches", metavar="N|all",
                 help="--reading code: batches of one product. [default: 10]"),
    click.option("--augment/--no-augment", default=None, help="--reading code. [default: augment]"),
    click.option("--resample/--no-resample", default=None,
                 help="--reading code: other batches in every product. [default: resample]"),
)  # fmt: skip


def reading_options(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options to a command, which passes their values on to :func:`by_reading`."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


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
