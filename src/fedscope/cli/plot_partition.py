"""`fedscope data plot-partition`: which classes each client holds, before or after a run."""

from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import click
import numpy as np

from fedscope.checkpoints.files import versions
from fedscope.checkpoints.registry import Registry
from fedscope.checkpoints.schema import Manifest, Settings
from fedscope.cli import console, options
from fedscope.data import catalogue
from fedscope.data.datasets import Dataset, part
from fedscope.data.heterogeneity import class_counts, effective_classes, total_variation
from fedscope.data.longtail import PHI, RHO
from fedscope.data.partition import EXHAUSTED, FRESH, KINDS, Division, divide
from fedscope.errors import UserError
from fedscope.figures.partition import partition_figure
from fedscope.figures.style import check_format, save

SCHEMA = "fedscope/partition/1"
MADE_OF = ("run", "dataset", "fingerprint", "train_samples", "partition", "seed")  # kept in the figure
DEFAULTS: dict[str, Any] = {
    "dataset": "digits", "partition": "dirichlet_balanced", "alpha": 0.5, "clients": 8,
    "exhausted": "redraw", "phi": PHI, "rho": RHO, "seed": 0, "train_samples": None,
}  # fmt: skip
PARAMETERS = [field.name for field in fields(Division) if field.name != "kind"]


def setting(flag: str, kind: Any, help: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return an option that says its default itself, so that what was given can be told from what was not."""
    default = DEFAULTS[flag.strip("-").replace("-", "_")]
    shown = "" if default is None else f" [default: {default}]"
    return click.option(flag, type=kind, default=None, help=help + shown)


@click.command("plot-partition")
@click.argument("run", required=False)
@setting("--dataset", str, f"One of {', '.join(catalogue.NAMES)}.")
@options.data_dir
@setting("--partition", click.Choice(KINDS), "How the samples are divided.")
@setting("--alpha", float, "Dirichlet concentration; smaller is more heterogeneous.")
@setting("--clients", int, "Number of clients N.")
@setting("--exhausted", click.Choice(EXHAUSTED), "dirichlet_equal: what to do when a class is used up.")
@setting("--phi", float, "longtail_stateless: fraction of the data a client draws from; provisional.")
@setting("--rho", float, "longtail_stateless: rarest to most frequent class; provisional.")
@setting("--seed", click.IntRange(0), "Of the training part and the division, as in `fedscope train`.")
@setting("--train-samples", click.IntRange(1), "Divide a random part of this many samples.")
@options.registry
@click.option("--kind", type=click.Choice(["bubbles", "bars"]), default="bubbles", show_default=True,
              help="A bubble per client and class, or a stacked bar per client.")  # fmt: skip
@click.option(
    "--out", default="partition.png", show_default=True, metavar="FILE", help="A .png, .pdf or .svg file."
)
@click.option("--json", "json_target", metavar="FILE|-", help="Write the record; - is standard output.")
def command(
    run: str | None,
    data_dir: Path | None,
    registry: Path,
    kind: Any,
    out: str,
    json_target: str | None,
    **given: Any,
) -> None:
    """Draw how many samples of each class each client holds, and say how different the clients are.

    Of a RUN of the registry, or of the division that the options describe; `fedscope train` with the same
    options and seed trains on it. Where every round has new clients, those of the first round are drawn.
    """
    check_format(Path(out))
    for target in (out, json_target):
        console.check_target(target)
    given = {name: value for name, value in given.items() if value is not None}
    manifest = _manifest(registry, run, given) if run else None
    choices = DEFAULTS | (_known(manifest.settings) if manifest else given)
    dataset = catalogue.load(choices["dataset"], data_dir)
    if dataset.note:
        console.note(f"{dataset.name}: {dataset.note}")
    if manifest and dataset.fingerprint != manifest.data.fingerprint:
        raise UserError(f"{dataset.name} is not the data that {run} was trained on; use the same --data-dir")
    record = {"schema": SCHEMA, "run": run, **describe(dataset, choices), "versions": versions()}
    if json_target:
        console.write_json(json_target, record)
    figure = partition_figure(np.array(record["counts"]), record["classes"], kind=kind, title=_title(record))
    save(figure, Path(out), record={key: record[key] for key in MADE_OF})
    if json_target != "-":
        click.echo(out)


def describe(dataset: Dataset, choices: Mapping[str, Any]) -> dict[str, Any]:
    """Return who holds how much of what, and how far each client's classes are from those of all samples.

    ``effective_classes`` is the exponential of the entropy of a client's class shares, ``total_variation``
    half the sum of their distances to the shares of the training part that is divided.

    Raises:
        UserError: there is no such division of this data.
    """
    division = Division(choices["partition"], **{name: choices[name] for name in PARAMETERS})
    train_samples, seed = choices["train_samples"], choices["seed"]
    parts = divide(dataset.train, division, train_samples=train_samples, seed=seed)
    labels, classes = dataset.train.labels.numpy(), len(dataset.classes)
    counts = class_counts(labels, [rows.numpy() for rows in parts], classes)
    divided = part(dataset.train, train_samples, seed, "train").numpy()
    distances = total_variation(counts, np.bincount(labels[divided], minlength=classes))
    return {
        "dataset": dataset.name,
        "fingerprint": dataset.fingerprint,
        "train_samples": len(divided),
        "partition": {"kind": division.kind, "clients": division.clients, **division.parameters},
        "fresh_each_round": division.kind in FRESH,
        "seed": seed,
        "classes": list(dataset.classes),
        "counts": counts.tolist(),
        "sizes": counts.sum(axis=1).tolist(),
        "effective_classes": effective_classes(counts).tolist(),
        "total_variation": distances.tolist(),
        "mean_total_variation": float(distances.mean()),
    }


def _manifest(registry: Path, run: str, given: Mapping[str, object]) -> Manifest:
    if given:
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise UserError(f"the division is that of run {run}; leave out {flags}, or the run")
    return Registry(registry).run(run).manifest()


def _known(settings: Settings) -> dict[str, Any]:
    """Return those of a run's settings that its division depends on."""
    return {name: value for name, value in settings.model_dump().items() if name in DEFAULTS}


def _title(record: Mapping[str, Any]) -> str:
    signs = {"alpha": "α", "phi": "φ", "rho": "ρ"}
    division = record["partition"]
    values = [f"{sign} = {division[name]:g}" for name, sign in signs.items() if name in division]
    values += ["with refill"] * (division.get("exhausted") == "refill")
    return ", ".join([record["dataset"], division["kind"], *values])
