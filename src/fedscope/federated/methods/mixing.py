"""Mixup: the loss of convex combinations of two samples.

Per mini-batch one β ~ Beta(γ, γ) and one permutation π: x̃_i = β x_i + (1 − β) x_π(i), loss
β ℓ(f(x̃), y) + (1 − β) ℓ(f(x̃), y_π): the cross-entropy with the mixed target. After augmentation and
normalisation. Stateless; γ = 0 mixes nothing.
"""

import numpy as np
import torch
from torch import Tensor, nn

from fedscope.federated.record.method import Method
from fedscope.federated.record.options import Option, Values
from fedscope.federated.record.views import Batch, Draws


def draw(generator: torch.Generator, options: Values, images: Tensor, _: nn.Module) -> tuple[float, Tensor]:
    """Return β and the permutation (B,)."""
    gamma = float(options["mixup.gamma"])
    seed = torch.randint(2**63 - 1, (), generator=generator)  # PyTorch draws no Beta from a generator
    beta = float(np.random.default_rng(int(seed)).beta(gamma, gamma)) if gamma else 1.0
    return beta, torch.randperm(len(images), generator=generator).to(images.device)


def mix(batch: Batch, drawn: Draws, _: Values) -> Batch:
    """Return the mixed batch."""
    beta, order = drawn["mixup"]
    images = beta * batch.images + (1 - beta) * batch.images[order]
    return Batch(images, batch.labels, batch.labels[order], beta)


MIXUP = Method(
    name="mixup",
    objective="β ℓ(f(x̃), y) + (1 − β) ℓ(f(x̃), y_π), x̃ = β x + (1 − β) x_π",
    source="Zhang et al. 2018 (ICLR), section 2; in FL: Mendieta et al. 2022",
    place="in the mini-batch, after augmentation and normalisation",
    options=(Option("mixup.gamma", 0.1, "β ~ Beta(γ, γ) (Mendieta et al. 2022: 0.1)"),),
    draws={"mixup": draw},
    batch_transform=mix,
)
