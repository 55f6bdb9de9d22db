"""Inner products of vectors and their weighted scatter about the mean, in one pass and without cancellation.

Σ p_k‖x_k − x̄‖² as Σ p_k‖x_k‖² − ‖x̄‖² loses all digits where the vectors are close to each other: where it
would lose more than four, the scatter is summed about the mean instead. Blocks of vectors are merged:
scatters add up, and two means that differ by d add W₁W₂/(W₁ + W₂)·‖d‖² (Chan, Golub, LeVeque 1979). Vectors
are taken in pieces that stay in the processor's cache, on one thread: threads would wait for each other.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from fedscope.process import one_thread

PIECE = 1 << 18  # numbers that are taken to float64 at once
CANCELS = 1e-4  # share of the squares below which their difference is not taken


class WeightedScatter:
    """Accumulates vectors less ``origin`` (size,) in float64, block by block, in the order of the calls.

    ``whole``: all vectors come in one block, so that no sums need to be kept between blocks.
    """

    def __init__(self, origin: Tensor, *, whole: bool = False):
        self.origin = origin
        self.scatter = 0.0  # Σ p_k‖x_k − x̄‖²
        self._weight = 0.0
        self._sums = None if whole else torch.zeros(2, len(origin), dtype=torch.float64)  # x̄ and Σ x_k
        self._lengths = 0.0, 0.0  # ‖x̄‖² and ‖Σ x_k‖² of one block

    @one_thread()
    def add(self, block: Sequence[Tensor], weights: Tensor) -> Tensor:
        """Add the rows of the ``block``'s tensors (·, size), K in all, with positive float64 weights (K,).

        Returns the Gram matrix (K, K) of the vectors less the origin.
        """
        new, total = float(weights.sum()), self._weight + float(weights.sum())
        combine = torch.stack([weights / new, torch.ones_like(weights)])
        gram = torch.zeros(len(weights), len(weights), dtype=torch.float64)
        for piece, rows in _taken(block, self.origin, len(weights)):
            found = rows @ rows.T
            gram += found
            self.scatter += new * _scatter(rows, combine[0], found)
            if self._sums is not None:
                mean, sum_ = self._sums[:, piece]
                apart, sum_of_block = combine @ rows
                apart -= mean
                self.scatter += self._weight * new / total * float(apart @ apart)
                mean.add_(apart, alpha=new / total)
                sum_ += sum_of_block
        of_mean, of_sum = (float(row @ gram @ row) for row in combine)
        self._weight, self._lengths = total, (max(0.0, of_mean), max(0.0, of_sum))
        return gram

    def squared_lengths(self) -> tuple[float, float]:
        """Return ‖x̄‖² of the weighted mean and ‖Σ x_k‖² of the unweighted sum."""
        if self._sums is None:
            return self._lengths
        mean, sum_ = (float(sums @ sums) for sums in self._sums)
        return mean, sum_


def pieces(size: int, rows: int) -> Iterator[slice]:
    width = max(1, PIECE // rows)
    for start in range(0, size, width):
        yield slice(start, min(start + width, size))


def _taken(block: Sequence[Tensor], origin: Tensor, count: int) -> Iterator[tuple[slice, Tensor]]:
    space: Tensor | None = None
    for piece in pieces(len(origin), count):
        start = origin[piece].double()
        if space is None:
            space = start.new_empty(count, len(start))
        rows = space[:, : len(start)]
        torch.cat([vectors[:, piece] for vectors in block], out=rows)
        rows -= start
        yield piece, rows


def _scatter(rows: Tensor, shares: Tensor, gram: Tensor) -> float:
    """Return Σ share‖x − x̄‖² of the vectors of a piece, whose Gram matrix is given."""
    squares = float(shares @ gram.diagonal())
    scatter = squares - float(shares @ gram @ shares)
    if scatter > CANCELS * squares:
        return scatter
    return float(shares @ (rows - shares @ rows).square_().sum(1))
