"""The algebraically largest eigenvalues, by Lanczos, each certified by its true residual.

The Ritz estimate β_m|s_m| costs nothing and decides when to look; the certificate ‖Hv − λv‖ costs one
product per pair and decides when to stop. For a symmetric H an eigenvalue lies within the residual of λ
(Parlett 1998, theorem 4.5.1), so the residual is an error bound on the value.

Symbols: m steps taken, θ and s eigenvalues and eigenvectors of the tridiagonal T, β_j the coupling after
step j.
"""

import math

import torch
from torch import Tensor

from fedscope.errors import UserError
from fedscope.landscape.errorbars import data_stderr
from fedscope.landscape.lanczos import Lanczos
from fedscope.landscape.operators import Operator
from fedscope.landscape.probes import default_generator
from fedscope.landscape.progress import Progress
from fedscope.landscape.results import Eigenpairs


def top_eigenpairs(
    op: Operator,
    *,
    k: int = 1,
    tol: float = 1e-3,
    generator: torch.Generator | None = None,
    max_matvecs: int | None = None,
    progress: Progress | None = None,
) -> Eigenpairs:
    """Return the k algebraically largest eigenpairs of a symmetric operator.

    Stops when every residual ‖Hv − λv‖ is at most tol·|λ_max| (or ten roundings of the operator's dtype at
    the size of its largest Ritz value, where that is more), or when ``max_matvecs`` products are spent; then
    ``converged`` is False and the residuals say how far it came. After a non-finite product all is NaN.

    One starting vector sees each distinct eigenvalue once; the copies of a multiple eigenvalue are found
    when the Krylov space (nearly) breaks down, and that is awaited before k > 1 pairs are accepted, but an
    exactly multiple eigenvalue of an operator whose Krylov space does not break down may be listed once.

    Args:
        op: symmetric operator on n coordinates; n·(steps taken) numbers of its dtype are kept.
        k: pairs wanted, 1 ≤ k ≤ n.
        tol: residual relative to |λ_max|.
        generator: draws the Gaussian start; a fixed default if not given.
        max_matvecs: products allowed, at least 2k; by default 300 + 6k.
        progress: called after every product, with no known total.

    Raises:
        UserError: k outside 1…n, or ``max_matvecs`` below 2k.
    """
    n = op.shape[0]
    budget = 300 + 6 * k if max_matvecs is None else max_matvecs
    if not 1 <= k <= n:
        raise UserError(f"k = {k} eigenpairs were asked of an operator of size {n}; choose 1 to {n}")
    if budget < 2 * k:
        raise UserError(f"max_matvecs = {budget} is too small for k = {k}: at least {2 * k} are needed")
    generator = generator or default_generator()
    seed = generator.initial_seed()
    start = torch.randn(n, generator=generator, device=generator.device, dtype=torch.float64)
    krylov = Lanczos(op, start, generator=generator)
    spent, goal = 0, tol
    while True:
        krylov.step()
        spent += 1
        if progress:
            progress(spent, None)
        if not krylov.finite:
            return _undefined(op, k, spent, seed)
        last = krylov.steps == n or spent + k >= budget
        if krylov.steps < k or not (last or (_is_due(krylov.steps) and _settled(krylov, k, goal))):
            continue
        spent += k
        pairs = _certified(op, krylov, k, tol, spent, seed)
        if progress:
            progress(spent, None)
        if pairs.converged or krylov.steps == n or spent + 1 + k > budget:
            return pairs
        # The estimate was too kind (rounding); ask more of it before paying for another certificate.
        goal /= 10


def _is_due(steps: int) -> bool:
    # Diagonalising T after every step would cost more than the products once m reaches the hundreds.
    return steps % max(1, steps // 20) == 0


def _settled(krylov: Lanczos, k: int, goal: float) -> bool:
    """Say whether the k largest Ritz pairs look converged to ``goal``, relative to |θ_max|."""
    theta, s = torch.linalg.eigh(krylov.tridiagonal())
    tolerance = goal * abs(float(theta[-1])) + _rounding(krylov, theta)
    if bool((krylov.betas[-1] * s[-1, -k:].abs() > tolerance).any()):
        return False
    return k == 1 or _complement_is_lower(krylov, k, tolerance, _near_breakdown(krylov, theta))


def _near_breakdown(krylov: Lanczos, theta: Tensor) -> float:
    # Far below any tolerance: a random start in a large space has a small β₁ ≈ ‖H‖_F/√n, no breakdown.
    return 1000 * torch.finfo(krylov.basis.dtype).eps * float(theta.abs().max())


def _complement_is_lower(krylov: Lanczos, k: int, tolerance: float, breakdown: float) -> bool:
    """Say whether what a (near) breakdown left unseen has no eigenvalue among the k largest.

    Where β_j is below ``breakdown``, steps up to j span an invariant space, and what follows is a Lanczos
    process on its complement, which may hold further copies of the eigenvalues found. The newest such
    stretch must have a largest eigenvalue that is converged and not above the k-th of those before it.
    """
    m = krylov.steps
    cuts = [j + 1 for j, beta in enumerate(krylov.betas[:-1]) if beta <= breakdown]
    if not cuts:
        return krylov.betas[-1] > breakdown or m == krylov.basis.shape[1]
    newest = cuts[-1]
    if newest < k:
        return False
    theta, s = torch.linalg.eigh(krylov.tridiagonal(newest))
    before = torch.linalg.eigvalsh(krylov.tridiagonal()[:newest, :newest])
    converged = krylov.betas[-1] * abs(float(s[-1, -1])) <= tolerance
    return converged and float(theta[-1]) <= float(before[-k]) + tolerance


def _certified(op: Operator, krylov: Lanczos, k: int, tol: float, spent: int, seed: int) -> Eigenpairs:
    theta, s = torch.linalg.eigh(krylov.tridiagonal())
    vectors = krylov.combine(s[:, -k:].flip(1))
    vectors = (vectors / vectors.norm(dim=0)).to(op.dtype)
    values, residuals, errors = [], [], []
    for vector in vectors.T:
        product = op.product(vector)
        wide, image = vector.double(), product.vector.double()
        value = wide @ image / (wide @ wide)
        values.append(float(value))
        residuals.append(float((image - value * wide).norm() / wide.norm()))
        errors.append(data_stderr(product.forms, op.weights))
    order = sorted(range(k), key=lambda i: -values[i])
    limit = max(tol * abs(max(values)), _rounding(krylov, theta))
    return Eigenpairs(
        values=torch.tensor([values[i] for i in order], dtype=torch.float64),
        vectors=vectors[:, order],
        residuals=torch.tensor([residuals[i] for i in order], dtype=torch.float64),
        stderr_data=torch.tensor([errors[i] for i in order], dtype=torch.float64),
        converged=all(residual <= limit for residual in residuals),
        matvecs=spent,
        seed=seed,
    )


def _rounding(krylov: Lanczos, theta: Tensor) -> float:
    return 10 * torch.finfo(krylov.basis.dtype).eps * float(theta.abs().max())


def _undefined(op: Operator, k: int, spent: int, seed: int) -> Eigenpairs:
    missing = torch.full((k,), math.nan, dtype=torch.float64)
    return Eigenpairs(
        values=missing,
        vectors=torch.full((op.shape[0], k), math.nan, dtype=op.dtype, device=op.device),
        residuals=missing.clone(),
        stderr_data=missing.clone(),
        converged=False,
        matvecs=spent,
        seed=seed,
    )
