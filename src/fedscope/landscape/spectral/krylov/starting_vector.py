"""Where a Lanczos process may begin better than at random.

Eigenvectors of a smaller sample, or of the checkpoint of a neighbouring round, nearly span those wanted.
Lanczos takes one starting vector, so it begins with their sum, and a random part for what is new.
"""

import torch
from torch import Tensor

from fedscope.errors import UserError
from fedscope.landscape.operators.base import Operator
from fedscope.landscape.spectral.spectral_results import Eigenpairs

Start = Tensor | Eigenpairs
"""(n,) a vector; (r, n) vectors in rows; or eigenpairs found elsewhere."""

RANDOM_PART = 0.01  # of the starting vector's norm


def starting_vector(op: Operator, start: Start | None, generator: torch.Generator) -> Tensor:
    """Return (n,) float64: a Gaussian draw, or the sum of given vectors, normalised, and a little of it."""
    n = op.shape[0]
    random = torch.randn(n, generator=generator, device=generator.device, dtype=torch.float64).to(op.device)
    if start is None:
        return random
    rows = torch.atleast_2d(start.vectors.T if isinstance(start, Eigenpairs) else start)
    if rows.ndim != 2 or rows.shape[1] != n:
        raise UserError(f"the start has shape {tuple(rows.shape)}; its vectors must have length {n}")
    if not len(rows):
        raise UserError("the start has no vectors; leave it out")
    total = torch.zeros_like(random)
    for row in rows:
        wide = row.to(op.device, torch.float64)
        unit = wide / wide.norm()
        total += -unit if unit @ total < -0.5 else unit  # the sum never gets shorter: none cancel
    if not bool(total.isfinite().all()):
        raise UserError("the start holds a vector that is zero or not finite; leave it out")
    start_vector: Tensor = total / total.norm() + RANDOM_PART * random / random.norm()
    return start_vector
