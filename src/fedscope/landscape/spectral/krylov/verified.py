"""Residuals of eigenpairs whose products were not exact, for the exact operator.

One product more with each unit vector v, Ãv within δ of Av, gives ‖Av − λv‖ ≤ ‖Ãv − λv‖ + δ: an eigenvalue of
the exact A lies so near to λ, whatever errors the basis was made with.
"""

from dataclasses import replace

import torch

from fedscope.landscape.operators.base import Operator
from fedscope.landscape.spectral.krylov.ritz import Goal
from fedscope.landscape.spectral.spectral_results import Eigenpairs


def verified(op: Operator, found: Eigenpairs, goal: Goal, *, certain: bool) -> Eigenpairs:
    """Return the pairs with these residuals, and what then is certified and has converged.

    ``certain``: convergence also takes that every value is known to be the i-th.
    """
    residuals = torch.empty_like(found.values)
    products = op.products(found.vectors.T.contiguous())
    for i, (v, product) in enumerate(zip(found.vectors.T, products, strict=True)):
        defect = product.vector.double() - float(found.values[i]) * v.double()
        residuals[i] = float(defect.norm()) + product.error
    small = residuals <= goal.tolerances(found.values)
    known = found.certified & small
    return replace(
        found,
        residuals=residuals,
        certified=known,
        converged=bool((known if certain else small).all()),
    )
