"""GradAug: narrower versions of the network, on rescaled images, imitate the whole.

ℓ(F(x), y) + μ Σ_{i=1..n} KL(softmax F(x) ‖ softmax F_{ω_i}(T_i(x))), the first argument constant. F_ω is the
network of the first channels of every layer (:mod:`fedscope.models.slimmable`), T_i a bilinear resize of the
augmented batch to a side drawn from a list that holds the native one. The published code takes one
sub-network at the least width and draws the others. Sub-networks normalise by their batch and leave the
running statistics alone. Stateless.
"""

import math
from typing import Literal, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate, kl_div, log_softmax

from fedscope.errors import UserError
from fedscope.federated.record.method import Method
from fedscope.federated.record.options import Option, Values
from fedscope.federated.record.views import Pass
from fedscope.models.resnet import ResNet
from fedscope.models.slimmable import slim

SCALES = (1.0, 7 / 8, 3 / 4, 5 / 8)  # {32, 28, 24, 20} of 32; of 224 the published list is another
SIDES = {224: [224, 192, 160, 128]}
STRENGTHS = (2.0, 1.75, 1.5, 1.25)
DIVISOR = Option("slim.divisor", 8, "channels are rounded to multiples of this", within=(1, 512))
POST_BN = Option(
    "post_bn", "off", "re-estimate BatchNorm after training: not, to measure training accuracy, or to upload",
    code="report", choices=("off", "report", "upload"),
)  # fmt: skip


def recalibration(options: Values) -> Literal["off", "report", "upload"]:
    """Return whether BatchNorm is re-estimated after local training."""
    return cast(Literal["off", "report", "upload"], options["post_bn"])


def sides(options: Values, native: int) -> list[int]:
    """Return sides to draw from: the option's, else the published ones for images of ``native`` pixels."""
    text = str(options["gradaug.resolutions"])
    if text == "auto":
        return SIDES.get(native, [round(scale * native) for scale in SCALES])
    try:
        return [positive(int(part)) for part in text.split(",")]
    except ValueError as error:
        raise UserError(
            f"gradaug.resolutions is a list of sides such as 32,28,24,20, or auto, not {text!r}"
        ) from error


def positive(side: int) -> int:
    """Return ``side``, which is at least 4: the network halves it twice."""
    if side < 4:
        raise ValueError(side)
    return side


def draw(
    generator: torch.Generator, options: Values, images: Tensor, _: nn.Module
) -> list[tuple[float, int]]:
    """Return (width, side) of every sub-network, widest first."""
    count, least = int(options["gradaug.n"]), float(options["gradaug.width"])
    widths = (least + (1 - least) * torch.rand(count, generator=generator, dtype=torch.float64)).tolist()
    if options["gradaug.widths"] == "min_plus_uniform":
        widths[-1:] = [least]
    choice = sides(options, images.shape[-1])
    drawn = torch.randint(len(choice), (count,), generator=generator).tolist()
    return [(width, choice[i]) for width, i in zip(sorted(widths, reverse=True), drawn, strict=True)]


def imitation(at: Pass) -> Tensor:
    """Return μ Σ_i KL(p_full ‖ p_i), a scalar."""
    whole, total = log_softmax(at.logits.detach(), 1), at.logits.new_zeros(())
    divisor = int(at.options["slim.divisor"])
    for width, side in at.drawn["gradaug"]:
        images = resized(at.batch.images, side)
        part = log_softmax(at.network(slim, images, width, divisor), 1)
        total = total + kl_div(part, whole, reduction="batchmean", log_target=True)
    return strength(at.options) * total


def resized(images: Tensor, side: int) -> Tensor:
    """Return images (B, C, H, W) at ``side`` pixels."""
    if side == images.shape[-1]:
        return images
    return interpolate(images, size=(side, side), mode="bilinear", align_corners=True)


def alone(model: nn.Module, image: Tensor, options: Values) -> None:
    """Run the network on one image at the least side that is drawn; normalisation may refuse it."""
    model(resized(image, min(sides(options, image.shape[-1]))))


def strength(options: Values) -> float:
    """Return μ: as set, or the published one for n sub-networks, for more of them that of four."""
    if options["gradaug.mu"] == "auto":
        return STRENGTHS[min(int(options["gradaug.n"]), len(STRENGTHS)) - 1]
    return float(options["gradaug.mu"])


def number(text: str) -> None:
    """Refuse a strength that is neither auto nor a number from 0 up."""
    try:
        fine = text == "auto" or 0 <= float(text) < math.inf
    except ValueError:
        fine = False
    if not fine:
        raise UserError(f"gradaug.mu is auto or a finite number from 0 up, not {text!r}")


def check(model: nn.Module, options: Values) -> None:
    """Refuse what cannot be slimmed, and lists of sides that are none."""
    residual(model, "gradaug")
    sides(options, 32)


def residual(model: nn.Module, method: str) -> None:
    """Refuse a network that is not residual."""
    if not isinstance(model, ResNet):
        raise UserError(f"{method} runs parts of a residual network; choose a ResNet with --model")


GRADAUG = Method(
    name="gradaug",
    objective="ℓ(w) + μ Σ_{i≤n} KL(softmax F(x) ‖ softmax F_{ω_i}(T_i(x)))",
    source="Yang, Zhu, Chen 2020 (NeurIPS), section 3; in FL: Mendieta et al. 2022",
    place="in the task loss, by n more forward and backward passes",
    options=(
        Option(
            "gradaug.mu", "auto", "strength μ; auto: 2, 1.75, 1.5, 1.25 for n = 1…4 (Mendieta et al. 2022)",
            check=number,
        ),
        Option("gradaug.n", 2, "number of sub-networks n", within=(1, 16)),
        Option("gradaug.width", 0.8, "least width ω_b (Mendieta et al. 2022: 0.8)", within=(0.01, 1.0)),
        Option(
            "gradaug.widths", "uniform", "all sub-networks ~ U[ω_b, 1], or one of them at ω_b",
            code="min_plus_uniform", choices=("uniform", "min_plus_uniform"),
        ),
        Option("gradaug.resolutions", "auto", "sides to draw from, such as 32,28,24; auto: the published"),
        DIVISOR,
        POST_BN,
    ),
    checks=(check,),
    single_image_checks=(alone,),
    draws={"gradaug": draw},
    task_terms=(imitation,),
    subnetworks=True,
    recalibration=recalibration,
)  # fmt: skip
