"""Reading ``code``: what the scripts published with Mendieta et al. 2022 compute, unchanged.

- Trace: Rademacher probes; the running mean of zᵀHz stops when it moved by less than 1e-3 of itself, or after
  100. That bounds no error, and a flat step may end it by chance, so the number of probes differs between
  models. The scripts divide by mean + 1e-6, which stops at once where the mean is negative; here by
  |mean| + 1e-6.
- "Diagonal": one number per parameter tensor, the mean of Σ z⊙Hz over it, that is its block's trace.
- λ_max: power iteration from a Gaussian start, so the eigenvalue of largest magnitude, sign included; stops
  when two Rayleigh quotients differ by less than 1e-3 of the former, and returns the former. 1e-6 is added to
  every norm. Further eigenvectors are made orthogonal to the earlier ones at each iteration.
- Pairs: the mean over the whole K × K matrices, each client with itself included.

- Products: of the first ten batches of a training loader that is started again for each, shuffled and
  augmented, its last, smaller batch dropped. So it is not one matrix: two products see two Hessians, and
  nothing that assumes otherwise (a residual, a standard error, a Krylov space) means anything here.

There are no error bars.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from fedscope.choices import AtMost, Pairs
from fedscope.errors import UserError
from fedscope.landscape.heterogeneity.cross_client import CrossClient
from fedscope.landscape.heterogeneity.similarity import compare
from fedscope.landscape.loss.batches import Batches
from fedscope.landscape.operators.base import Operator, Product
from fedscope.landscape.operators.empirical_risk import LossOperator
from fedscope.landscape.operators.probes import generator_of, rademacher
from fedscope.landscape.operators.progress_callback import Progress
from fedscope.landscape.printing import Printed
from fedscope.landscape.spectral.spectral_results import Estimate

MAX_ITERATIONS = 100
TOLERANCE = 1e-3
_TINY = 1e-6

Fetch = Callable[[Tensor, torch.Generator], Tensor]
"""(rows (B,), generator) ↦ the inputs of these samples, augmented by draws of the generator."""


class Loader:
    """A shuffled training loader; each call starts it anew and returns its first ``batches``, whole ones.

    The ``generator`` draws each call's order, then each batch's augmentation.
    """

    def __init__(
        self,
        fetch: Fetch,
        labels: Tensor,
        *,
        batch_size: int,
        batches: int | None,
        generator: torch.Generator,
    ) -> None:
        whole = len(labels) // batch_size
        if not whole:
            raise UserError(
                f"{len(labels)} samples are no whole batch of {batch_size}, and the published loader drops "
                "the rest; lower --batch-size"
            )
        self.batch_size = batch_size
        self.samples = len(labels)
        self.batches = whole if batches is None else min(batches, whole)
        self._fetch, self._labels, self._generator = fetch, labels, generator

    def __call__(self) -> Batches:
        order = torch.randperm(self.samples, generator=self._generator)
        rows = order[: self.batches * self.batch_size].split(self.batch_size)
        return Batches.from_iterable(
            (self._fetch(part, self._generator), self._labels[part]) for part in rows
        )


class Resampled(Operator):
    """The operator that ``over`` makes of batches, of other batches of the loader at every product."""

    def __init__(self, over: Callable[[Batches], LossOperator], loader: Loader) -> None:
        first = over(loader())
        super().__init__(first.shape[0], dtype=first.dtype, device=first.device, blocks=first.blocks)
        self._operators = _drawn(first, over, loader)

    def _apply(self, rows: Tensor, onto: Tensor | None) -> list[Product]:
        return [Product(next(self._operators).product(v).vector, None) for v in rows]


def _drawn(
    operator: LossOperator, over: Callable[[Batches], LossOperator], loader: Loader
) -> Iterator[LossOperator]:
    """Yield an operator, then those of further batches; only the last one is held, with its graphs."""
    while True:
        yield operator
        operator = over(loader()).after(operator)


@dataclass(frozen=True, repr=False)
class PublishedTrace(Printed):
    """A running mean of zᵀHz when it stopped, whole and by parameter tensor."""

    value: float
    tensor: Tensor  # (T,) float64; adds up to the value
    iterations: int  # products


@dataclass(frozen=True, repr=False)
class PublishedEigenpairs(Printed):
    """Eigenvalues of largest magnitude as power iteration left them, in the order found."""

    values: Tensor  # (k,) float64
    vectors: Tensor  # (n, k) in the operator's dtype
    iterations: tuple[int, ...]  # products of each


def published_trace(
    op: Operator,
    *,
    generator: torch.Generator | None = None,
    seed: int | None = None,
    max_iterations: int = MAX_ITERATIONS,
    tol: float = TOLERANCE,
    progress: Progress | None = None,
) -> PublishedTrace:
    """Estimate the trace, and that of each of the operator's blocks, by the scripts' stopping rule.

    Args:
        op: symmetric operator.
        generator: draws the probes.
        seed: of such a generator instead; 0 if neither is given.
        max_iterations: most probes.
        tol: relative change of the running mean that ends the iteration.
        progress: called after every product.
    """
    probes = rademacher(op.shape[0], generator_of(generator, seed), op.dtype, op.device)
    lengths = [length for _, length in op.blocks]
    total = torch.zeros(len(lengths), dtype=torch.float64)
    mean = 0.0
    for done, z in zip(range(1, max_iterations + 1), probes, strict=False):
        sample = z.double() * op.matvec(z).double()
        total += torch.stack([piece.sum() for piece in sample.split(lengths)]).cpu()
        before, mean = mean, float(total.sum()) / done
        if progress:
            progress(done, AtMost(max_iterations))
        if abs(mean - before) / (abs(before) + _TINY) < tol:
            break
    return PublishedTrace(mean, total / done, done)


def published_eigenpairs(
    op: Operator,
    *,
    k: int = 1,
    generator: torch.Generator | None = None,
    seed: int | None = None,
    max_iterations: int = MAX_ITERATIONS,
    tol: float = TOLERANCE,
    progress: Progress | None = None,
) -> PublishedEigenpairs:
    """Find k eigenpairs of largest magnitude, one after the other, by the scripts' power iteration.

    Args:
        op: symmetric operator.
        k: pairs wanted.
        generator: draws the Gaussian starts.
        seed: of such a generator instead; 0 if neither is given.
        max_iterations: most products for each; the last quotient is returned if it comes to that.
        tol: relative change of the Rayleigh quotient that ends the iteration.
        progress: called after every product.
    """
    generator = generator_of(generator, seed)
    vectors: list[Tensor] = []
    values: list[float] = []
    iterations: list[int] = []
    for _ in range(k):
        start = torch.randn(op.shape[0], generator=generator, device=generator.device)
        v = _normalised(start.to(op.device, torch.float64))
        value: float | None = None
        for done in range(1, max_iterations + 1):
            for earlier in vectors:
                v = v - (v @ earlier) * earlier
            v = _normalised(v).to(op.dtype)
            image = op.matvec(v).double()
            quotient = float(image @ v.double())
            v = _normalised(image)
            if progress:
                progress(sum(iterations) + done, AtMost(k * max_iterations))
            if value is not None and abs(value - quotient) / (abs(value) + _TINY) < tol:
                break
            value = quotient
        assert value is not None
        vectors.append(v)
        values.append(value)
        iterations.append(done)
    return PublishedEigenpairs(
        torch.tensor(values, dtype=torch.float64),
        torch.stack(vectors, dim=1).to(op.dtype),
        tuple(iterations),
    )


def published_comparison(traces: list[PublishedTrace], pairs: Pairs = "all_including_self") -> CrossClient:
    """Compare the clients' vectors of tensor traces as they are, without a correction or an error bar."""
    found = compare([trace.tensor[None] for trace in traces], pairs, sure=False)
    probes = tuple(trace.iterations for trace in traces)
    return CrossClient(
        clients=len(traces),
        pairs=pairs,
        H_N={"tensor": found.H_N},
        H_N_scale_free={"tensor": found.H_N_scale_free},
        H_D={"tensor": found.H_D},
        H_N_matrix={"tensor": found.H_N_matrix},
        H_D_matrix={"tensor": found.H_D_matrix},
        H_N_resolved={"tensor": found.H_N_resolved},
        H_D_resolved={"tensor": found.H_D_resolved},
        squared_norms={"tensor": found.squared_norms},
        probes=probes,
        converged=None,
        matvecs=sum(probes),
        traces=tuple(Estimate(trace.value, math.nan) for trace in traces),
    )


def _normalised(v: Tensor) -> Tensor:
    unit: Tensor = v / (v.norm() + _TINY)
    return unit
