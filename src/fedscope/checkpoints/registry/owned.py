"""Code of the user's own that a run or a checkpoint names, and whether it may run without being named."""

from collections.abc import Collection
from pathlib import Path

from fedscope import pretrained
from fedscope.checkpoints.file.checkpoint import describe_checkpoint
from fedscope.checkpoints.file.schema import CheckpointInfo, Manifest, ModelSpec
from fedscope.errors import UserError
from fedscope.lora import LoRA
from fedscope.own import DATASETS, MODELS, SHOWN, digest, is_own, vouched


def network_note(record: CheckpointInfo | Manifest, named: Collection[str | None] = ()) -> str:
    name, source = record.model.name, record.model.source
    return vouched((name,), source, "--model", MODELS, named=name in named) if is_own(name) else ""


def data_note(record: CheckpointInfo | Manifest, named: Collection[str | None] = ()) -> str:
    name, test, loss = record.data.name, record.settings.test_data, record.settings.loss
    notes = list[str]()
    if is_own(name):
        makers = (name, test) if test else (name,)
        notes.append(vouched(makers, record.data.source, "--data", DATASETS, named=name in named))
    if loss and not loss.startswith("torch.nn.functional:"):
        notes.append(vouched((loss,), record.data.loss_source, "--loss", "", named=loss in named))
    return "; ".join(filter(None, notes))


def names(path: Path, model: str | None, data: str | None, loss: str | None = None) -> bool:
    """Say whether the user names only the network, the data and the loss that the checkpoint itself names."""
    if not (model or data or loss):
        return True
    try:
        info = describe_checkpoint(path)[0]
    except UserError:  # of another program
        return False
    known = info.model.classes is not None and loss in (None, info.settings.loss)
    same = model in (None, info.model.name) or is_place(str(model), info.model)
    return known and same and (data in (None, info.data.name) or is_data_place(str(data), info))


def check_content(path: Path, model: str | None, data: str | None) -> None:
    """Refuse a pretrained network, or data in files, that are taken for a checkpoint's own and are not."""
    try:
        info = describe_checkpoint(path)[0]
    except UserError:  # of another program
        return
    spec, known = info.model, info.data
    fixed = spec.lora is not None or not data  # a whole network's weights may be measured on other data
    if model and fixed and all(map(pretrained.is_network, (model, spec.name))) and not _is(model, info):
        pretrained.sought(model)
        raise UserError(
            f"the weights of {model} ({digest(model)[:SHOWN] or 'not fetched'}) are not those of {spec.name} "
            f"({spec.source[:SHOWN] or 'unknown'}), which {info.run} was trained on"
        )
    if data and not model and all(map(pretrained.is_data, (data, known.name))) and not _is(data, info):
        pretrained.files(data)
        now = pretrained.digest(data, pretrained.parts(known.name)[0].name)
        raise UserError(
            f"{data} ({now[:SHOWN]}) is not what {info.run} was trained on, {known.name} "
            f"({known.source[:SHOWN] or 'unknown'}); to measure it on other data, add --model {spec.name}"
        )


def adapters_of(path: Path) -> LoRA | None:
    try:
        return describe_checkpoint(path)[0].model.lora
    except UserError:  # of another program
        return None


def _is(name: str, info: CheckpointInfo) -> bool:
    return (
        name in (info.model.name, info.data.name) or is_place(name, info.model) or is_data_place(name, info)
    )


def is_place(name: str, spec: ModelSpec) -> bool:
    """Say whether ``hf:NAME`` is the same pretrained network as a checkpoint's, in whichever folder."""
    return pretrained.is_network(name) and pretrained.is_copy(name, spec.name, spec.source)


def is_data_place(name: str, info: CheckpointInfo) -> bool:
    return pretrained.is_data(name) and pretrained.is_copy(
        name, info.data.name, info.data.source, others(info)
    )


def others(info: CheckpointInfo) -> tuple[str, ...]:
    """Return what was hashed together with a checkpoint's data: those that it was evaluated on."""
    return (info.settings.test_data,) if info.settings.test_data else ()
