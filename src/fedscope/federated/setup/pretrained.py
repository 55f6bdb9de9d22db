"""Which methods a pretrained network, its adapters or its tokens go with: those that act on parameters."""

from torch import nn

from fedscope.data.loading.datasets import Dataset
from fedscope.errors import UserError
from fedscope.federated.record.method import Method
from fedscope.models.pretrained.networks import Seen, is_language


def check_pretrained(model: nn.Module, method: Method, dataset: Dataset) -> None:
    """Refuse a network that does not go with the data, or a method that needs more than its parameters.

    Raises:
        UserError: a language model is to see images, or another network text; or the method reads classes,
            images or activations.
    """
    text = dataset.train.targets is not None
    if isinstance(model, Seen) and is_language(model) != text:
        kind, need = (
            ("a language model", "text:PATH") if is_language(model) else ("no language model", "images:PATH")
        )
        raise UserError(
            f"the network is {kind}, and {dataset.name} is {'' if text else 'no '}text; use --data {need}"
        )
    classes = bool(
        method.logits
        or method.label_counts
        or method.batch_transform
        or method.ascent_loss
        or method.task_terms
    )
    if text and classes:
        raise UserError(
            f"{method.name} acts on classes or activations of samples, and text has tokens; choose a method "
            "that acts on parameters, such as fedprox, scaffold, feddyn or fedsam"
        )
    if getattr(model, "lora", None) and method.taps:
        raise UserError(
            f"{method.name} reads the network's activations, and with --lora its base is constant; leave "
            "--lora out, or choose a method that acts on parameters"
        )
