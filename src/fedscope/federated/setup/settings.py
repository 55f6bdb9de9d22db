"""A run's settings with every name and default resolved, without reading any data."""

import torch
from torch import Tensor

from fedscope.checkpoints.file.schema import Settings
from fedscope.data.partition.division import division
from fedscope.data.partition.partition import PARAMETERS
from fedscope.data.partition.shift import run_maps
from fedscope.data.sets import catalogue as data_catalogue
from fedscope.federated.methods import parse
from fedscope.federated.setup.compatibility import check_compatible
from fedscope.federated.setup.names import named
from fedscope.federated.setup.sampling import sample_clients
from fedscope.models import catalogue as model_catalogue
from fedscope.own import is_own


def settled(settings: Settings, given: dict[str, str]) -> Settings:
    """Return the settings with every name and default resolved, without reading any data.

    ``given`` are the method's options as the user typed them. Two runs are of the same experiment iff their
    settled settings are equal. Settling settled settings again, with their options, changes nothing.

    Raises:
        UserError: anything in the settings that the user can mend and that does not depend on the data.
    """
    settings = named(settings)
    method = parse(settings.method)
    augmentation, _ = data_catalogue.pipeline(settings.dataset, settings.augmentation)
    options = method.values(given, settings.reading)
    known = None if is_own(settings.dataset) else data_catalogue.record(settings.dataset)
    check_compatible(settings, method, known.domains if known else ())
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
            **{name: None for name in ("alpha", "phi", "rho") if name not in reads},
        }
    )


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
