"""How far the clients' updates part: norms, drift, diversity and cosines, from uploads that come in stacks.

Δ_k = w_k − θ_t over the shared trainable parameters, in float64. All but the cosines are running sums. These
need every update at once: as long as they are few and fit 256 MiB in float32 the updates are held, else the
cosines are not recorded. Stacks are added in one order, so the numbers do not depend on the workers.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from fedscope.checkpoints.file.diagnostics import Updates
from fedscope.federated.server.run_files import finite
from fedscope.federated.server.weighted_scatter import WeightedScatter, pieces

HELD = 256 << 20  # bytes of updates that are held for the cosines
MOST_HELD = 128  # clients: the cosines cost K²P operations


class ClientUpdates:
    """Accumulates the updates of one round; ``weights`` are the p_k of ``clients``.

    ``start`` (P,) is what they start from, ``shared`` (P,) says which parameters count, None: all, and
    ``statistics`` are the places of BatchNorm's running statistics among the P+Q numbers of a model.
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
        self._shared, self._size, self._statistics = shared, len(start), statistics
        self.start = self._parameters(start.cpu()[None])[0].clone()
        count, size = len(clients), len(self.start)
        self._squares = torch.zeros(count, dtype=torch.float64)
        self._equal = len(set(weights)) == 1  # then the sum of the updates is K times their mean
        self._updates = WeightedScatter(self.start, summed=not self._equal)
        self._batchnorm = WeightedScatter(self.start.new_zeros(len(statistics)))
        few = count <= MOST_HELD and 4 * count * size <= HELD
        self._held = self.start.new_empty(count, size) if few else None

    def add(self, clients: Sequence[int], values: Tensor) -> None:
        """Add the models (k, P+Q) of ``clients``."""
        rows = torch.tensor([self._row[client] for client in clients])
        parameters, weights = self._parameters(values), self._weights[rows]
        self._squares[rows] = self._updates.add(parameters, weights)
        if self._held is not None:
            self._held[rows] = parameters - self.start
        if len(self._statistics):
            self._batchnorm.add(values[:, self._statistics], weights)

    def record(self) -> Updates:
        """Return what is recorded once all updates are added."""
        squares, mean, statistics = self._squares, self._updates.mean, self._batchnorm
        size = float(mean @ mean)
        total = float(self._updates.total @ self._updates.total)
        found: dict[str, object] = {
            "norms": short(squares.sqrt()),
            "mean_norm": finite(math.sqrt(size)),
            "drift": finite(self._updates.scatter),
            "diversity": finite(float(squares.sum() / (len(squares) ** 2 * size if self._equal else total))),
        }
        if self._held is not None:
            pairs, to_mean = cosines(self._held, mean)
            if len(pairs):
                found["pairs"] = _spread(pairs)
            found["to_mean"] = _spread(to_mean)
        if len(statistics.mean):
            found["batchnorm"] = finite(float(statistics.scatter / (statistics.mean @ statistics.mean)))
        return Updates.read(found)

    def _parameters(self, values: Tensor) -> Tensor:
        parameters = values[:, : self._size]
        return parameters if self._shared is None else parameters[:, self._shared]


def cosines(vectors: Tensor, mean: Tensor) -> tuple[Tensor, Tensor]:
    """Return the cosines between every two of ``vectors`` (K, P), and of each to ``mean`` (P,), float64."""
    count = len(vectors)
    gram, dots = torch.zeros(count, count, dtype=torch.float64), torch.zeros(count, dtype=torch.float64)
    for part, of_mean in pieces(vectors, mean):
        wide = part.double()
        gram += wide @ wide.T
        dots += wide @ of_mean
    norms = gram.diagonal().sqrt()
    first, second = torch.triu_indices(count, count, 1)
    return gram[first, second] / (norms[first] * norms[second]), dots / (norms * mean.norm())


def short(values: Tensor) -> list[float | None]:
    """Return numbers of clients as they are recorded, to 8 digits; null where not finite."""
    return [finite(float(f"{value:.8g}")) for value in values.tolist()]


def _spread(cosines: Tensor) -> dict[str, float | None]:
    parts = {"mean": cosines.mean(), "least": cosines.min(), "most": cosines.max()}
    return {name: finite(float(value)) for name, value in parts.items()}
