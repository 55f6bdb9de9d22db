"""The result of comparing clients: a frozen record. Symbols: K clients."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor

from fedscope.choices import Pairs, Reading
from fedscope.landscape.printing import Printed
from fedscope.landscape.spectral.spectral_results import Estimate


@dataclass(frozen=True, repr=False)
class CrossClient(Printed):
    """How much the curvature of the clients' models differs (Mendieta et al. 2022, section 3.2).

    For clients k and j with diagonals D: H_N = (‖D_k‖ − ‖D_j‖)², scale-free H_N that over ‖D_k‖·‖D_j‖,
    H_D = ⟨D_k, D_j⟩ / (‖D_k‖·‖D_j‖), averaged over pairs. These are of the clients' samples as they are, and
    their errors are the probes'. Those of the distributions, or finite populations, that each client's
    samples were drawn from have both errors; they are missing where the samples' parts are not known, or not
    independent from client to client.

    The published scripts have the ``tensor`` reading only, and no error bars.
    """

    clients: int
    pairs: Pairs
    H_N: Mapping[Reading, Estimate]
    H_D: Mapping[Reading, Estimate]
    H_N_matrix: Mapping[Reading, Tensor]  # (K, K) float64
    H_D_matrix: Mapping[Reading, Tensor]  # (K, K) float64
    H_N_resolved: Mapping[Reading, Tensor]  # (K, K) bool: of each pair
    H_D_resolved: Mapping[Reading, Tensor]  # (K, K) bool
    squared_norms: Mapping[Reading, tuple[Estimate, ...]]  # K: ‖D_k‖²
    probes: tuple[int, ...]  # of each client
    converged: bool | None  # whether the intervals are as narrow as was asked for; None: there are none
    matvecs: int
    traces: tuple[Estimate, ...]  # of each client, from the same products
    H_N_population: Mapping[Reading, Estimate] = field(default_factory=dict)
    H_D_population: Mapping[Reading, Estimate] = field(default_factory=dict)
    H_N_scale_free: Mapping[Reading, Estimate] = field(default_factory=dict)
    H_N_scale_free_population: Mapping[Reading, Estimate] = field(default_factory=dict)
    deflated: int = 0  # rows of each client's basis, whose part of the diagonal is exact, at its last probes
