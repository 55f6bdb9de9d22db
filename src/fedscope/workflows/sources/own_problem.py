"""A network and samples of the user's own: MODULE:FACTORY, a pretrained folder, or data in files."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedscope.checkpoints.file.checkpoint import content_hash
from fedscope.checkpoints.foreign.fitting import fit
from fedscope.checkpoints.foreign.tensor_files import read
from fedscope.checkpoints.registry.owned import adapters_of
from fedscope.data.sets import dataset_catalogue as data_catalogue
from fedscope.errors import UserError, shortened
from fedscope.factories import called, imported, reason
from fedscope.landscape.loss.batches import Batches
from fedscope.landscape.loss.batchnorm import statistics, tell_elsewhere
from fedscope.landscape.loss.flat_loss import LossFunction
from fedscope.models import users_network
from fedscope.models.pretrained import lora_adapters, networks
from fedscope.pretrained import is_data, is_network
from fedscope.streams import seeded
from fedscope.workflows.sources.samples import Source, draw


@dataclass(frozen=True)
class OwnData:
    """Samples of the user's own."""

    batches: Batches
    rows: Tensor | None  # which they are; None where all are taken
    loss_fn: LossFunction


def own_network(path: Path, source: Source) -> tuple[nn.Module, tuple[str, ...], str]:
    """Return the user's network with the weights of ``path``, what was renamed, and their content hash."""
    if is_network(str(source.model)) and lora_adapters.is_folder(path):
        adapted = lora_adapters.from_folder(str(source.model), path)
        sha256 = content_hash(adapted.state_dict())
        return adapted.to(source.device, source.dtype), (f"adapters on {source.model}",), sha256
    lora = adapters_of(path) if is_network(str(source.model)) else None
    model = users_network.network(str(source.model), torch.Generator() if lora else None, lora)
    whole = is_network(str(source.model)) and networks.is_folder(path)
    tensors = networks.weights(path) if whole else read(path)
    fitted = fit(
        tensors, model.state_dict(keep_vars=True), str(path),
        entry=source.entry, statistics=statistics(model), bn=source.bn,
    )  # fmt: skip
    return filled(model, fitted.state, source, path), fitted.notes, content_hash(fitted.state)


def filled(model: nn.Module, state: dict[str, Tensor], source: Source, path: Path) -> nn.Module:
    """Return the network with the weights ``state`` of ``path``, on the source's device, in eval mode."""
    try:
        model.load_state_dict(state)
    except RuntimeError as error:
        reason = shortened(str(error).split("\n", 2)[1])
        raise UserError(f"{path} does not fit {type(model).__name__}: {reason}") from error
    tell_elsewhere(model)  # by Problem.told
    return model.to(source.device, source.dtype).eval()


def own_data(source: Source) -> OwnData:
    named = imported(source.loss, "--loss") if source.loss else None
    if is_data(str(source.data)):
        dataset = data_catalogue.load(str(source.data), model=source.model)
        split = dataset.test if source.split == "test" else dataset.train
        batches = Batches.of((split.images, split.wanted))
        return OwnData(*own_samples(batches, source), named or split.task_loss)
    loss = named or cross_entropy
    return OwnData(*own_samples(own_batches(str(source.data), loss), source), loss)


def own_batches(reference: str, loss: LossFunction = cross_entropy) -> Batches:
    try:
        with seeded(0):
            made = train_part(called(reference, "--data"))
            if made is None:
                raise UserError(
                    f"--data {reference} returned None; let it return batches of (inputs, targets)"
                )
            return Batches.of(made, loss=loss, quiet=True)
    except UserError:
        raise
    except Exception as error:  # whatever the user's loader raises
        raise UserError(f"--data {reference}: {reason(error)}") from error


def train_part(made: Any) -> Any:
    """Return the training data where they come as for training, with what to evaluate on."""
    return made["train"] if isinstance(made, Mapping) and "train" in made else made


def own_samples(batches: Batches, source: Source) -> tuple[Batches, Tensor | None]:
    """Return the source's draw of a user's own samples, and which they are; None where all are taken."""
    rows = draw(batches.samples, source)
    try:
        chosen = batches.taken(rows.split(source.batch_of(len(rows))))
    except UserError:  # padded to a length of their own, say: they can be taken as they are
        if source.samples or source.batch_size:
            raise
        return batches.to(source.device, source.dtype), None
    return chosen.to(source.device, source.dtype), rows
