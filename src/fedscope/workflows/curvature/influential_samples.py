"""Which samples of a problem make λ_max: their rows, classes, clients and images beside their parts."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedscope.checkpoints.file.fields import UNKNOWN
from fedscope.data.reading.anew import Anew
from fedscope.errors import UserError
from fedscope.landscape.loss.mean_loss import is_no_mean
from fedscope.landscape.loss.trees import joined
from fedscope.landscape.operators.empirical_risk import LossOperator
from fedscope.records.hessian_record import HessianRecord
from fedscope.records.influence_entry import Holders, influence_entry
from fedscope.workflows.requests import Request
from fedscope.workflows.sources.problem import Problem
from fedscope.workflows.sources.samples import Data, data_of, rows_of

Images = NDArray[np.float32]


def check_separable(operator: LossOperator, request: Request) -> None:
    """Refuse a request for the samples' parts of λ_max where no sample has one; before any product."""
    loss = operator.loss
    if not request.influence:
        return
    if loss.mixed:
        raise UserError(
            "--influence is of each sample's own curvature, and BatchNorm by the batch's own statistics "
            "leaves a sample none; take --bn eval or recalibrate, with layers that keep running statistics"
        )
    if loss.coupled or is_no_mean(loss):
        raise UserError(
            "--influence is of each sample's own curvature, and this loss is no plain mean over samples; "
            "drop the option, or average over each sample's own terms, then over samples without weights"
        )


def with_influence(
    record: HessianRecord, problem: Problem, operator: LossOperator, listed: int | None
) -> HessianRecord:
    """Return the record with its ``influence``; as it is where ``listed`` is None, which asks for none.

    It has none either where the samples' parts are not known: an operation has no derivative in forward mode.
    """
    parts = record.lambda_max.by_sample
    if parts is None or listed is None:
        return record
    order = _order(record, problem, operator)
    data = data_of(problem.path, problem.info, problem.source) if problem.info else None
    labels, rows = _labels(problem), _rows(problem)[order].tolist()
    entry = influence_entry(
        parts,
        rows=rows,
        listed=listed,
        labels=None if labels is None else labels[order].tolist(),
        holders=_holders(problem, data, rows),
        names=_names(problem, data),
        split=problem.source.split if problem.info else None,
        finite=operator.finite_population,
    )
    return record.edited(influence=entry)


def _order(record: HessianRecord, problem: Problem, operator: LossOperator) -> Tensor:
    """Return in which order the samples' parts stand (N,): those of a kept result may be dealt otherwise."""
    if record.batch_sizes == (operator.weights or ()):
        return operator.loss.batches.order
    dealt = problem.batches.dealt(len(record.batch_sizes))
    return dealt.order if dealt.sizes == record.batch_sizes else problem.batches.order


def images_of(problem: Problem, record: HessianRecord) -> Images | None:
    """Return the listed samples as images (K, H, W, C) from 0 to 1; None where they are no images.

    Images of a data set are as it stores them; of the user's own data each is scaled to its own range.
    """
    if not record.influence:
        return None
    rows = torch.tensor([one.row for one in record.influence.largest], dtype=torch.int64)
    if problem.info:
        store = data_of(problem.path, problem.info, problem.source).split.images
        stored = store.kept if isinstance(store, Anew) else store
        found = stored[rows] if isinstance(stored, Tensor) else stored.fetch(rows)
    else:
        places = {row: place for place, row in enumerate(_rows(problem).tolist())}
        inputs = _joined(problem, 0)
        chosen = torch.tensor([places[row] for row in rows.tolist()], dtype=torch.int64)
        if not isinstance(inputs, Tensor):
            return None
        found = inputs[chosen]
    return None if found.ndim != 4 or found.shape[1] not in (1, 3) else _scaled(found)


def _scaled(images: Tensor) -> Images:
    shown = images.detach().cpu().permute(0, 2, 3, 1).float()
    if images.dtype == torch.uint8:
        return (shown / 255).numpy()
    low, high = shown.amin((1, 2, 3), keepdim=True), shown.amax((1, 2, 3), keepdim=True)
    return ((shown - low) / (high - low).clamp(min=1e-12)).numpy()


def _rows(problem: Problem) -> Tensor:
    return torch.arange(problem.batches.samples) if problem.rows is None else problem.rows


def _joined(problem: Problem, side: int) -> object:
    try:
        return joined([pair[side] for pair in problem.batches])
    except UserError:  # of several lengths
        return None


def _labels(problem: Problem) -> Tensor | None:
    """Return the samples' classes (N,); None where a target is not one whole number."""
    targets = _joined(problem, 1)
    if not isinstance(targets, Tensor) or targets.ndim != 1:
        return None
    return None if targets.is_floating_point() or targets.is_complex() else targets.cpu()


def _names(problem: Problem, data: Data | None) -> Sequence[str]:
    """Return the names of the classes; none where concept shift calls them otherwise."""
    shifted = problem.info is not None and problem.info.settings.shift != "none"
    return () if data is None or shifted else data.classes


def _holders(problem: Problem, data: Data | None, rows: Sequence[int]) -> Holders:
    info = problem.info
    if info is None or data is None:
        return Holders(reason="which client holds what is not known of a plain state_dict")
    if problem.source.split != "train":
        return Holders(reason=f"no client holds samples of the {problem.source.split} split")
    if info.settings.partition == UNKNOWN:
        return Holders(reason="which client trained on what is not known of an added run")
    try:
        held = rows_of(problem.path, info, data.split)
    except UserError as error:  # they are not stored here, and another numpy draws others
        return Holders(reason=str(error))
    holders: dict[int, list[int]] = {row: [] for row in rows}
    for number, own in enumerate(held.clients):
        for row in np.unique(own[np.isin(own, rows)]).tolist():
            holders[row].append(number)
    return Holders(
        [holders[row] for row in rows], None, "stored" if info.rows else "redrawn", held.spec.sha256
    )
