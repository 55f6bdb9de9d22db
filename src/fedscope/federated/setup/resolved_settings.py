"""A run's settings with every name and default resolved, without reading any data."""

import torch
from torch import Tensor

from fedscope.checkpoints.file.settings import Settings
from fedscope.data.partition.division import division
from fedscope.data.partition.draw_partition import PARAMETERS
from fedscope.data.partition.shift import run_maps
from fedscope.data.sets import dataset_catalogue as data_catalogue
from fedscope.data.sets import own_data
from fedscope.errors import UserError
from fedscope.federated.methods import METHODS, parse
from fedscope.federated.setup.compatibility import check_compatible
from fedscope.federated.setup.sampling import sample_clients
from fedscope.lora import LoRA
from fedscope.models import catalogue as model_catalogue
from fedscope.own import DATASETS, MODELS, is_own, resolved
from fedscope.pretrained import is_network

# Parameters of partitions that are None in settled settings of a kind that does not read them.
PARTITIONS = ("alpha", "phi", "rho", "shards", "classes_per_client")


def settled(settings: Settings, given: dict[str, str]) -> Settings:
    """Return the settings with every name and default resolved, without reading any data.

    ``given`` are the method's options as the user typed them. Two runs are of the same experiment iff their
    settled settings are equal. Settling settled settings again, with their options, changes nothing.
    """
    settings = _named(settings)
    method = parse(settings.method)
    augmentation, _ = data_catalogue.pipeline(settings.dataset, settings.augmentation)
    for name in given.keys() - {option.name for option in method.options}:
        owners = [one.name for one in METHODS.values() if name in (option.name for option in one.options)]
        if owners:
            raise UserError(
                f"method {method.name} has no option {name!r}, which is of {owners[0]}: train with --method "
                f"{method.name}+{owners[0]}"
            )
    options = method.values(given, settings.reading)
    known = None if is_own(settings.dataset) else data_catalogue.record(settings.dataset)
    check_compatible(settings.model_copy(update={"options": options}), method, known.domains if known else ())
    division(settings)
    sample_clients(settings.sampling, settings.clients, settings.participation, settings.seed, 0)
    if not is_own(str(settings.model)):
        model_catalogue.find(str(settings.model))
    if known:
        label_maps(settings, known.classes)
    reads = PARAMETERS[settings.partition]
    return settings.model_copy(
        update={
            "method": method.name,
            "options": options,
            "augmentation": augmentation,
            **{name: None for name in PARTITIONS if name not in reads},
        }
    )


def completed(settings: Settings) -> Settings:
    """Return the settings of a run with the options that its method got since, at what it did without them.

    A default that an option has when it is added says what was done before. Methods that are not known here
    are left as they are.
    """
    try:
        added = parse(settings.method).values({}, settings.reading)
    except UserError:
        return settings
    return settings.model_copy(update={"options": {**added, **settings.options}})


def _named(settings: Settings) -> Settings:
    """Return the settings with registered names of network and data set replaced by MODULE:FACTORY."""
    dataset = resolved(settings.dataset, DATASETS)
    if settings.test_data and not is_own(dataset):
        raise UserError(f"{dataset} has test data; --test-data is for --data MODULE:FACTORY")
    model = settings.model
    if model is None and is_own(dataset):
        raise UserError(f"--data {dataset} needs a --model: MODULE:FACTORY, or one of `fedscope models list`")
    model = resolved(model or data_catalogue.record(dataset).model, MODELS)
    if settings.lora is not None:
        LoRA.parse(settings.lora)
        if not is_network(model):
            raise UserError(f"--lora adapts a pretrained network, --model hf:NAME, and {model} is none")
    return settings.model_copy(update={"dataset": dataset, "model": model})


def with_own_division(fields: dict[str, object]) -> dict[str, object]:
    """Return the settings; for data of the user's own that come divided, with their partition and clients."""
    dataset = resolved(str(fields.get("dataset", "")), DATASETS)
    if not is_own(dataset) or fields.get("partition", "own") != "own":
        return fields
    test, loss = fields.get("test_data"), fields.get("loss")
    clients = own_data.clients(dataset, str(test) if test else None, str(loss) if loss else None)
    return fields if clients is None else {"partition": "own", "clients": clients, **fields}


def label_maps(settings: Settings, classes: int) -> Tensor | None:
    """Return each round's labels of the classes under concept shift (T, C), or None without one."""
    if settings.shift == "none":
        return None
    maps = run_maps(
        classes,
        settings.rounds,
        settings.seed,
        settings.shift_sequence,
        settings.shift,
        settings.shift_probability,
    )
    return torch.from_numpy(maps).to(settings.device)
