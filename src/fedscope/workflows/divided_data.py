"""Who holds how much of which class: the division of a run's data, or of the data that settings describe."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedscope.checkpoints.file.checkpoint import versions
from fedscope.checkpoints.file.fields import OPTION, parse
from fedscope.checkpoints.file.settings import Settings
from fedscope.checkpoints.registry.client_rows import rows_spec
from fedscope.checkpoints.registry.owned import data_note
from fedscope.checkpoints.registry.run_registry import RunRegistry
from fedscope.data.loading.datasets import part
from fedscope.data.partition.division import division
from fedscope.data.partition.draw_partition import FRESH
from fedscope.data.sets import dataset_catalogue
from fedscope.errors import UserError
from fedscope.federated.setup.run_samples import client_rows
from fedscope.records.partition_record import PARTITION_SCHEMA, PartitionRecord
from fedscope.workflows.progress import SILENT, Reporter
from fedscope.workflows.unused import check_settings

Counts = NDArray[np.int64]
Shares = NDArray[np.float64]


def class_counts(labels: NDArray[np.int64], rows: Sequence[NDArray[np.int64]], classes: int) -> Counts:
    """Return n_kc, how many samples of each class each client holds: (N, C)."""
    return np.stack([np.bincount(labels[held], minlength=classes) for held in rows])


def effective_classes(counts: Counts) -> Shares:
    """Return exp(−Σ_c p_kc ln p_kc) of each client, from 1 to C: (N,)."""
    shares = _shares(counts)
    logarithms = np.log(shares, out=np.zeros_like(shares), where=shares > 0)
    return np.asarray(np.exp(-(shares * logarithms).sum(axis=1)))


def total_variation(counts: Counts, everyone: Counts) -> Shares:
    """Return ½ Σ_c |p_kc − p_c| of each client, 0 to 1: (N,); ``everyone`` (C,) counts the whole data set."""
    return np.asarray(np.abs(_shares(counts) - _shares(everyone[None])).sum(axis=1) / 2)


def _shares(counts: Counts) -> Shares:
    return np.asarray(counts / counts.sum(axis=1, keepdims=True))


def partition(
    registry: Path,
    run: str | None = None,
    given: Mapping[str, object] | None = None,
    *,
    data_dir: Path | None = None,
    named: Mapping[str, str] | None = None,
    reporter: Reporter = SILENT,
) -> PartitionRecord:
    """Return the division of a run's data, or of the data that the settings ``given`` describe.

    A run's stored rows are taken where it has them. ``named`` are settings that must have an effect.
    """
    store = RunRegistry(registry)
    if run and given:
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise UserError(f"the division is that of run {run}; leave out {flags}, or the run")
    trained = store.run(run) if run else None
    manifest = trained.manifest() if trained else None
    settings = manifest.settings if manifest else parse(Settings, given or {}, OPTION)
    check_settings(settings, named or {})
    if manifest:
        data_note(manifest)
    dataset = dataset_catalogue.load(
        settings.dataset, data_dir, settings.test_data, settings.model, settings.loss
    )
    if dataset.note:
        reporter.note(f"{dataset.name}: {dataset.note}")
    if manifest and dataset.fingerprint != manifest.data.fingerprint:
        raise UserError(f"{dataset.name} is not the data that {run} was trained on; use the same --data-dir")
    rows = None
    if trained:
        rows = "stored" if rows_spec(trained) else "redrawn"
    if rows == "redrawn":
        reporter.note(f"{run} did not store which rows each client held: they are drawn again")
    (parts, _), kind = client_rows(settings, dataset, trained), division(settings)
    labels, classes = dataset.train.labels.numpy(), len(dataset.classes)
    counts = class_counts(labels, [held.numpy() for held in parts], classes)
    divided = part(dataset.train, settings.train_samples, settings.seed, "train").numpy()
    distances = total_variation(counts, np.bincount(labels[divided], minlength=classes))
    return PartitionRecord.read(
        {
            "schema": PARTITION_SCHEMA,
            "run": run,
            "rows": rows,
            "dataset": dataset.name,
            "fingerprint": dataset.fingerprint,
            "train_samples": len(divided),
            "partition": {"kind": kind.kind, "clients": kind.clients, **kind.parameters},
            "fresh_each_round": kind.kind in FRESH,
            "seed": settings.seed,
            "classes": list(dataset.classes),
            "counts": counts.tolist(),
            "sizes": counts.sum(axis=1).tolist(),
            "effective_classes": effective_classes(counts).tolist(),
            "total_variation": distances.tolist(),
            "mean_total_variation": float(distances.mean()),
            "versions": versions(),
        }
    )
