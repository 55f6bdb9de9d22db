"""The curvature that an adaptive server's steps feel: ``preconditioned`` of ``fedscope/hessian/1``."""

from fedscope.records.estimates import Eigenvalue
from fedscope.records.number_types import Count, Number
from fedscope.validation import Plain


class PreconditionedEntry(Plain):
    """λ_max of P⁻¹H with P = diag(√s + ε) of the server, and how large it may be."""

    optimizer: str  # of the server: ``adagrad``, ``adam`` or ``yogi``
    lambda_max: Eigenvalue  # of P^(-1/2) H P^(-1/2)
    converged: bool  # whether it reached ``--tol``
    smallest: Number  # of the diagonal of P [w]
    largest: Number  # of the diagonal of P [w]
    beta1: Number  # of the server's average of displacements
    gamma: Number  # the server's learning rate
    steps: Count  # local steps of a mean client [steps]
    # γηa: how far the server moves, times P, under a unit gradient; a: what the local steps at unit rate move
    rate: Number
    stable: Number  # the largest stable λ of P⁻¹H, 2(1 + β₁)/((1 − β₁)·rate)
    state_sha256: str  # hash of the server's vectors
    matvecs: Count = 0  # Hessian–vector products [products]

    def nonlinearity(self, lambda_max: float) -> float:
        """Return ηa·λ_max of the Hessian itself: far below 1 the clients' displacement is −ηa∇F."""
        return lambda_max * self.rate / self.gamma if self.gamma else 0.0

    @property
    def ratio(self) -> float:
        """λ_max in units of the largest stable one."""
        return self.lambda_max.value / self.stable
