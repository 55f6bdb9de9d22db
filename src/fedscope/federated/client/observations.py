"""What the local steps of clients show besides their models: losses, clipped gradients, ascents, notes.

A row of float64 numbers per client, summed over the steps of a round. The tensor stays where it is, for
recorded steps, and nothing that is computed here is used in training.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.linalg import vector_norm

OWN = ("before", "first_epoch", "clipped", "rise", "cosine", "ascents", "passes")
"""Loss of the first mini-batch; mean loss of the first epoch; clipped steps; ℓ(w + e) − ℓ(w) and the
cosine of the two gradients, each summed over the steps that have both; the number of these steps; and that of
the forward passes of which the method notes something."""


class Observations:
    """The observations of up to ``stack`` clients; ``noted`` are a method's own, their labels by name."""

    def __init__(self, like: Tensor, stack: int, noted: Mapping[str, Sequence[str]]):
        self.noted = {name: tuple(labels) for name, labels in noted.items()}
        width = len(OWN) + sum(map(len, self.noted.values()))
        self.values = torch.zeros(stack, width, dtype=torch.float64, device=like.device)
        self._at = {name: place for place, name in enumerate(OWN)}

    def set(self, name: str, values: Tensor) -> None:
        self.values[: len(values), self._at[name]] = values.double()

    def clip(self, scale: Tensor) -> None:
        self.values[: len(scale), self._at["clipped"]] += scale[:, 0] < 1

    def ascend(self, losses: Sequence[Tensor], gradients: Sequence[Tensor]) -> None:
        """Add an ascent step: losses (K,) and gradients (K, P) at w and at w + e."""
        (before, after), (first, second) = losses, gradients
        lengths = [vector_norm(g, dim=1, dtype=torch.float64) for g in (first, second)]
        cosine = (first * second).sum(1, dtype=torch.float64) / (lengths[0] * lengths[1])
        rise, start = after.double() - before.double(), self._at["rise"]
        self.values[: len(rise), start : start + 3] += torch.stack([rise, cosine, torch.ones_like(rise)], 1)

    def note(self, notes: Tensor) -> None:
        if notes.shape[1]:
            self.values[: len(notes), self._at["passes"]] += 1
            self.values[: len(notes), len(OWN) :] += notes


def joined(noted: Mapping[str, Sequence[str]], notes: Mapping[str, Tensor], like: Tensor) -> Tensor:
    """Return the notes of a forward pass side by side, each (labels,); NaN for one that lacks some.

    A pass that leaves out layers notes fewer of them, which cannot be told apart.
    """
    whole = [
        notes[name] if len(notes[name]) == len(labels) else like.new_full((len(labels),), torch.nan)
        for name, labels in noted.items()
    ]
    return torch.cat(whole) if len(whole) > 1 else whole[0] if whole else like.new_zeros(0)
