"""Operators that are means over batches: a subclass says what a batch's product is, and gets error bars.

The processes of a ``torch.distributed`` group share the batches, each with every size-th one.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import ProcessGroup

from fedscope.errors import UserError
from fedscope.landscape.operators.algebra.exports import Blocks
from fedscope.landscape.operators.base import Operator, Product, runs
from fedscope.landscape.operators.basis.projections import Onto
from fedscope.landscape.operators.basis.row_space import PIECE, WHOLE

IMAGES = 256 << 20  # bytes of the batches' products that wait to be projected together


class BatchMean(Operator):
    """A = Σ_b (n_b/N)·A_b for symmetric (n, n) matrices A_b of B batches with n_b samples, N in all.

    Sums over batches are in float64. For error bars over the samples the batches must be independent draws:
    samples stored by class, say, are to be dealt to batches at random (``Batches.dealt``).

    Args:
        n: rows and columns.
        weights: the n_b, at least one batch.
        dtype: of the vectors it takes and returns.
        device: where they live.
        blocks: named stretches of coordinates; one block if not given.
        shapes: of the tensors that the blocks are; flat if not given.
        population: how many samples the N were drawn from, see ``Batches``; ``None``: infinitely many.
        group: processes that share the batches, see :class:`LossOperator`.

    Raises:
        UserError: no batch, or one without samples.
    """

    def __init__(
        self,
        n: int,
        *,
        weights: Sequence[int],
        dtype: torch.dtype = torch.float64,
        device: torch.device | str = "cpu",
        blocks: Blocks | None = None,
        shapes: Sequence[torch.Size] | None = None,
        population: int | None = None,
        group: ProcessGroup | None = None,
    ) -> None:
        if not weights or min(weights) < 1:
            raise UserError(f"the batches have {tuple(weights)} samples; give one batch or more, none empty")
        super().__init__(
            n, dtype=dtype, device=device, blocks=blocks, shapes=shapes, weights=tuple(weights),
            population=population,
        )  # fmt: skip
        self._counts = tuple(weights)
        self._group = group

    @abstractmethod
    def batch_products(self, b: int, rows: Tensor) -> Tensor:
        """Return A_b v for the m rows of an (m, n) matrix: (m, n), float64 where sums are to be exact.

        Args:
            b: the batch, from 0.
            rows: in the operator's dtype, on its device; not to be written to.
        """

    def _apply(self, rows: Tensor, onto: Tensor | None) -> list[Product]:
        return self._mean(rows, onto)

    def _mean(self, rows: Tensor, onto: Tensor | None) -> list[Product]:
        totals, forms, projections = self._sums(self.batch_products, rows, onto)
        return [
            Product(total.to(self.dtype), forms[i], None if projections is None else projections[i])
            for i, total in enumerate(totals)
        ]

    def _sums(
        self, products_of: Callable[[int, Tensor], Tensor], rows: Tensor, onto: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return Σ_b (n_b/N)·x_b (m, n) of x_b = ``products_of(b, rows)``, all vᵀx_b, and all onto·x_b."""
        if self._group is not None:
            return self._shared_sums(products_of, rows, onto, self._group)
        count = len(self._counts)
        totals = torch.zeros_like(rows, dtype=torch.float64)
        forms = totals.new_zeros(len(rows), count)
        projections = None if onto is None else totals.new_zeros(len(rows), count, len(onto))
        waiting = onto.waiting(count * len(rows)) if isinstance(onto, Onto) else None
        some_at_a_time = count if waiting else max(1, IMAGES // (rows.numel() * rows.itemsize))
        for first in range(0, count, some_at_a_time):
            together, images = range(first, min(first + some_at_a_time, count)), []
            for b in together:
                products = self._shaped(b, products_of(b, rows), rows)
                forms[:, b] = _added(totals, rows, products, self._counts[b] / sum(self._counts))
                if waiting:
                    for i, product in enumerate(products):
                        waiting.write(b * len(rows) + i, product)
                elif onto is not None:
                    images.append(products.to(self.dtype))
                del products
            if onto is not None and projections is not None:
                if waiting and isinstance(onto, Onto):
                    inner = onto.seen(waiting).T
                else:
                    inner = (onto @ (torch.cat(images) if len(images) > 1 else images[0]).T).T.double()
                projections[:, list(together)] = inner.view(len(together), len(rows), -1).transpose(0, 1)
        return totals, forms, projections

    def _shared_sums(
        self,
        products_of: Callable[[int, Tensor], Tensor],
        rows: Tensor,
        onto: Tensor | None,
        group: ProcessGroup,
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return the same, made by all processes: a batch each in every turn.

        After a turn every process gets a stretch of the coordinates of all products and adds them in the
        order of the batches, so that the bits do not depend on how many processes there are.
        """
        count, ranks = len(self._counts), group.size()
        totals = exchanged(group, torch.zeros_like(rows, dtype=torch.float64))[0]
        forms = rows.new_zeros(len(rows), count, dtype=torch.float64)
        projections = None if onto is None else forms.new_zeros(len(rows), count, len(onto))
        for first in range(0, count, ranks):
            b, own = first + group.rank(), torch.zeros_like(rows, dtype=torch.float64)
            if b < count:
                forms[:, b] = _added(own, rows, self._shaped(b, products_of(b, rows), rows), 1.0)
                if onto is not None and projections is not None:
                    projections[:, b] = (onto @ own.to(self.dtype).T).T.double()
            for samples, products in zip(self._counts[first:], exchanged(group, own), strict=False):
                totals.add_(products, alpha=samples / sum(self._counts))
        add_up(group, forms, projections)
        return joined(group, totals, rows.shape[1]), forms, projections

    def _shaped(self, b: int, products: Tensor, rows: Tensor) -> Tensor:
        if products.shape != rows.shape:
            raise ValueError(
                f"the products of batch {b} have shape {tuple(products.shape)}; expected {tuple(rows.shape)}"
            )
        return products

    @torch.no_grad()
    def diagonal_parts(self, probes: Tensor, most: int) -> Tensor:
        """Return z ⊙ A_p z (m, P, n) of P ≤ ``most`` runs of batches, at m products."""
        probes, parts = probes.to(self.device, self.dtype), runs(len(self._counts), most)
        found = probes.new_zeros(len(probes), len(parts), probes.shape[1])
        own = share(len(self._counts), self._group)
        for p, run in enumerate(parts):
            samples = sum(self._counts[b] for b in run)
            for b in run:
                if b in own:
                    products = self._shaped(b, self.batch_products(b, probes), probes) * probes
                    found[:, p].add_(products, alpha=self._counts[b] / samples)
        add_up(self._group, found)
        return found


def _added(totals: Tensor, rows: Tensor, products: Tensor, share: float) -> Tensor:
    """Add a share of the products to the totals (m, n) and return rows·products (m,), all in float64."""
    inner = []
    pieces = (each.split(PIECE if rows.is_cpu else WHOLE, 1) for each in (totals, rows, products))
    for total, row, product in zip(*pieces, strict=True):
        wide = product.double()
        total.add_(wide, alpha=share)
        inner.append(torch.linalg.vecdot(row.double(), wide))
    return torch.stack(inner).sum(0)


def share(batches: int, group: dist.ProcessGroup | None) -> range:
    if group is None:
        return range(batches)
    return range(dist.get_rank(group), batches, dist.get_world_size(group))


def add_up(group: dist.ProcessGroup | None, *tensors: Tensor | None) -> None:
    """Replace the tensors by their sums over the group, the same bits in every process."""
    if group is not None:
        for tensor in tensors:
            if tensor is not None:
                dist.all_reduce(tensor, group=group)


def exchanged(group: dist.ProcessGroup, rows: Tensor) -> Tensor:
    """Return this process's stretch of the coordinates of every process's rows (m, n): (R, m, ⌈n/R⌉)."""
    ranks = group.size()
    padded = torch.nn.functional.pad(rows, (0, -rows.shape[1] % ranks))
    pieces = torch.stack(padded.chunk(ranks, dim=1))
    found = torch.empty_like(pieces)
    dist.all_to_all_single(found, pieces, group=group)
    return found


def joined(group: dist.ProcessGroup, stretch: Tensor, n: int) -> Tensor:
    """Return rows (m, n) of which every process gives its stretch of the coordinates."""
    found = [torch.empty_like(stretch) for _ in range(group.size())]
    dist.all_gather(found, stretch.contiguous(), group=group)
    return torch.cat(found, dim=1)[:, :n].contiguous()
