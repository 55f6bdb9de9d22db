"""Which methods a pretrained network, its adapters or its tokens go with: those that act on parameters."""

from torch import nn

from fedscope.data.loading.datasets import Dataset
from fedscope.errors import UserError
from fedscope.federated.record.method import Method
from fedscope.federated.record.options import Values
from fedscope.models.pretrained.networks import Seen, is_language


def check_classless(method: Method, options: Values, dataset: Dataset) -> None:
    """Refuse a method that needs more than parameters, where no classes are predicted: of text, say.

    Raises:
        UserError: it reads classes, images or activations.
    """
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
    """Refuse a network that does not go with the data, or a method that reads activations beside adapters.

    Raises:
        UserError: a language model is to see images, or another network text; or the method reads activations
            of a network that is constant.
    """
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
