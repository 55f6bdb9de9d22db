"""Stochastic depth: which residual branches a mini-batch goes through (Huang et al. 2016).

Of blocks b = 1…L the last is kept with probability ρ, the others with p_b that falls linearly from 1. The
paper's schedule starts at p_0 = 1, the input (Eq. 4); FedAlign's published code starts at p_1 = 1.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Literal

from torch import nn

from fedscope.errors import UserError
from fedscope.models.resnet import ResNet, blocks

Schedule = Literal["code", "paper"]


def keep_probabilities(count: int, last: float, schedule: Schedule = "code") -> list[float]:
    """Return p_b of ``count`` = L blocks, the last of them ρ = ``last``.

    ``paper``: p_b = 1 − (b/L)(1−ρ). ``code``: p_b = 1 − ((b−1)/(L−1))(1−ρ); a single block has ρ in both.
    """
    if not 0 < last <= 1:
        raise UserError(f"the keep probability of the last block lies in (0, 1], {last} does not")
    start = 1 if schedule == "code" and count > 1 else 0  # the block, or the input, that is always kept
    shares = [(block - start) / (count - start) for block in range(1, count + 1)]
    return [(1 - share) + share * last for share in shares]  # exactly 1 and ρ at the ends


def set_depth(model: nn.Module, last: float, schedule: Schedule = "code") -> None:
    if not isinstance(model, ResNet):
        raise UserError(
            f"stochastic depth drops residual branches, and {type(model).__name__} has none; "
            "choose a residual network, such as resnet_digits or resnet56_bottleneck"
        )
    found = blocks(model)
    for block, keep in zip(found, keep_probabilities(len(found), last, schedule), strict=True):
        block.keep = keep


@contextmanager
def gated(model: nn.Module, gates: Sequence[bool]) -> Iterator[None]:
    """Evaluate only the branches whose gate is True, one gate per block; afterwards all of them again."""
    found = blocks(model)
    if len(found) != len(gates):
        raise ValueError(f"{len(gates)} gates for {len(found)} blocks")
    try:
        for block, gate in zip(found, gates, strict=True):
            block.gate = gate
        yield
    finally:
        for block in found:
            block.gate = True
