"""The names of a run's network and data: of a catalogue, or MODULE:FACTORY for the user's own."""

from fedscope.checkpoints.file.schema import Settings
from fedscope.data.sets import catalogue as data_catalogue
from fedscope.data.sets import own
from fedscope.errors import UserError
from fedscope.own import DATASETS, MODELS, digest, is_own, resolved


def named(settings: Settings) -> Settings:
    """Return the settings with registered names of network and data set replaced by MODULE:FACTORY.

    Raises:
        UserError: data of the user's own without a network, or test data without them.
    """
    dataset = resolved(settings.dataset, DATASETS)
    if settings.test_data and not is_own(dataset):
        raise UserError(f"{dataset} has test data; --test-data is for --data MODULE:FACTORY")
    model = settings.model
    if model is None and is_own(dataset):
        raise UserError(f"--data {dataset} needs a --model: MODULE:FACTORY, or one of `fedscope models list`")
    model = resolved(model or data_catalogue.record(dataset).model, MODELS)
    return settings.model_copy(update={"dataset": dataset, "model": model})


def source(settings: Settings) -> str:
    """Return the hash of the files that make data of the user's own, "" for others."""
    names = (settings.dataset, *([settings.test_data] if settings.test_data else []))
    return digest(*names) if is_own(settings.dataset) else ""


def divided(fields: dict[str, object]) -> dict[str, object]:
    """Return the settings; for data of the user's own that come divided, with their partition and clients.

    Raises:
        UserError: the data cannot be loaded.
    """
    dataset = resolved(str(fields.get("dataset", "")), DATASETS)
    if not is_own(dataset) or fields.get("partition", "own") != "own":
        return fields
    test = fields.get("test_data")
    clients = own.clients(dataset, str(test) if test else None)
    return fields if clients is None else {"partition": "own", "clients": clients, **fields}
