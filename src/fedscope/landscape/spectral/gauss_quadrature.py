"""How much of a measure lies below a point, as far as its Gauss quadrature tells (Golub and Meurant 2010).

A Gauss–Radau rule of m nodes, one of them at x, keeps the first 2m − 1 moments that the Gauss rule knows. No
measure with these moments has more mass at x, and the share below x of each lies between the Radau weights
left of x, and these and that of x (Chebyshev, Markov, Stieltjes).

Symbols: m nodes, (α, β) diagonal and off-diagonal of the rule's Jacobi matrix.
"""

import torch
from torch import Tensor

NONE = 1e-14  # of all weight
FAR = 1e8  # times the nodes' largest magnitude: as good as at infinity, and bad for rounding


def share_limits(nodes: Tensor, weights: Tensor, at: float) -> tuple[float, float]:
    """Return the least and the largest share below ``at`` of a measure with this Gauss rule.

    Args:
        weights: (m,) float64, of sum one; a node of less than ``NONE`` is none.
    """
    nodes, weights = nodes[weights > NONE], weights[weights > NONE]
    if not bool(nodes.isfinite().all()) or not len(nodes):
        return float("nan"), float("nan")
    if len(nodes) == 1:
        return 0.0, 1.0
    matrix = _jacobi(nodes, weights)
    head, beta = matrix[:-1, :-1] - at * torch.eye(len(nodes) - 1, dtype=matrix.dtype), matrix[-1, -2]
    unit = torch.zeros(len(head), dtype=matrix.dtype)
    unit[-1] = beta**2
    solution, singular = torch.linalg.solve_ex(head, unit)
    if singular or solution[-1].abs() > FAR * nodes.abs().max():
        matrix = matrix[:-1, :-1]  # the rule of one node less has one at x already
    else:
        matrix[-1, -1] = at + solution[-1]
    theta, s = torch.linalg.eigh(matrix)
    fixed = (theta - at).abs().argmin()
    share = s[0] ** 2
    below = float(share[:fixed].sum())
    return below, below + float(share[fixed])


def _jacobi(nodes: Tensor, weights: Tensor) -> Tensor:
    """Return a rule's (m, m) Jacobi matrix: the Lanczos process of the nodes from the weights' roots."""
    rows = [weights.sqrt() / weights.sum().sqrt()]
    diagonal, off = [], []
    for _ in nodes:
        image = nodes * rows[-1]
        diagonal.append(image @ rows[-1])
        basis = torch.stack(rows)
        for _ in range(2):
            image = image - basis.T @ (basis @ image)
        off.append(image.norm())
        rows.append(image / off[-1])
    between = torch.stack(off[:-1])
    return torch.diag(torch.stack(diagonal)) + torch.diag(between, 1) + torch.diag(between, -1)
