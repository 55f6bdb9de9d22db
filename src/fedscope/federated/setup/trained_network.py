"""The network that a run trains: of the catalogue or the user's own, fitted to method and data."""

from collections import Counter
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from fedscope import own as code
from fedscope.checkpoints.file.fields import parse as parse_record
from fedscope.checkpoints.file.schema import ModelSpec
from fedscope.checkpoints.file.settings import Settings
from fedscope.data.loading.datasets import Dataset
from fedscope.data.sets import dataset_catalogue as data_catalogue
from fedscope.errors import UserError
from fedscope.federated.record.method import Method, NetworkNeeds
from fedscope.federated.record.options import Values
from fedscope.federated.setup.compatibility import trying
from fedscope.lora import LoRA
from fedscope.models import catalogue as model_catalogue
from fedscope.models import users_network
from fedscope.models.pretrained.networks import Seen, is_language
from fedscope.streams import torch_stream
from fedscope.task_loss import TaskLoss


def check_classless(method: Method, options: Values, dataset: Dataset) -> None:
    """Refuse a method that needs more than parameters, where no classes are predicted: of text, say."""
    reads = (
        method.logits, method.label_counts, method.batch_transform, method.ascent_loss, method.task_terms,
    )  # fmt: skip
    own = dataset.train.loss is not None
    if any(map(bool, reads)) or (own and options.get("fisher") == "model"):
        what = "the network's outputs under --loss are no logits of classes" if own else "text has tokens"
        raise UserError(
            f"{method.name} acts on classes or activations of samples, and {what}; choose a method "
            "that acts on parameters, such as fedprox, scaffold, feddyn or fedsam"
        )


def check_pretrained(model: nn.Module, method: Method, dataset: Dataset) -> None:
    """Refuse a network that does not go with the data, or a method that reads activations beside adapters."""
    text = dataset.train.targets is not None
    if isinstance(model, Seen) and is_language(model) != text:
        kind, need = (
            ("a language model", "text:PATH") if is_language(model) else ("no language model", "images:PATH")
        )
        raise UserError(
            f"the network is {kind}, and {dataset.name} is {'' if text else 'no '}text; use --data {need}"
        )
    if getattr(model, "lora", None) and method.taps:
        raise UserError(
            f"{method.name} reads the network's activations, and with --lora its base is constant; leave "
            "--lora out, or choose a method that acts on parameters"
        )


def network(
    settings: Settings, method: Method, dataset: Dataset, resized: int | None
) -> tuple[ModelSpec, nn.Module]:
    """Return the network that the method trains on this data, with its initial weights.

    ``resized`` is the side that the pipeline scales images to, if it does.
    """
    options = settings.options
    needs = NetworkNeeds()
    for need in method.network_needs:
        needs.update(need(options))
    if settings.head is not None:
        needs["head"] = settings.head
    assert settings.model
    make = _own if code.is_own(settings.model) else _of_catalogue
    spec, model = make(settings, method, needs, dataset, resized)
    for check in method.checks:
        check(model, options)
    for name, taps in method.taps.items():
        read = taps(model, options)
        if not read:
            raise UserError(
                f"{name} reads the outputs of nn.ReLU modules, and {settings.model} has none (functions such "
                "as F.relu do not count); use modules, or another --method"
            )
        if code.is_own(settings.model):
            _check_used_once(name, read, model, _tried(settings, dataset)[0])
    return spec, model


def _check_used_once(method: str, read: Sequence[str], model: nn.Module, inputs: Tensor) -> None:
    """Refuse a network that runs a module several times, of which the method would see the last alone."""
    uses = Counter[str]()

    def count(name: str) -> Callable[..., None]:
        return lambda *_: uses.update([name])

    every = {name.removeprefix("<") for name in read}
    handles = [model.get_submodule(name).register_forward_hook(count(name)) for name in every]
    try:
        with trying(model), torch.no_grad():
            model(inputs)
    finally:
        for handle in handles:
            handle.remove()
    if often := [name for name in uses if uses[name] > 1]:
        raise UserError(
            f"{method} reads the output of {often[0]}, which the network runs {uses[often[0]]} times in one "
            "pass: give each place a module of its own, or take another --method"
        )


