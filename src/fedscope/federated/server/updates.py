"""How far the clients' updates part: norms, drift, diversity and cosines, from uploads that come in stacks.

Δ_k = w_k − θ_t over the shared trainable parameters, in float64. All numbers follow from one Gram matrix of
the updates, their mean and their sum, which needs every upload at once: as long as they are few and fit
512 MiB they are held, without a copy. Else they are taken in blocks, and the cosines are not recorded. Stacks
are added in one order, so the numbers do not depend on the workers.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from fedscope.checkpoints.file.round_diagnostics import Updates
from fedscope.federated.server.run_files import finite
from fedscope.federated.server.weighted_scatter import WeightedScatter

HELD = 512 << 20  # bytes of uploads that are held
MOST_HELD = 128  # clients: the cosines cost K²P operations
BLOCK = 8  # clients of a block, where not all are held


class ClientUpdates:
    """Accumulates the updates of one round; ``weights`` are the p_k of ``clients``.

    ``shared`` (P,) says which parameters count, None: all; ``start`` has these of the model that clients
    start from, and must stay as it is. ``statistics`` are the places of BatchNorm's running statistics.
    """

    def __init__(
        self,
        clients: Sequence[int],
        weights: Sequence[float],
        start: Tensor,
        shared: Tensor | None,
        statistics: Tensor,
    ):
        self._row = {client: row for row, client in enumerate(clients)}
        self._weights = torch.tensor(weights, dtype=torch.float64)
        self.start, self._shared, self._statistics = start, shared, statistics
        count, size = len(clients), 4 * len(start)
        self._squares = torch.zeros(count, dtype=torch.float64)
        self._whole = count <= MOST_HELD and count * size <= HELD
        self._most = count if self._whole else max(1, min(BLOCK, HELD // size))
        self._updates = WeightedScatter(start, whole=self._whole)
        self._batchnorm = WeightedScatter(start.new_zeros(len(statistics)), whole=self._whole)
        self._waiting: list[tuple[Tensor, Tensor, Tensor]] = []  # rows, parameters, running statistics

    def add(self, clients: Sequence[int], values: Tensor) -> None:
        """Add the models (k, P+Q) of ``clients``, which must stay as they are."""
        rows = torch.tensor([self._row[client] for client in clients])
        mask = self._shared
        parameters = values[:, : len(self.start)] if mask is None else values[:, : len(mask)][:, mask]
        self._waiting.append((rows, parameters, values[:, self._statistics]))
        if sum(len(rows) for rows, _, _ in self._waiting) >= self._most:
            self._take()

    def record(self) -> Updates:
        if self._waiting:
            self._take()
        size, total = self._updates.squared_lengths()
        statistics = self._batchnorm.squared_lengths()[0]
        found: dict[str, object] = {
            "norms": short(self._squares.sqrt()),
            "mean_norm": finite(math.sqrt(size)),
            "drift": finite(self._updates.scatter),
            "diversity": finite(float(self._squares.sum()) / total if total else math.nan),
        }
        if self._whole:
            pairs, to_mean = cosines(self._gram, self._shares)
            if len(pairs):
                found["pairs"] = _spread(pairs)
            found["to_mean"] = _spread(to_mean)
        if len(self._statistics):
            found["batchnorm"] = finite(self._batchnorm.scatter / statistics if statistics else math.nan)
        return Updates.read(found)

    def _take(self) -> None:
        stacks, parameters, statistics = zip(*self._waiting, strict=True)
        self._waiting = []
        rows = torch.cat(stacks)
        weights = self._weights[rows]
        self._gram, self._shares = self._updates.add(parameters, weights), weights / weights.sum()
        self._squares[rows] = self._gram.diagonal()
        self._batchnorm.add(statistics, weights)


def cosines(gram: Tensor, shares: Tensor) -> tuple[Tensor, Tensor]:
    """Return the cosines between every two of K vectors, and of each to their mean.

    ``gram`` (K, K) is the Gram matrix of the vectors, ``shares`` (K,) those of the vectors in the mean.
    """
    norms, onto_mean = gram.diagonal().sqrt(), gram @ shares
    first, second = torch.triu_indices(len(gram), len(gram), 1)
    pairs = gram[first, second] / (norms[first] * norms[second])
    return pairs, onto_mean / (norms * (shares @ onto_mean).clamp(min=0).sqrt())


def short(values: Tensor) -> list[float | None]:
    return [finite(float(f"{value:.8g}")) for value in values.tolist()]


def _spread(cosines: Tensor) -> dict[str, float | None]:
    parts = {"mean": cosines.mean(), "least": cosines.min(), "most": cosines.max()}
    return {name: finite(float(value)) for name, value in parts.items()}
