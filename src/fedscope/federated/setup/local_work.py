"""How much the clients of a round do: all the same, but for stragglers.

A straggler makes a number of epochs, or under ``local_steps`` of steps, drawn uniformly from
``straggler_min`` … E. With the share s and 1 … E this is the systems heterogeneity of Li et al. 2020 (MLSys,
FedProx), with s = 1 and 2 … 5 FedNova's random local epochs (Wang et al. 2020).
"""

import math

from fedscope.checkpoints.file.settings import Settings
from fedscope.streams import numpy_stream


def full_work(settings: Settings) -> int:
    return settings.local_steps or settings.epochs


def stragglers(settings: Settings, sampled: list[int], round: int) -> dict[int, int]:
    """Return the stragglers among the round's clients, with the epochs, or steps, of each.

    ⌊s·m⌋ of m clients, drawn without replacement; then the numbers, in the clients' order. Both depend on the
    seed, the round (from 1) and the clients alone.
    """
    count = math.floor(settings.stragglers * len(sampled) + 1e-9)  # 9 of 10 at 0.9, whatever it is in binary
    if not count:
        return {}
    generator = numpy_stream(settings.seed, "stragglers", round)
    chosen = sorted(generator.choice(sampled, count, replace=False).tolist())
    drawn = generator.integers(settings.straggler_min, full_work(settings), endpoint=True, size=count)
    return dict(zip(chosen, drawn.tolist(), strict=True))


def mean_work(settings: Settings) -> float:
    least, most = settings.straggler_min, full_work(settings)
    return (1 - settings.stragglers) * most + settings.stragglers * (least + most) / 2
