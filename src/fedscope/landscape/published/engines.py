"""The estimators of other packages, which ``--engine`` selects. There are no error bars.

PyHessian (Yao et al. 2020), the published papers' own, stops where consecutive values differ little, so it
has neither residuals nor standard errors to give: they are NaN here, and ``converged`` is False. λ_max is its
power iteration's eigenvalue of largest magnitude (sign included), taken one iteration before the last.

hessian-eigenthings (Golmant et al. 2018), and FedGloSS' program (Caldarola et al. 2025), which has it inside,
take at most 20 products for each eigenvalue. The first start is uniform on [0, 1), each later one the vector
before; what was found is subtracted. They stop where vᵀHv changed by less than 1e-4 of itself. That bounds no
error: values of largest magnitude come first, of either sign, and a network's eigenvalues lie so close that
20 products leave those after the first too small or mixed.
"""

import math
import warnings
from collections.abc import Iterator

import torch
from pyhessian import hessian as PyHessian
from torch import Tensor, nn

from fedscope.choices import BatchNormMode
from fedscope.errors import UserError
from fedscope.landscape.loss.batches import Batches
from fedscope.landscape.loss.batchnorm import frozen_copy
from fedscope.landscape.loss.flat_loss import LossFunction
from fedscope.landscape.loss.streamed import Batch
from fedscope.landscape.loss.trees import mapped
from fedscope.landscape.operators.base import Operator
from fedscope.landscape.operators.probes import DEFAULT_SEED, generator_of
from fedscope.landscape.operators.progress_callback import Progress
from fedscope.landscape.spectral.spectral_results import Eigenpairs, Trace

STEPS = 20
THRESHOLD = 1e-4


def pyhessian_spectrum(
    model: nn.Module,
    loss_fn: LossFunction,
    batches: Batches,
    *,
    seed: int = DEFAULT_SEED,
    max_iter: int = 100,
    tol: float = 1e-3,
    bn: BatchNormMode = "eval",
) -> tuple[Eigenpairs, Trace]:
    """Return PyHessian's top eigenpair and trace, on a frozen copy of the model and the same batches.

    Its draws come from PyTorch's global generator, which is seeded here and put back afterwards.
    """
    trained = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    first = trained[0][1]
    if not all(isinstance(part, Tensor) for pair in batches for part in pair):
        raise UserError("PyHessian takes batches of one input tensor and one target tensor; drop --engine")
    batches = batches.to(first.device, first.dtype)
    frozen = frozen_copy(model, bn=bn, batches=batches)
    used = _require_used(frozen, loss_fn, batches, {name for name, _ in trained})
    counted = _CountedPasses(batches)
    cuda = first.device.type == "cuda"
    with torch.random.fork_rng(devices=[first.device] if cuda else []), warnings.catch_warnings():
        # It calls backward(create_graph=True), whose reference cycle is undone by zero_grad below.
        warnings.filterwarnings("ignore", message="Using backward\\(\\) with create_graph=True")
        torch.manual_seed(seed)
        engine = PyHessian(frozen, loss_fn, dataloader=counted, cuda=cuda)
        values, vectors = engine.eigenvalues(maxIter=max_iter, tol=tol, top_n=1)
        eigen_products = counted.passes
        samples = engine.trace(maxIter=max_iter, tol=tol)
    frozen.zero_grad(set_to_none=True)
    pieces = dict(zip(used, vectors[0], strict=True))
    vector = torch.cat([pieces.get(name, torch.zeros_like(p)).detach().reshape(-1) for name, p in trained])
    pair = Eigenpairs.bare(
        torch.tensor(values, dtype=torch.float64), vector[:, None].to(first.dtype), eigen_products, seed
    )
    mean = sum(samples) / len(samples)
    return pair, Trace(mean, math.nan, math.nan, len(samples), counted.passes - eigen_products, seed)


def _require_used(model: nn.Module, loss_fn: LossFunction, batches: Batches, trained: set[str]) -> list[str]:
    """Let the trained parameters that the loss uses require a gradient; PyHessian fails on the others."""
    wanted = [(name, p.requires_grad_(True)) for name, p in model.named_parameters() if name in trained]
    inputs, targets = next(iter(batches))
    loss = loss_fn(model(inputs.clone()), targets)
    gradients: tuple[Tensor | None, ...] = torch.autograd.grad(
        loss, [p for _, p in wanted], allow_unused=True
    )
    for (_, p), gradient in zip(wanted, gradients, strict=True):
        p.requires_grad_(gradient is not None)
    return [name for name, p in wanted if p.requires_grad]


class _CountedPasses:
    """The batches, as a loader that counts how often it is run through: once per product."""

    def __init__(self, batches: Batches) -> None:
        self._batches = batches
        self.passes = 0

    def __iter__(self) -> Iterator[Batch]:
        self.passes += 1
        return iter([(mapped(Tensor.clone, x), y) for x, y in self._batches])  # forward may write to them


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
