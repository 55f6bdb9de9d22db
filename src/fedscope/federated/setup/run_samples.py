"""The samples of a run: which rows each client trains on, and what the models are evaluated on."""

import torch

from fedscope.checkpoints.file.settings import Settings
from fedscope.checkpoints.registry.client_rows import ClientRows, rows_spec, rows_trained_on
from fedscope.checkpoints.registry.run_registry import RunFolder
from fedscope.data.loading.datasets import Dataset, Split, part
from fedscope.data.partition.division import Divided, divided
from fedscope.data.partition.draw_partition import FRESH
from fedscope.errors import UserError


def client_rows(
    settings: Settings, dataset: Dataset, run: RunFolder | None = None, round: int = 1
) -> Divided:
    """Return the clients' rows in ``round``, counted from 1: those that ``run`` stored, else drawn.

    New clients of every round are drawn in any case, as those of later rounds will be.
    """
    spec = rows_spec(run, round) if run else None
    if run is None or spec is None:
        return divided(dataset.train, settings, round)
    held = rows_trained_on(
        None if settings.partition in FRESH else run,
        spec.sha256,
        lambda: ClientRows.from_tensors(*divided(dataset.train, settings, round)),
        round=round,
        size=len(dataset.train),
        versions=run.manifest().versions,
    )
    return Divided([torch.from_numpy(rows) for rows in held.clients], torch.from_numpy(held.validation))


def evaluated(settings: Settings, dataset: Dataset) -> Split:
    split = dataset.test if settings.evaluate_on == "test" else dataset.validation
    if split is None:
        raise UserError(f"{dataset.name} has no validation split; use --evaluate-on test")
    if settings.test_samples is not None:
        split = split.take(part(split, settings.test_samples, settings.seed, "test"))
    if settings.eval_drop_last:
        whole = len(split) // settings.batch_size * settings.batch_size
        if not whole:
            raise UserError(f"{len(split)} samples are no whole batch; use --no-eval-drop-last")
        split = split.take(torch.arange(whole))
    return split
