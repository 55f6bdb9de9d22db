"""The network and the data of a foreign checkpoint, as the registry describes them."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fedscope.checkpoints.file.schema import DataSpec, ModelSpec
from fedscope.checkpoints.foreign.fitting import STATISTICS, Fitted, fit
from fedscope.checkpoints.foreign.tensor_files import read_arrays
from fedscope.checkpoints.registry.client_rows import ClientRows, Rows
from fedscope.choices import BatchNormMode
from fedscope.data.augment import Pipeline
from fedscope.data.loading.datasets import Dataset
from fedscope.data.sets import dataset_catalogue as data_catalogue
from fedscope.data.sets.own_data import source_of
from fedscope.errors import UserError, no_file
from fedscope.models import catalogue as model_catalogue
from fedscope.models import users_network
from fedscope.own import DATASETS, MODELS, digest, is_own, resolved
from fedscope.storage import read_bytes
from fedscope.storage.limits import parse_json

_CLIENT = re.compile(r"(?:client|arr)?[_. -]?([0-9]{1,9})", re.IGNORECASE)


def read_partition(path: Path, samples: int) -> ClientRows:
    """Return the rows that ``path`` names, of a training set of so many samples.

    It has a mapping from each client's number to its rows, or a list of rows for each client, as JSON; or an
    array for each client, as ``.npz``. Rows count from 0.
    """
    if not path.is_file():
        raise no_file(path)
    try:
        found = read_arrays(path) if path.suffix == ".npz" else parse_json(read_bytes(path))
    except ValueError as error:
        raise UserError(f"{path} is no JSON ({error}); save {{client: [rows]}}") from error
    held = dict(enumerate(found)) if isinstance(found, list) else found
    if not isinstance(held, dict) or not held:
        raise UserError(f"{path} is no partition; save {{client: [rows]}} as JSON, client numbers from 0")
    rows = {int(match[1]): part for name, part in held.items() if (match := _CLIENT.fullmatch(str(name)))}
    if len(rows) < len(held) or rows.keys() != {*range(len(held))}:
        raise UserError(
            f"{path} has {len(held)} clients whose numbers are not 0 to {len(held) - 1}; number them so"
        )
    clients = [_rows(rows[k], f"{path}: client {k}", samples) for k in range(len(rows))]
    return ClientRows(clients, np.empty(0, np.int64))


def _rows(held: Any, what: str, samples: int) -> Rows:
    try:
        rows = held if isinstance(held, Tensor) else torch.tensor(held, dtype=None if held else torch.int64)
    except (TypeError, ValueError, RuntimeError) as error:
        raise UserError(f"{what} has no list of rows ({error})") from error
    if rows.ndim != 1 or rows.is_floating_point() or rows.is_complex() or rows.dtype == torch.bool:
        raise UserError(f"{what} has {tuple(rows.shape)} of {rows.dtype}, not a list of whole numbers")
    rows = rows.to(torch.int64)
    odd = rows[(rows < 0) | (rows >= samples)]
    if len(odd):
        raise UserError(f"{what} has row {int(odd[0])}; those of the training set are 0 to {samples - 1:,}")
    return rows.numpy()


@dataclass(frozen=True)
class Identity:
    """A network, by the tensors it wants, and its data.

    A network of the catalogue comes in variants (projection head, shortcut), of which the first that a
    checkpoint fits is taken; a network of the user's own has one variant.
    """

    variants: tuple[tuple[ModelSpec, Mapping[str, Tensor]], ...]
    data: DataSpec
    known: Mapping[str, object] = field(default_factory=dict)  # settings that follow from the data
    rows: ClientRows | None = None  # of each client, where the data come divided
    notes: tuple[str, ...] = ()  # what a user may not expect of network or data

    def fitted(
        self,
        tensors: Mapping[str, Tensor],
        what: str,
        entry: str = "",
        *,
        flag: str = "--entry",
        bn: BatchNormMode = "eval",
    ) -> tuple["Identity", Fitted]:
        """Return the identity with the variant that is fitted alone, and that network's state."""
        refusal: UserError | None = None
        for spec, wanted in self.variants:
            unread = [name for name in wanted if name.endswith(STATISTICS)]
            try:
                fitted = fit(tensors, wanted, what, entry=entry, flag=flag, statistics=unread, bn=bn)
                return replace(self, variants=((spec, wanted),)), fitted
            except UserError as error:
                refusal = refusal or error
        assert refusal is not None
        raise refusal


