"""How far two subspaces coincide."""

from torch import Tensor


def subspace_overlap(A: Tensor, B: Tensor) -> float:
    """Return ‖AᵀB‖_F² / k of two (n, k) matrices with orthonormal columns, between 0 and 1.

    It is the mean of the squared cosines of the principal angles: 1 for equal spaces, 0 for orthogonal ones,
    k/n on average for random ones (Gur-Ari, Roberts and Dyer 2018, equation 5).

    Raises:
        ValueError: the shapes differ.
    """
    if A.shape != B.shape:
        raise ValueError(f"the bases have shapes {tuple(A.shape)} and {tuple(B.shape)}")
    return float((A.double().T @ B.double()).square().sum() / A.shape[1])
