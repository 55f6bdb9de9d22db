"""The clients of a checkpoint compared, in the paper's reading or in that of its published code.

Where the two disagree each point is an option of its own; the reading sets what was left open:

    reading          paper                                  code
    weights          each client's                          each client's, of its last participation
    data             its own training rows                  the run's training data, resampled
    pairs            distinct                               all, each client with itself included
    diagonal         parameters (and tensors)               tensors
    probes           until the intervals are narrow         until the running mean moves little
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar, get_args

import torch
from torch import Tensor, nn

from fedscope.choices import Reading
from fedscope.landscape.heterogeneity.client_diagonals import MEMORY
from fedscope.landscape.heterogeneity.cross_client import CrossClient, cross_client
from fedscope.landscape.heterogeneity.populations import PROBES
from fedscope.landscape.loss.batches import Batches
from fedscope.landscape.operators.base import Operator
from fedscope.landscape.operators.basis.krylov_basis import Subspace
from fedscope.landscape.operators.progress_callback import Progress, continued
from fedscope.landscape.spectral.data_error import told_by_sample
from fedscope.landscape.spectral.eigenpairs import top_eigenpairs
from fedscope.landscape.spectral.spectral_results import Estimate
from fedscope.landscape.spectral.subspace_overlap import subspace_overlap
from fedscope.records.entries import Record, eigenvalues, estimate_entry
from fedscope.streams import key, torch_stream
from fedscope.workflows.requests import CrossClientRequest
from fedscope.workflows.sources.run_clients import Participants

GROUPS = 16
Kind = TypeVar("Kind")


@dataclass(frozen=True)
class ClientComparison:
    """The comparison, and what it was of."""

    result: CrossClient
    options: CrossClientRequest  # settled
    rounds: Mapping[int, int | None]  # client → the round that its weights are of
    overlap: tuple[float, ...] = ()  # of each client, where asked for
    largest: tuple[Record, ...] = ()  # the entry of each client's λ_max, where the overlap was asked for
    overlap_converged: bool = True  # whether all clients' eigenpairs were found to the tolerance
    matvecs: int = 0  # products, those for the overlap included

    def record(self) -> Record:
        """Return the ``cross_client`` entry of schema ``fedscope/hessian/1``; null what a reading has not."""
        cross, options = self.result, self.options
        staged = cross.converged is not None  # else by the published scripts, each client to its own end
        return {
            "clients": cross.clients,
            "pairs": cross.pairs,
            "weights": options.weights,
            "data": options.data,
            "aim": options.aim if staged else None,
            "probes": max(cross.probes) if staged else cross.probes,
            "deflated": cross.deflated,
            "converged": cross.converged,
            "numbers": list(self.rounds),
            "rounds": list(self.rounds.values()),  # that each client's weights are of
            "H_N": _entries(cross.H_N),
            "H_N_scale_free": _entries(cross.H_N_scale_free),
            "H_D": _entries(cross.H_D),
            "matrices": {"H_N": _readings(cross.H_N_matrix), "H_D": _readings(cross.H_D_matrix)},
            "matrices_resolved": {"H_N": _readings(cross.H_N_resolved), "H_D": _readings(cross.H_D_resolved)},
            "populations": {
                "H_N": _entries(cross.H_N_population),
                "H_N_scale_free": _entries(cross.H_N_scale_free_population),
                "H_D": _entries(cross.H_D_population),
            }
            if cross.H_N_population
            else None,
            "squared_norms": {
                name: norms and [estimate_entry(norm) for norm in norms]
                for name, norms in _readings(cross.squared_norms).items()
            },
            "traces": [estimate_entry(found) for found in cross.traces],
            "lambda_max": self.largest or None,
            "overlap_k": options.overlap,
            "overlap": self.overlap or None,
            "overlap_converged": self.overlap_converged if self.overlap else None,
        }


def _entries(found: Mapping[Reading, Estimate]) -> dict[str, Record | None]:
    return {name: estimate_entry(found.get(name)) for name in get_args(Reading)}


def _readings(found: Mapping[Reading, Kind]) -> dict[str, Kind | None]:
    return {name: found.get(name) for name in get_args(Reading)}


def compare_clients(
    participants: Participants,
    options: CrossClientRequest,
    curvature: Callable[[nn.Module, Batches], Operator],
    *,
    seed: int,
    leading: Tensor | None = None,
    tol: float = 1e-3,
    progress: Progress | None = None,
) -> ClientComparison:
    """Compare clients in the paper's reading.

    ``leading`` (n, k) are eigenvectors of the global model, at least as many as the overlap is of, and
    ``tol`` is the residual that the eigenvectors of each client reach.
    """
    rounds: dict[int, int | None] = {}
    overlaps, largest, bases, converged, spent = [], list[Record](), list[Subspace | None](), True, 0
    if options.overlap and leading is not None:
        for client in participants:
            operator, draws = curvature(client.model, client.batches), torch_stream(seed, "lanczos")
            found = top_eigenpairs(
                operator,
                k=options.overlap,
                tol=tol,
                generator=draws,
                by_sample=False,
                progress=continued(progress, spent),
            )
            spent += found.matvecs
            converged = converged and found.converged
            overlaps.append(subspace_overlap(found.vectors, leading[:, : options.overlap]))
            (top,) = eigenvalues(told_by_sample(operator, found.some(torch.tensor([0]))))
            largest.append(top | {"by_sample": None})  # nothing pairs with them
            bases.append(_kept(found.subspace, bases))
    result = cross_client(
        _Operators(participants, curvature, rounds),
        rtol=None if options.probes else options.rtol,
        probes=options.probes,
        max_probes=options.max_probes,
        aim=options.aim,
        seed=key(seed, "cross-client"),
        pairs=options.pairs or "distinct",
        groups=min(GROUPS, options.probes or GROUPS),
        known=bases,
        sample_probes=0 if options.data == "global" else PROBES,
        progress=continued(progress, spent),
    )
    spent += result.matvecs
    return ClientComparison(result, options, rounds, tuple(overlaps), tuple(largest), converged, spent)


def _kept(basis: Subspace | None, others: Sequence[Subspace | None]) -> Subspace | None:
    """Return a basis for the client's diagonal, if it fits beside those of the others."""
    taken = sum(one.rows.nbytes for one in (basis, *others) if one)
    return basis.kept("cpu") if basis and taken <= MEMORY else None


@dataclass(frozen=True)
class _Operators:
    """The clients' operators, built again at each iteration so that one model is in memory at a time."""

    participants: Participants
    curvature: Callable[[nn.Module, Batches], Operator]
    rounds: dict[int, int | None]  # filled on the way

    def __iter__(self) -> Iterator[Operator]:
        for client in self.participants:
            self.rounds[client.number] = client.info.round if client.info else None
            yield self.curvature(client.model, client.batches)