def identify(
    model: str | nn.Module,
    dataset: str,
    *,
    data_dir: Path | None = None,
    augmentation: str | None = None,
    test_data: str | None = None,
    partition: Path | None = None,
) -> Identity:
    """Return the identity that a network and a data set name.

    Args:
        model: a name of the catalogue, ``MODULE:FACTORY``, or a module.
        dataset: a name of the catalogue; ``MODULE:FACTORY`` of one's own data, as for training: one data set,
            or one for each client; with a network of the user's own also any other name.
        augmentation: the pipeline whose normalisation the network was trained with; None: the set's first.
        test_data: ``MODULE:FACTORY`` of the samples to evaluate on, of one's own data.
        partition: a file of each client's rows, as :func:`read_partition` takes it.
    """
    dataset = resolved(dataset, DATASETS)
    if isinstance(model, str):
        model = resolved(model, MODELS)
    users = isinstance(model, nn.Module) or is_own(model)
    if test_data and not is_own(dataset):
        raise UserError(f"--test-data is for data of your own, MODULE:FACTORY; {dataset} is none")
    if users and not (is_own(dataset) or dataset in data_catalogue.DATASETS):
        if partition:
            raise UserError(f"--rows needs data that can be read, and {dataset} is just a name")
        return Identity((_named(model),), DataSpec(name=dataset))
    found = data_catalogue.load(dataset, data_dir, test_data, model if isinstance(model, str) else None)
    augmentation, pipeline = data_catalogue.pipeline(dataset, augmentation)
    notes = [found.note] if found.note else []
    if isinstance(model, nn.Module):
        variants = [_named(model)]
    elif users:
        variant, unusable = _own(model, found, pipeline)
        variants, notes = [variant], [*notes, *unusable]
    else:
        variants = list(_variants(model, len(found.classes), int(found.train.images.shape[1])))
    known: dict[str, object] = {"test_data": test_data} if test_data else {}
    rows = _divided(found)
    if rows and partition:
        raise UserError(f"{dataset} makes a data set for each client; leave --rows out")
    if rows:
        notes.insert(0, f"{dataset} makes a data set for each of {len(rows.clients)} clients")
    elif partition:
        rows = read_partition(partition, len(found.train))
        notes.insert(0, _held(partition, rows, len(found.train)))
    if rows:
        known |= {"partition": "own", "clients": len(rows.clients)}
    data = DataSpec(
        name=dataset,
        augmentation=augmentation,
        fingerprint=found.fingerprint,
        train_samples=len(found.train),
        test_samples=len(found.test),
        source=source_of(dataset, test_data),
    )
    return Identity(tuple(variants), data, known, rows, tuple(notes))


def _divided(dataset: Dataset) -> ClientRows | None:
    owners = dataset.train.clients
    if owners is None:
        return None
    rows = [(owners == client).nonzero()[:, 0] for client in range(1 + int(owners.max()))]
    return ClientRows.from_tensors(rows, torch.empty(0, dtype=torch.int64))


def _held(path: Path, rows: ClientRows, samples: int) -> str:
    every = np.concatenate(rows.clients)
    shared = len(every) - len(held := np.unique(every))
    again = f", {shared:,} of them more than once" if shared else ""
    return f"{path.name} gives {len(rows.clients)} clients {len(held):,} of {samples:,} training rows{again}"


def _named(model: str | nn.Module) -> tuple[ModelSpec, Mapping[str, Tensor]]:
    """Return a network of the user's own by its name only: what it takes is not known."""
    network = users_network.network(model) if isinstance(model, str) else model
    name = model if isinstance(model, str) else type(network).__name__
    return ModelSpec(name=name), network.state_dict(keep_vars=True)


def _own(
    name: str, dataset: Dataset, pipeline: Pipeline
) -> tuple[tuple[ModelSpec, Mapping[str, Tensor]], tuple[str, ...]]:
    """Return a network of the user's own with its classes; if it gives none, by its name, and why."""
    network = users_network.network(name)
    state = network.state_dict(keep_vars=True)
    try:
        classes = users_network.check_classifier(
            network, name, *dataset.tried(pipeline), dataset.least_outputs
        )
    except users_network.FailsError as error:
        raise UserError(f"{error}; name the data that it takes, in the catalogue or not") from error
    except UserError as error:
        return (ModelSpec(name=name), state), (f"{error}; name --model and --data when you analyse it",)
    return (ModelSpec(name=name, classes=classes, source=digest(name)), state), ()


def _variants(name: str, classes: int, channels: int) -> Iterator[tuple[ModelSpec, Mapping[str, Tensor]]]:
    network = model_catalogue.find(name)
    for head in (False, True) if network.residual else (False,):
        for shortcut in network.shortcuts or (None,):
            spec = ModelSpec(name=name, classes=classes, channels=channels, head=head, shortcut=shortcut)
            outline = model_catalogue.outline(name, classes, channels, head=head, shortcut=spec.shortcut)
            yield spec, outline.state_dict(keep_vars=True)
