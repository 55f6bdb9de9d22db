"""Code of the user's own that a run or a checkpoint names, and whether it may run without being named."""

from collections.abc import Collection
from pathlib import Path

from fedscope import pretrained
from fedscope.checkpoints.file.checkpoint import describe_checkpoint
from fedscope.checkpoints.file.schema import CheckpointInfo, Manifest, ModelSpec
from fedscope.errors import UserError
from fedscope.own import DATASETS, MODELS, is_own, vouched


def network_note(record: CheckpointInfo | Manifest, named: Collection[str | None] = ()) -> str:
    """Return a note if the network's code has changed since training, else "".

    ``named`` are the names that the user gave.

    Raises:
        UserError: the code must not be run without being named, or is not found.
    """
    name, source = record.model.name, record.model.source
    return vouched((name,), source, "--model", MODELS, named=name in named) if is_own(name) else ""


def data_note(record: CheckpointInfo | Manifest, named: Collection[str | None] = ()) -> str:
    """Return a note if the code that makes the data has changed since training, else "".

    Raises:
        UserError: as :func:`network_note`.
    """
    name, test = record.data.name, record.settings.test_data
    if not is_own(name):
        return ""
    makers = (name, test) if test else (name,)
    return vouched(makers, record.data.source, "--data", DATASETS, named=name in named)


def names(path: Path, model: str | None, data: str | None) -> bool:
    """Say whether the user names only the network and the data that the checkpoint itself names."""
    if not (model or data):
        return True
    try:
        info = describe_checkpoint(path)[0]
    except UserError:  # of another program
        return False
    known = info.model.classes is not None
    same = model in (None, info.model.name) or is_place(str(model), info.model)
    return known and same and data in (None, info.data.name)


def is_place(name: str, spec: ModelSpec) -> bool:
    """Say whether ``hf:NAME`` is the same pretrained network as a checkpoint's, in whichever folder."""
    return pretrained.is_network(name) and bool(spec.source) and pretrained.digest(name) == spec.source
