"""The network and the data of a foreign checkpoint, as the registry describes them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor, nn

from fedscope.checkpoints.file.schema import DataSpec, ModelSpec
from fedscope.checkpoints.foreign.fitting import Fitted, fit
from fedscope.data.sets import catalogue as data_catalogue
from fedscope.errors import UserError
from fedscope.models import catalogue as model_catalogue
from fedscope.models import own


@dataclass(frozen=True)
class Identity:
    """A network, by the tensors it wants, and its data.

    A network of the catalogue comes in variants (projection head, shortcut), of which the first that a
    checkpoint fits is taken; a network of the user's own has one variant.
    """

    variants: tuple[tuple[ModelSpec, Mapping[str, Tensor]], ...]
    data: DataSpec

    def fitted(self, tensors: Mapping[str, Tensor], what: str, entry: str = "") -> tuple[ModelSpec, Fitted]:
        """Return the variant and the state that ``tensors`` are.

        Raises:
            UserError: they fit no variant; the message is about the first.
        """
        refusal: UserError | None = None
        for spec, wanted in self.variants:
            try:
                return spec, fit(tensors, wanted, what, entry=entry)
            except UserError as error:
                refusal = refusal or error
        assert refusal is not None
        raise refusal


def identify(
    model: str | nn.Module, dataset: str, *, data_dir: Path | None = None, augmentation: str | None = None
) -> Identity:
    """Return the identity that a network and a data set name.

    Args:
        model: a name of the catalogue, ``MODULE:FACTORY``, or a module.
        dataset: a name of the catalogue; with a network of the user's own also any other name.
        data_dir: where the data set is.
        augmentation: the pipeline whose normalisation the network was trained with; None: the set's first.

    Raises:
        UserError: there is no such network or data set, or its files cannot be read.
    """
    users = isinstance(model, nn.Module) or ":" in model
    if users and dataset not in data_catalogue.DATASETS:
        return Identity((_own(model),), DataSpec(name=dataset))
    found = data_catalogue.load(dataset, data_dir)
    name, _ = data_catalogue.pipeline(dataset, augmentation)
    data = DataSpec(
        name=dataset,
        augmentation=name,
        fingerprint=found.fingerprint,
        train_samples=len(found.train),
        test_samples=len(found.test),
    )
    if users:
        return Identity((_own(model),), data)
    channels = data_catalogue.record(dataset).channels
    return Identity(tuple(_variants(str(model), len(found.classes), channels)), data)


def _own(model: str | nn.Module) -> tuple[ModelSpec, Mapping[str, Tensor]]:
    network = own.network(model) if isinstance(model, str) else model
    name = model if isinstance(model, str) else type(network).__name__
    return ModelSpec(name=name), network.state_dict(keep_vars=True)


def _variants(name: str, classes: int, channels: int) -> Iterator[tuple[ModelSpec, Mapping[str, Tensor]]]:
    network = model_catalogue.find(name)
    for head in (False, True) if network.residual else (False,):
        for shortcut in network.shortcuts or (None,):
            spec = ModelSpec(name=name, classes=classes, channels=channels, head=head, shortcut=shortcut)
            outline = model_catalogue.outline(name, classes, channels, head=head, shortcut=spec.shortcut)
            yield spec, outline.state_dict(keep_vars=True)
