"""MAN: the mean squared activation of every layer is kept small.

ζ·Σ_l mean(a_l²) over the layers' outputs a_l after their non-linearity, mean over batch and units (Yashwanth
et al. 2024, Eqs. 16–18). It belongs to the task loss, wherever its host evaluates that: with an ascent step
in both passes, with Mixup on the mixed images, with sub-networks on the full network only. No state, no
traffic. The published code halves the strength (``man.half``); on the Tiny-ImageNet ConvNet it takes the
third convolution after its pooling, and in its other branch loses that layer and adds the variance over the
batch of the last hidden features instead (``man.taps``).
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from fedscope.errors import UserError
from fedscope.federated.record.method import Method
from fedscope.federated.record.options import Option, Values
from fedscope.federated.record.taps import relu_outputs
from fedscope.federated.record.views import Pass

TINY = {  # on the network of three pooled convolutions and two hidden linear layers
    "code": ["relu1", "relu2", "pool3", "relu4", "relu5"],
    "tiny_main": ["relu1", "relu2", "relu4", "relu5"],
}


def activation_norm(at: Pass) -> Tensor:
    """Return ζ·Σ_l mean(a_l²), a scalar; half of it under ``man.half``."""
    found = mean_squares(at.taps["man"], at.logits, at.options)
    at.notes["man.activations"] = found.detach()
    return strength(at.options) * found.sum()


def strength(options: Values) -> float:
    """Return ζ as it multiplies the sum."""
    return float(options["man.zeta"]) * (0.5 if options["man.half"] else 1.0)


def mean_squares(outputs: Sequence[Tensor], logits: Tensor, options: Values) -> Tensor:
    """Return mean(a²) of the tapped layers' ``outputs`` and of the logits where they count, (L,)."""
    layers = [*outputs, *([logits] if options["man.include_logits"] else [])]
    norms: list[Tensor] = [_MeanSquare.apply(a) for a in layers]  # type: ignore[no-untyped-call]
    if options["man.taps"] == "tiny_main":
        norms.append(outputs[-1].var(0).mean())
    return torch.stack(norms)


class _MeanSquare(torch.autograd.Function):
    """mean(a²) of activations of any shape, whose derivative 2a/n is one pass in the layout of a.

    Autograd's own goes through a tensor of equal numbers in another layout, which made a step with the term
    take up to twice as long as one without.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(a: Tensor) -> Tensor:
        return a.square().mean()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        a: Tensor
        (a,) = ctx.saved_tensors
        return a * (gradient * (2 / a.numel()))


def layers(model: nn.Module, options: Values) -> list[str]:
    """Return the modules whose outputs are taken: every ReLU, or as published for Tiny-ImageNet."""
    chosen = TINY.get(str(options["man.taps"]), [])
    return chosen if chosen and _is_tiny(model) else relu_outputs(model)


def labels(model: nn.Module, options: Values) -> list[str]:
    """Return the names of what :func:`mean_squares` returns."""
    logits = ["logits"] if options["man.include_logits"] else []
    return [*layers(model, options), *logits, *(["variance"] if options["man.taps"] == "tiny_main" else [])]


def check(model: nn.Module, options: Values) -> None:
    """Refuse the other branch's layers on another network."""
    if options["man.taps"] == "tiny_main" and not _is_tiny(model):
        raise UserError("man.taps=tiny_main is for --model convnet_tiny_gn; leave it out for others")


def alone(_model: nn.Module, _image: Tensor, options: Values) -> None:
    """Refuse a mini-batch of one image where its variance is taken."""
    if options["man.taps"] == "tiny_main":
        raise ValueError("man.taps=tiny_main takes a variance over its images")


def _is_tiny(model: nn.Module) -> bool:
    return set(TINY["code"]) <= {name for name, _ in model.named_modules()}


MAN = Method(
    name="man",
    flatness=True,
    objective="ζ Σ_l mean(a_l²)",
    source="Yashwanth et al. 2024 (WACV), Eqs. 16–18",
    place="in the task loss",
    options=(
        Option("man.zeta", 0.15, "strength ζ (CIFAR-100: 0.15, Tiny-ImageNet: 0.1)"),
        Option("man.half", False, "multiply by ½ as the published code does", code=True),
        Option(
            "man.taps", "code", "layers: the published code's, those of its other branch, or every ReLU",
            choices=("code", "tiny_main", "relu"),
        ),
        Option("man.include_logits", False, "count the logits as a layer"),
    ),
    checks=(check,),
    single_image_checks=(alone,),
    taps={"man": layers},
    notes={"man.activations": labels},
    task_terms=(activation_norm,),
)  # fmt: skip
