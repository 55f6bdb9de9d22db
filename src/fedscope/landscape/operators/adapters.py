"""Functions, matrices and operators of other libraries as operators here; the way back is ``to_scipy``.

They are told by what they have, so that no library is imported: one of SciPy, NumPy or a dense tensor by its
``shape``, ``dtype`` and ``@``; one of curvlinops or hessian-eigenthings by a PyTorch ``dtype``, a ``device``,
a ``shape`` or ``size``, and ``@``. None of them has parts by batch, so that there are no errors over samples.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedscope.errors import UserError
from fedscope.landscape.loss.checks import slack
from fedscope.landscape.operators.algebra.exports import Blocks
from fedscope.landscape.operators.base import Operator, Product
from fedscope.landscape.operators.probes import generator_of


class LambdaOperator(Operator):
    """The operator of a function v ↦ A v, for tests and for matrices one has at hand."""

    def __init__(
        self,
        matvec: Callable[[Tensor], Tensor],
        n: int,
        dtype: torch.dtype = torch.float64,
        device: torch.device | str = "cpu",
        *,
        blocks: Blocks | None = None,
        shapes: Sequence[torch.Size] | None = None,
    ) -> None:
        super().__init__(n, dtype=dtype, device=device, blocks=blocks, shapes=shapes)
        self._matvec = matvec

    def _apply(self, rows: Tensor, onto: Tensor | None) -> list[Product]:
        return [Product(self._matvec(v), None) for v in rows]


def as_operator(matrix: Any, *, like: Operator | None = None) -> Operator:
    """Return a symmetric matrix, or another library's operator, as an operator; an operator as it is.

    Whether it is symmetric is tried with two products.

    Args:
        matrix: a dense (n, n) tensor or array, a SciPy sparse matrix or ``LinearOperator``, or an operator of
            curvlinops or hessian-eigenthings.
        like: an operator on the same coordinates, whose names and shapes of tensors it gets.

    Raises:
        UserError: it is none of these, not square or not symmetric, has no floating-point dtype, or another
            size than ``like``.
    """
    if isinstance(matrix, Operator):
        return matrix
    n, dtype, device = _size(matrix), *_kind(matrix)
    if like is not None and like.shape[0] != n:
        raise UserError(f"the matrix has {n} rows, the operator that it is to be like {like.shape[0]}")
    blocks, shapes = (like.blocks, like.shapes) if like else (None, None)
    operator = LambdaOperator(_times(matrix), n, dtype, device, blocks=blocks, shapes=shapes)
    _check_symmetric(operator)
    return operator


def _size(matrix: Any) -> int:
    size = getattr(matrix, "size", None)
    shape = getattr(matrix, "shape", (size, size) if isinstance(size, int) else None)
    if shape is None or not hasattr(matrix, "__matmul__"):
        raise UserError(
            f"{type(matrix).__name__} is no matrix: give a dense tensor, a SciPy matrix or LinearOperator, "
            "or an operator with dtype, device, shape and @"
        )
    if len(shape) != 2 or shape[0] != shape[1] or not shape[0]:
        raise UserError(f"a matrix of shape {tuple(shape)} is not square; give a symmetric one")
    return int(shape[0])


def _kind(matrix: Any) -> tuple[torch.dtype, torch.device]:
    dtype, device = getattr(matrix, "dtype", None), getattr(matrix, "device", "cpu")
    if isinstance(dtype, np.dtype) and dtype.kind == "f":
        return torch.from_numpy(np.empty(0, dtype)).dtype, torch.device("cpu")
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise UserError(f"a matrix of dtype {dtype} cannot be taken; give one of floating-point numbers")
    return dtype, torch.device(device)


def _times(matrix: Any) -> Callable[[Tensor], Tensor]:
    if isinstance(matrix.dtype, np.dtype):
        return lambda v: torch.as_tensor(np.asarray(matrix @ v.numpy()).reshape(-1))
    return lambda v: (matrix @ v).detach()


def _check_symmetric(op: Operator) -> None:
    u, v = torch.randn(2, op.shape[0], generator=generator_of(), dtype=torch.float64).to(op.device)
    Au, Av = op.matvec(u).double(), op.matvec(v).double()
    defect, scale = float((u @ Av - v @ Au).abs()), float(Au.norm() + Av.norm())
    if defect > slack(op.dtype) * scale:
        raise UserError(
            f"the matrix is not symmetric, or not the same in every product: uᵀAv and vᵀAu differ by "
            f"{defect:.1e} where ‖Au‖ + ‖Av‖ is {scale:.1e}"
        )
