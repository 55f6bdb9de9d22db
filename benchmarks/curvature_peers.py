"""The peers of the curvature engine: their products, and their algorithms on any product.

PyHessian 0.1, hessian-eigenthings 1.0.0a5 and curvlinops 3.0.1 with SciPy's eigsh. All products are between
flat float32 vectors, so that any algorithm can run on any product.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import numpy as np
import torch
from scipy.sparse.linalg import LinearOperator, eigsh
from torch import Tensor, nn

from fedscope.landscape import Batches
from fedscope.landscape.loss.flat_loss import LossFunction

Matvec = Callable[[Tensor], Tensor]


@dataclass
class Counted:
    """A product that counts its calls."""

    matvec: Matvec
    n: int
    calls: int = field(default=0)

    def __call__(self, v: Tensor) -> Tensor:
        """Return the product."""
        self.calls += 1
        return self.matvec(v)


def _pieces(model: nn.Module, v: Tensor) -> list[Tensor]:
    shapes = [p.shape for p in model.parameters()]
    parts = v.split([shape.numel() for shape in shapes])
    return [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]


def flat(pieces: list[Tensor]) -> Tensor:
    """Return tensors as one vector."""
    return torch.cat([piece.detach().reshape(-1) for piece in pieces])


def pyhessian_engine(model: nn.Module, loss_fn: LossFunction, batches: Batches, *, cuda: bool) -> Any:
    """Return PyHessian's object over a loader, on the GPU or on the processor."""
    return import_module("pyhessian").hessian(model, loss_fn, dataloader=list(batches), cuda=cuda)


def pyhessian_product(
    model: nn.Module, loss_fn: LossFunction, batches: Batches, *, cuda: bool = False
) -> Matvec:
    """Return v ↦ Hv as PyHessian computes it over a loader."""
    engine = pyhessian_engine(model, loss_fn, batches, cuda=cuda)
    return lambda v: flat(engine.dataloader_hv_product(_pieces(model, v))[1])


def eigenthings_product(model: nn.Module, loss_fn: LossFunction, batches: Batches) -> Matvec:
    """Return v ↦ Hv as hessian-eigenthings computes it."""
    library = import_module("hessian_eigenthings")
    product: Matvec = library.HessianOperator(
        model.eval(), list(batches), library.supervised_loss(loss_fn)
    ).matvec
    return product


def curvlinops_product(model: nn.Module, batches: Batches, loss_fn: nn.Module | None = None) -> Matvec:
    """Return v ↦ Hv, or V ↦ HV for (n, m) columns, as curvlinops computes it; of cross-entropy by default."""
    operator = import_module("curvlinops").HessianLinearOperator(
        model.eval(),
        loss_fn or nn.CrossEntropyLoss(),
        list(model.parameters()),
        list(batches),
        check_deterministic=False,
    )
    return lambda v: operator @ v


def power_iteration(product: Counted, *, k: int, tol: float, most: int) -> Tensor:
    """Return (n, k) vectors by PyHessian's own power iteration on ``product``; its loader is never read."""
    holder = nn.Linear(product.n, 1, bias=False)  # gives PyHessian one parameter of n numbers
    engine = import_module("pyhessian").hessian(holder, None, dataloader=[], cuda=False)

    def replaced(pieces: list[Tensor]) -> tuple[float, list[Tensor]]:
        v = flat(pieces)
        image = product(v)
        return float(v @ image), [image[None]]

    engine.dataloader_hv_product = replaced
    torch.manual_seed(0)
    _, vectors = engine.eigenvalues(maxIter=most, tol=tol, top_n=k)
    return torch.stack([flat(vector) for vector in vectors], dim=1)


def eigenthings_lanczos(product: Counted, *, k: int, steps: int) -> Tensor:
    """Return (n, k) vectors by hessian-eigenthings' Lanczos of so many steps, reorthogonalised."""
    library = import_module("hessian_eigenthings")
    found = library.lanczos(
        library.LambdaOperator(product, product.n), k=k, max_iter=steps, which="LA",
        reorthogonalize=True, seed=0,
    )  # fmt: skip
    vectors: Tensor = found.eigenvectors
    return vectors.T


def scipy_eigsh(product: Counted, *, k: int, tol: float) -> Tensor:
    """Return (n, k) vectors by SciPy's eigsh (ARPACK), as curvlinops' documentation has it."""

    def apply(v: np.ndarray) -> np.ndarray:
        return product(torch.from_numpy(np.ascontiguousarray(v.reshape(-1), dtype=np.float32))).numpy()

    operator = LinearOperator((product.n, product.n), matvec=apply, dtype=np.float32)
    start = torch.randn(product.n, generator=torch.Generator().manual_seed(0)).numpy()
    _, vectors = eigsh(operator, k=k, which="LA", tol=tol, v0=start)
    return torch.from_numpy(vectors)


def eigenthings_trace(product: Counted, *, method: str, products: int, seed: int) -> tuple[float, float]:
    """Return estimate and standard error of hessian-eigenthings' ``hutchinson`` or ``hutch++``."""
    library = import_module("hessian_eigenthings")
    found = library.trace(
        library.LambdaOperator(product, product.n), num_matvecs=products, method=method, seed=seed
    )
    return float(found.estimate), float(found.stderr)
