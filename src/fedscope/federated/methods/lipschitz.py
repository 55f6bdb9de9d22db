"""FedAlign: the last group of blocks, run slim on the same input, keeps the Lipschitz constant of the whole.

ℓ(w) + μ·MSE(K_S, K_F): per sample K = ‖X‖₂, X = f_{L−1} f_Lᵀ the product of the last block group's input and
output (channels × positions, the input average-pooled to the output's size), X_S the same for that group at
width ω on the first ω·C channels of its input. ‖X‖₂ by power iteration, differentiated through. The published
code, whose strength μ is the default, weights the term by the constant ℓ/MSE, divides X by the number of
positions, holds the full network's features constant, so that only the slim part of the last group is
trained by it, and clips the gradient at 10. Stateless. Mendieta et al. 2022 (CVPR), Eq. 5.
"""

from functools import cache

import torch
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d, mse_loss

from fedscope.federated.methods.subnetworks import DIVISOR, POST_BN, recalibration, residual
from fedscope.federated.record.method import Method
from fedscope.federated.record.options import Option
from fedscope.federated.record.views import Pass
from fedscope.models.slimmable import channels, slim

TINY = 1e-12


def spectral_norm(x: Tensor, start: Tensor, iterations: int) -> Tensor:
    """Return ‖X‖₂ of each matrix of ``x`` (B, m, n) by power iteration on X Xᵀ from ``start`` (m,), (B,)."""
    v = start.expand(len(x), -1)[:, :, None]
    norm = v.new_ones(len(x), 1, 1)
    for _ in range(iterations):
        u = x @ (x.mT @ v)
        norm = u.norm(dim=1, keepdim=True).clamp_min(TINY)
        v = u / norm
    return norm.flatten().sqrt()


@cache  # a recorded step cannot draw, and finds it here
def _random_vector(size: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(0)).to(device, dtype)


def transmission(before: Tensor, after: Tensor, *, mean: bool) -> Tensor:
    """Return f_{L−1} f_Lᵀ, (B, C₁, C₂), of feature maps (B, C₁, H, W) and (B, C₂, h, w)."""
    before = adaptive_avg_pool2d(before, (after.shape[2], after.shape[3]))
    product = before.flatten(2) @ after.flatten(2).mT
    return product / after[0, 0].numel() if mean else product


def weighted(distance: Tensor, loss: Tensor, weighting: str) -> Tensor:
    """Return MSE(K_S, K_F), or what has its gradient times the constant ℓ/MSE; 0 where the MSE is."""
    if weighting == "const":
        return distance
    ratio = torch.where(distance > 0, loss / distance.clamp_min(TINY), 0.0).detach()
    return ratio * distance


def alignment(at: Pass) -> Tensor:
    """Return μ times the weighted distance of the two Lipschitz constants, a scalar."""
    options = at.options
    before, after = at.taps["fedalign"]
    if options["fedalign.detach"] == "both":
        before, after = before.detach(), after.detach()
    width = float(options["fedalign.width"])
    divisor = int(options["slim.divisor"])
    part = before[:, : channels(before.shape[1], width, divisor)]
    out = at.network(lambda model: slim(model.groups[-1], part, width, divisor))
    mean = options["fedalign.tm_scale"] == "mean"
    start = power_start(str(options["fedalign.power_init"]), before)
    iterations = int(options["fedalign.power_iters"])
    with torch.set_grad_enabled(torch.is_grad_enabled() and bool(options["fedalign.power_grad"])):
        whole = spectral_norm(transmission(before, after, mean=mean), start, iterations)
        slender = spectral_norm(transmission(part, out, mean=mean), start[: part.shape[1]], iterations)
    if options["fedalign.detach"] != "none":
        whole = whole.detach()
    distance = mse_loss(slender, whole)
    return float(options["fedalign.mu"]) * weighted(
        distance, at.loss.detach(), str(options["fedalign.weighting"])
    )


def power_start(kind: str, features: Tensor) -> Tensor:
    """Return where the power iteration begins, (C₁,): ones, or one random vector, the same in every step."""
    if kind == "ones":
        return features.new_ones(features.shape[1])
    return _random_vector(features.shape[1], features.device, features.dtype)


FEDALIGN = Method(
    name="fedalign",
    flatness=True,
    objective="ℓ(w) + μ·MSE(K_S, K_F), K = ‖f_{L−1} f_Lᵀ‖₂ of the last block group, slim and full",
    source="Mendieta et al. 2022 (CVPR), Eq. 5",
    place="in the task loss; the gradient is clipped at 10 where --clip is not given",
    options=(
        Option("fedalign.mu", 0.45, "strength μ (Mendieta et al. 2022: 0.45)"),
        Option("fedalign.width", 0.25, "width ω_S of the slim group", within=(0.01, 1.0)),
        Option(
            "fedalign.weighting", "ce_ratio", "weight the term by ℓ/MSE, or as in Eq. 5",
            choices=("ce_ratio", "const"),
        ),
        Option("fedalign.tm_scale", "mean", "divide X by its positions, or not", choices=("mean", "sum")),
        Option(
            "fedalign.detach", "both", "constants: f_{L−1} and f_L, only K_F, or nothing",
            choices=("both", "teacher", "none"),
        ),
        Option(
            "fedalign.power_init", "ones", "start of the power iteration: ones, or one random vector",
            choices=("ones", "random"),
        ),
        Option("fedalign.power_iters", 10, "steps of the power iteration", within=(1, 1000)),
        Option("fedalign.power_grad", True, "differentiate through the power iteration"),
        Option("fedalign.clip", 10.0, "clip the gradient's norm where --clip is not given; 0: do not"),
        DIVISOR,
        POST_BN,
    ),
    checks=(lambda model, _: residual(model, "fedalign"),),
    taps={"fedalign": lambda model, _: [f"<layer{model.depth}", f"layer{model.depth}"]},
    task_terms=(alignment,),
    default_clip="fedalign.clip",
    refuses={"gradaug": "both run sub-networks under strengths tuned for one of them"},
    subnetworks=True,
    recalibration=recalibration,
)  # fmt: skip
