"""A curvature operator that draws its samples anew at every product, as the published FedAlign scripts do.

Their product runs over the first ten batches of a training loader that is started again each time, shuffled
and augmented, its last, smaller batch dropped. So it is not one matrix: two products see two Hessians, and
nothing that assumes otherwise (a residual, a standard error, a Krylov space) means anything here.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from fedscope.errors import UserError
from fedscope.landscape.loss.batches import Batches
from fedscope.landscape.operators.base import Operator, Product

Fetch = Callable[[Tensor, torch.Generator], Tensor]
"""(rows (B,), generator) ↦ the inputs of these samples, augmented by draws of the generator."""


class Loader:
    """A shuffled training loader; each call starts it anew and returns its first ``batches``, whole ones.

    The ``generator`` draws each call's order, then each batch's augmentation.
    """

    def __init__(
        self,
        fetch: Fetch,
        labels: Tensor,
        *,
        batch_size: int,
        batches: int | None,
        generator: torch.Generator,
    ) -> None:
        whole = len(labels) // batch_size
        if not whole:
            raise UserError(
                f"{len(labels)} samples are no whole batch of {batch_size}, and the published loader drops "
                "the rest; lower --batch-size"
            )
        self.batch_size = batch_size
        self.samples = len(labels)
        self.batches = whole if batches is None else min(batches, whole)
        self._fetch, self._labels, self._generator = fetch, labels, generator

    def __call__(self) -> Batches:
        order = torch.randperm(self.samples, generator=self._generator)
        rows = order[: self.batches * self.batch_size].split(self.batch_size)
        return Batches.from_iterable(
            (self._fetch(part, self._generator), self._labels[part]) for part in rows
        )


class Resampled(Operator):
    """The operator that ``over`` makes of batches, of other batches of the loader at every product."""

    def __init__(self, over: Callable[[Batches], Operator], loader: Loader) -> None:
        self._next: Operator | None = over(loader())  # of the first product
        super().__init__(
            self._next.shape[0], dtype=self._next.dtype, device=self._next.device, blocks=self._next.blocks
        )
        self._over, self._loader = over, loader

    def _apply(self, rows: Tensor, onto: Tensor | None) -> list[Product]:
        return [Product(self._drawn().matvec(v), None) for v in rows]

    def _drawn(self) -> Operator:
        drawn, self._next = self._next or self._over(self._loader()), None
        return drawn
