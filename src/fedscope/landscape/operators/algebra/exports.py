"""Exports of vectors and operators: as tensors by parameter name, as a dense matrix, as SciPy has them."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from fedscope.errors import UserError, suggestion

if TYPE_CHECKING:
    from scipy.sparse.linalg import LinearOperator

    from fedscope.landscape.operators.base import Operator


Blocks = tuple[tuple[str, int], ...]
"""Names and lengths of consecutive stretches of coordinates, in order; the lengths sum to n."""


def unflattened(vector: Tensor, blocks: Blocks, shapes: Sequence[torch.Size]) -> dict[str, Tensor]:
    lengths = [length for _, length in blocks]
    if vector.shape != (sum(lengths),):
        raise UserError(f"the vector has shape {tuple(vector.shape)}; expected ({sum(lengths)},)")
    pieces = zip(blocks, vector.split(lengths), shapes, strict=True)
    return {name: piece.view(shape) for (name, _), piece, shape in pieces}


def flattened(tensors: Mapping[str, Tensor], blocks: Blocks, shapes: Sequence[torch.Size]) -> Tensor:
    names = [name for name, _ in blocks]
    for name in tensors:
        if name not in names:
            raise UserError(f"the operator has no tensor {name!r}{suggestion(name, names)}")
    for name, shape in zip(names, shapes, strict=True):
        if name not in tensors:
            raise UserError(
                f"the tensor {name!r} is missing; give all {len(names)}, zeros where none is meant"
            )
        if tensors[name].shape != shape:
            raise UserError(f"{name!r} has shape {tuple(tensors[name].shape)}; expected {tuple(shape)}")
    return torch.cat([tensors[name].reshape(-1) for name in names])


DENSE_MEMORY = 4 << 30  # bytes
_ROWS_MEMORY = 1 << 27  # bytes of the rows in float64 that are multiplied together


def dense(op: "Operator", memory: int) -> Tensor:
    n = op.shape[0]
    if (size := n**2 * op.dtype.itemsize) > memory:
        raise UserError(
            f"a dense {n:,} × {n:,} matrix takes {size / 2**30:,.1f} GiB, memory is {memory / 2**30:,.1f} "
            "GiB: take some of the parameters, or what needs products alone (top_eigenpairs, trace)"
        )
    found = torch.empty(n, n, dtype=op.dtype, device=op.device)
    for columns in torch.arange(n, device=op.device).split(max(1, _ROWS_MEMORY // (8 * n))):
        units = torch.zeros(len(columns), n, dtype=op.dtype, device=op.device)
        units[torch.arange(len(columns)), columns] = 1
        for column, product in zip(columns, op.products(units, by_batch=False), strict=True):
            found[:, column] = product.vector
    return found


def scipy_operator(op: "Operator") -> "LinearOperator":
    """Return an operator for SciPy's solvers, in the NumPy dtype of the same name; float32 for bfloat16."""
    from scipy.sparse.linalg import LinearOperator

    def numbers(tensor: Tensor) -> np.ndarray:
        return (tensor.float() if op.dtype == torch.bfloat16 else tensor).cpu().numpy()

    def apply(v: np.ndarray) -> np.ndarray:
        return numbers(op.matvec(torch.as_tensor(np.ascontiguousarray(v.reshape(-1)))))

    def apply_all(V: np.ndarray) -> np.ndarray:
        return numbers(op.matmat(torch.as_tensor(np.ascontiguousarray(V))))

    dtype = numbers(torch.empty(0, dtype=op.dtype)).dtype
    return LinearOperator(op.shape, matvec=apply, rmatvec=apply, matmat=apply_all, dtype=dtype)
