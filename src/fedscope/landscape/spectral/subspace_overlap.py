"""How much two subspaces have in common, such as a client's top eigenspace and the global model's.

For orthonormal columns A and B (n, k), the singular values of AᵀB are the cosines of the principal angles
(Björck and Golub 1973); the mean of their squares is the share of a random vector's square in one space that
the other keeps (Gur-Ari, Roberts and Dyer 2018, equation 5): 1 for equal spaces, 0 for orthogonal ones, and
k/n on average for random ones.
"""

import torch
from torch import Tensor

from fedscope.errors import UserError


def subspace_overlap(A: Tensor, B: Tensor) -> float:
    """Return ‖AᵀB‖_F²/k, in [0, 1], for orthonormal columns (n, k) on any device.

    Raises:
        UserError: see ``principal_cosines``.
    """
    return float(principal_cosines(A, B).square().mean())


def principal_cosines(A: Tensor, B: Tensor) -> Tensor:
    """Return the cosines of the k principal angles, (k,) float64 on the CPU, descending.

    Raises:
        UserError: A and B are not matrices of the same shape, or have no column.
    """
    if A.ndim != 2 or A.shape != B.shape or A.shape[1] == 0:
        shapes = f"{tuple(A.shape)} and {tuple(B.shape)}"
        raise UserError(f"an overlap needs two (n, k) bases of equal shapes, not {shapes}")
    common = torch.zeros(A.shape[1], A.shape[1], dtype=torch.float64)
    for ours, theirs in zip(A.split(_ROWS), B.split(_ROWS), strict=True):
        common += ours.double().cpu().T @ theirs.double().cpu()
    cosines: Tensor = torch.linalg.svdvals(common).clamp(max=1)
    return cosines


_ROWS = 1 << 14  # converted to float64 at a time