def rebuilt(spec: ModelSpec, generator: torch.Generator) -> nn.Module:
    return model_catalogue.build(**spec.arguments, generator=generator)


def _of_catalogue(
    settings: Settings, method: Method, needs: NetworkNeeds, dataset: Dataset, resized: int | None
) -> tuple[ModelSpec, nn.Module]:
    name = str(settings.model)
    found, shape = model_catalogue.find(name), dataset.train.images.shape[1:]
    if len(shape) != 3 or shape[1] != shape[2]:
        raise UserError(f"model {name} takes square images, {settings.dataset} has {tuple(shape)}")
    side = resized or shape[1]
    if not found.takes(side):
        raise UserError(f"model {name} takes {found.sides}, {settings.dataset} has {side}; {_mend(settings)}")
    if needs.get("head") and not found.residual and settings.head is None:
        raise UserError(_headless(method, name))
    sizes = {"classes": len(dataset.classes), "channels": shape[0]}
    known = {"name": name, **sizes, "shortcut": settings.shortcut}
    spec = parse_record(ModelSpec, {**known, **needs}, "model")
    return spec, rebuilt(spec, torch_stream(settings.seed, "initialisation"))


def _own(
    settings: Settings, method: Method, needs: NetworkNeeds, dataset: Dataset, _resized: int | None
) -> tuple[ModelSpec, nn.Module]:
    name = str(settings.model)
    if dataset.train.targets is not None:  # which no other choice than the method's would mend
        check_classless(method, settings.options, dataset)
    if needs.pop("head", False):
        if settings.head:
            raise UserError(f"{name} is a network of your own, to which no head is added; leave --head out")
        raise UserError(_headless(method, name))
    if needs or settings.shortcut:
        what = f"{method.name} drops residual blocks" if needs else "--shortcut is for residual networks"
        raise UserError(f"{what}, which {name} is not known to have; choose another --model")
    lora = LoRA.parse(settings.lora) if settings.lora else None
    model = users_network.network(name, torch_stream(settings.seed, "initialisation"), lora)
    check_pretrained(model, method, dataset)
    tried = _tried(settings, dataset)
    classes = users_network.check_classifier(model, name, *tried, dataset.least_outputs)
    if dataset.train.loss and classes == 1:
        check_classless(method, settings.options, dataset)
    if settings.stack > 1:
        users_network.check_stack(model, name, *tried)
    adapters = getattr(model, "lora", None)
    return ModelSpec(name=name, classes=classes, source=code.digest(name), lora=adapters), model


def can_be_stacked(settings: Settings, model: nn.Module, dataset: Dataset) -> bool:
    if not code.is_own(str(settings.model)):
        return True
    try:
        users_network.check_stack(model, str(settings.model), *_tried(settings, dataset))
    except UserError:
        return False
    return True


def _tried(settings: Settings, dataset: Dataset) -> tuple[Tensor, Tensor, TaskLoss]:
    return dataset.tried(data_catalogue.pipeline(settings.dataset, settings.augmentation)[1])


def _headless(method: Method, name: str) -> str:
    return (
        f"{method.name} trains a network with a projection head, which {name} cannot have; choose "
        "a residual network with --model, or --no-head to use what the classifier reads"
    )


def _mend(settings: Settings) -> str:
    if code.is_own(settings.dataset):
        return "choose another --model"
    known = data_catalogue.record(settings.dataset)
    found = model_catalogue.find(str(settings.model))
    fitting = [name for name, other in known.pipelines.items() if found.takes(other.side or known.side)]
    return f"use --augmentation {fitting[0]}" if fitting else "choose another --model"
