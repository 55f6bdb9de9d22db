"""How likely a Lanczos process from a random vector has passed over an eigenvalue beyond those it found.

The spectral measure of the start z, Σ_i ⟨z, u_i⟩² δ(λ_i) with the eigenvectors u_i, has the moments that m
steps measured. No measure with these moments has more mass at or beyond x, outside the Ritz values, than the
Christoffel function (Chebyshev, Markov, Stieltjes; Golub and Meurant 2010, chapter 2)

    ρ_m(x) = 1 / Σ_{j<m} p_j(x)²,

p_j the orthonormal polynomials of the recurrence (α, β). So an eigenvector u with an eigenvalue beyond x has
⟨z, u⟩² ≤ ρ_m(x). For z of random direction in n dimensions this happens with a probability of at most

    P(⟨z, u⟩² ≤ ρ) ≤ √(2nρ/π).

That bound falls geometrically with every step (a priori: Kuczyński and Woźniakowski 1992). It holds for one
eigenvalue that is fixed before z is drawn, however small the gap; of copies of one eigenvalue z sees one.
"""

import math
from collections.abc import Sequence

MOST = 1e-3  # the probability that is accepted
_ENOUGH = 1e200


def unseen(
    alphas: Sequence[float],
    betas: Sequence[float],
    at: float,
    n: int,
    *,
    eps: float,
    random_part: float = 1.0,
) -> float:
    """Return a bound on the probability that an eigenvalue at or beyond ``at`` has not been seen.

    Args:
        alphas: m diagonal entries of T.
        betas: the β after each step; 0 where the Krylov space was exhausted.
        at: x, outside the eigenvalues of T; nothing lies beyond ±∞.
        eps: twice the rounding of z; see :func:`least`.
        random_part: norm of the random part of a start that is not random as a whole.
    """
    if math.isinf(at):
        return 0.0
    found = math.sqrt(2 * n * _christoffel(alphas, betas, at) / math.pi)
    return min(1.0, max(found, least(n, eps)) / random_part)


def least(n: int, eps: float) -> float:
    """Return the least probability that can be told: that of a part of z which its rounding may have lost.

    Rounding to nearest moves z by at most half an ``eps`` of its norm, in float32 by 0.43 of that where it is
    measured: ``MOST`` at 2.2·10⁹ coordinates, 6.4e-4 at 10⁹. No step lowers it.
    """
    return math.sqrt(2 * n / math.pi) * eps / 2


def _christoffel(alphas: Sequence[float], betas: Sequence[float], at: float) -> float:
    before, now, total, coupled = 0.0, 1.0, 1.0, 0.0
    for j, (alpha, beta) in enumerate(zip(alphas, betas, strict=False), 1):
        if beta == 0:  # the measure has no other atoms than the Ritz values so far
            return 0.0
        if j == len(alphas) or total > _ENOUGH:
            break
        before, now, coupled = now, ((at - alpha) * now - coupled * before) / beta, beta
        total += now**2
    return 1 / total
