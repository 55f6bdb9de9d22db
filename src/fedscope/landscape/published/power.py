"""Eigenvalues by deflated power iteration of few steps, as hessian-eigenthings and what is built on it do.

hessian-eigenthings (Golmant et al. 2018), and FedGloSS' program (Caldarola et al. 2025), which has it inside,
take at most 20 products for each eigenvalue. The first start is uniform on [0, 1), each later one the vector
before; what was found is subtracted. They stop where vᵀHv changed by less than 1e-4 of itself. That bounds no
error: values of largest magnitude come first, of either sign, and a network's eigenvalues lie so close that
20 products leave those after the first too small or mixed. There are no error bars.
"""

import torch

from fedscope.landscape.operators.base import Operator
from fedscope.landscape.operators.probes import DEFAULT_SEED, generator_of
from fedscope.landscape.operators.progress_callback import Progress
from fedscope.landscape.spectral.spectral_results import Eigenpairs

STEPS = 20
THRESHOLD = 1e-4


def power_eigenpairs(
    op: Operator,
    k: int = 1,
    *,
    steps: int = STEPS,
    threshold: float = THRESHOLD,
    seed: int = DEFAULT_SEED,
    progress: Progress | None = None,
) -> Eigenpairs:
    """Return k eigenpairs as the iteration left them, sorted by value, with no error known.

    Args:
        op: symmetric operator (n, n).
        k: pairs wanted.
        steps: most products for each.
        threshold: relative change of vᵀHv that ends an iteration.
        seed: of the start.
        progress: called after every product.
    """
    start = torch.rand(op.shape[0], generator=generator_of(None, seed))
    v = start.to(op.device, op.dtype)
    values: list[float] = []
    vectors, products = v.new_empty(0, len(v)), 0
    for _ in range(k):
        value = 0.0
        for _ in range(steps):
            found = op.matvec(v)
            for known, vector in zip(values, vectors, strict=True):
                found = found - known * (vector @ v) * vector
            products += 1
            if progress:
                progress(products, k * steps)
            before, value = value, float(v @ found)
            if not float(found.norm()):
                break
            v = found / found.norm()
            if value and abs(value - before) < threshold * abs(value):
                break
        values.append(value)
        vectors = torch.cat([vectors, v[None]])
    order = sorted(range(k), key=lambda i: -values[i])
    return Eigenpairs.bare(
        torch.tensor([values[i] for i in order], dtype=torch.float64), vectors[order].T, products, seed
    )
