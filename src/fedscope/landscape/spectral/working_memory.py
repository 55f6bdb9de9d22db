"""Bytes that the estimators take beside the graphs: vectors of n numbers, and the rows of a Krylov basis.

Symbols: n coordinates, d bytes of a number, B batches, m rows.
"""

from dataclasses import dataclass

from fedscope.choices import MIN_PROBES
from fedscope.landscape.operators.basis.kept import WHOLE
from fedscope.landscape.operators.basis.storage import HELD, BasisStorage
from fedscope.landscape.operators.by_batch.batch_mean import IMAGES
from fedscope.landscape.spectral.data_error import SKETCH

_WIDE = 8  # bytes of a float64


@dataclass(frozen=True)
class Vectors:
    """Vectors of an operator."""

    n: int
    itemsize: int  # d
    batches: int  # B; 0 without

    def step(self) -> int:
        """Return the bytes of a Lanczos step: the sum, a batch's product, and those that wait together."""
        d = self.itemsize
        waiting = min(self.batches * d, max(IMAGES // self.n, d))
        product = 2 * _WIDE + 2 * d + waiting * (1 if waiting == d else 2)
        orthogonalised = d + 3 * _WIDE
        return self.n * max(product, orthogonalised)

    def probes(self, block: int) -> int:
        """Return the bytes of a block of probes: sums, a batch's products, the projections, the products."""
        each = 2 * _WIDE + 5 * self.itemsize
        return self.n * (block * each + _WIDE) + _WIDE * min(self.n, WHOLE)

    def kept(self, probes: int = MIN_PROBES) -> int:
        """Return the bytes of probes that are kept with their products: a first stage's, or a density's."""
        return self.n * 2 * self.itemsize * probes

    def basis(self, rows: int, storage: BasisStorage) -> int:
        """Return the bytes in memory of so many rows while they are made, the sketch's signs included.

        Where there is no room for one more, room for twice as many is made and filled, unless the storage
        has a capacity.
        """
        if storage.place == "file":
            return min(HELD, self.n * self.itemsize * (rows + SKETCH))
        full = 1 << (max(1, rows) - 1).bit_length() >> 1  # rows when room was made last
        held = rows + 1 + SKETCH
        most = held if storage.capacity else max(held, 2 * (full + SKETCH))
        return self.n * self.itemsize * most
